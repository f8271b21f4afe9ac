"""What stands beside a database: names of classes, order of channels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from databases import images_fixture

import prefetch
from prefetch._source.sidecar_files import class_names, raw_channel_order
from prefetch.cli import main
from prefetch.testing import encode_image, fingerprinted_images, write_database

if TYPE_CHECKING:
    from typing import Any

source = images_fixture(4)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("0\tcat\n1\tdog\n", ("cat", "dog")),
        ("1\tdog\n0\tcat", ("cat", "dog")),
        ("0\tcat\n2\tbird\n", ("cat", "1", "bird")),
        ("0\ta\\tb\\\\n\\n\n", ("a\tb\\n\n",)),
        ("0\tkätz\n", ("kätz",)),
        ("0\ta\u2028b\r\n\n1\tc\n", ("a\u2028b", "c")),
        ("", ()),
    ],
)
def test_a_feed_has_the_names_beside_its_database(
    source: Path, text: str, names: tuple[str, ...]
) -> None:
    (source / "classes.tsv").write_text(text, encoding="utf-8")
    for path in (source, source / "data.mdb"):
        with prefetch.open({"source": path, "batch_size": 2}) as feed:
            assert names == feed.class_names


@pytest.mark.parametrize("text", ["cat\n", "0 cat\n", "-1\tcat\n", "99999999\tcat\n", "x\ty\n"])
def test_a_list_that_cannot_be_used_is_warned_of(
    source: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (source / "classes.tsv").write_text(text, encoding="utf-8")
    assert () == class_names([str(source)])
    assert "classes.tsv, line 1: expected a label" in caplog.text


def test_a_label_of_two_names_has_none(source: Path, caplog: pytest.LogCaptureFixture) -> None:
    (source / "classes.tsv").write_text("0\tcat\n0\tdog\n", encoding="utf-8")
    assert () == class_names([str(source)])
    assert "classes.tsv, line 2: the label 0 has two names" in caplog.text


def test_an_inspection_and_its_picture_tell_the_names(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "classes.tsv").unlink(missing_ok=True)
    assert 0 == main(["inspect", str(source), "--show", str(tmp_path / "a.png")])
    (source / "classes.tsv").write_text("0\tcat\n1\tdog\n", encoding="utf-8")
    assert "dog" not in capsys.readouterr().out
    assert 0 == main(["inspect", str(source), "--show", str(tmp_path / "b.png")])
    assert "dog" in capsys.readouterr().out
    assert (tmp_path / "a.png").read_bytes() != (tmp_path / "b.png").read_bytes()


def test_without_a_list_there_are_no_names(source: Path) -> None:
    (source / "classes.tsv").unlink(missing_ok=True)
    assert () == class_names([str(source)])


def test_several_databases_share_their_names_or_have_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = []
    for name in ("a", "b", "c"):
        write_database(tmp_path / name, fingerprinted_images(2))
        paths.append(str(tmp_path / name))
    for name in ("a", "b"):
        (tmp_path / name / "classes.tsv").write_text("0\tcat\n")
    assert ("cat",) == class_names(paths)
    (tmp_path / "c" / "classes.tsv").write_text("0\tdog\n")
    assert () == class_names(paths)
    assert "do not agree" in caplog.text


class TestOrderOfChannels:
    @pytest.fixture
    def rgb(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A database of an RGB array: red 1, green 2, blue 3."""
        monkeypatch.chdir(tmp_path)
        pixels = np.broadcast_to(np.array([1, 2, 3], np.uint8), (4, 5, 5, 3))
        np.save("x.npy", pixels)
        np.save("y.npy", np.arange(4))
        assert 0 == main(["convert", "x.npy", "y.npy", "db"])
        return tmp_path / "db"

    @pytest.fixture
    def red(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A database of a red RGB array."""
        monkeypatch.chdir(tmp_path)
        np.save("x.npy", np.full((4, 9, 9, 3), (255, 0, 0), np.uint8))
        np.save("y.npy", np.arange(4))
        assert 0 == main(["convert", "x.npy", "y.npy", "db"])
        return tmp_path / "db"

    @pytest.mark.parametrize(
        ("channels", "values"),
        [("stored", [1, 2, 3]), ("rgb", [1, 2, 3]), ("bgr", [3, 2, 1])],
    )
    def test_what_is_asked_for_is_served_of_what_the_conversion_noted(
        self, rgb: Path, channels: str, values: list[int]
    ) -> None:
        assert "rgb" == raw_channel_order(str(rgb))
        options: dict[str, Any] = {"source": rgb, "batch_size": 4}
        with prefetch.open(options, transform={"channels": channels}) as feed:
            assert values == next(iter(feed)).data.numpy()[0, :, 0, 0].tolist()

    def test_reversed_arrays_are_bgr_and_say_nothing(self, rgb: Path) -> None:
        assert 0 == main(["convert", "--reverse-channels", "x.npy", "y.npy", "bgr"])
        assert raw_channel_order("bgr") is None
        with prefetch.open(
            {"source": "bgr", "batch_size": 4}, transform={"channels": "rgb"}
        ) as feed:
            assert [1, 2, 3] == next(iter(feed)).data.numpy()[0, :, 0, 0].tolist()
        with pytest.raises(prefetch.ConfigError, match="databases of both orders"):
            prefetch.open(
                {"source": [str(rgb), "bgr"], "batch_size": 4}, transform={"channels": "rgb"}
            )
        prefetch.open({"source": [str(rgb), "bgr"], "batch_size": 4}).close()

    def test_grey_arrays_say_nothing(self, rgb: Path) -> None:
        np.save("grey.npy", np.zeros((4, 5, 5), np.uint8))
        assert 0 == main(["convert", "grey.npy", "y.npy", "grey"])
        assert not Path("grey/channels.txt").exists()
        assert rgb.is_dir()

    def test_the_log_says_where_nobody_knows(
        self, source: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "prefetch")
        prefetch.open({"source": source, "batch_size": 2}, transform={"channels": "rgb"}).close()
        assert "raw records are taken for BGR" in caplog.text

    def test_pictures_have_true_colours(self, red: Path, tmp_path: Path) -> None:
        (tmp_path / "feed.yaml").write_text(f"source: {red}\nbatch_size: 4\n")
        for name, arguments in {
            "get.png": ["get", "db", "0", "--out", "get.png"],
            "get.jpg": ["get", "db", "0", "--out", "get.jpg"],
            "inspect.png": ["inspect", "db", "--show", "inspect.png"],
            "mean.png": ["mean", "db", "--show", "mean.png"],
            "show.png": ["show", "feed.yaml", "show.png"],
            "out/00000000.png": ["export", "db", "out"],
        }.items():
            assert 0 == main(arguments)
            assert "red" == colour_of(Path(name)), name

    def test_an_order_that_is_asked_for_wins(self, red: Path) -> None:
        assert 0 == main(["inspect", str(red), "--show", "x.png", "--channels", "bgr"])
        assert "blue" == colour_of(Path("x.png"))

    @pytest.mark.parametrize(
        ("arguments", "made"),
        [
            (["split", "db", "a", "b", "--at", "1"], ["a", "b"]),
            (["merge", "db", "db", "a", "--renumber"], ["a"]),
            (["reencode", "db", "a", "--resize-shorter", "4"], ["a"]),
            (["reencode", "db", "a", "--to", "raw"], ["a"]),
            (["reencode", "db", "a", "--to", "png"], ["a"]),
            (["labels", "db", "a", "--set", "new.txt"], ["a"]),
        ],
    )
    def test_databases_made_of_others_keep_colours_and_names(
        self, red: Path, arguments: list[str], made: list[str]
    ) -> None:
        (red / "classes.tsv").write_text("0\tcat\n1\tdog\n")
        Path("new.txt").write_text("00000000 1\n")
        assert 0 == main(arguments)
        for name in made:
            assert "0\tcat\n1\tdog\n" == Path(name, "classes.tsv").read_text()
            for channels, values in {"rgb": [255, 0, 0], "bgr": [0, 0, 255]}.items():
                with prefetch.open(
                    {"source": name, "batch_size": 1}, transform={"channels": channels}
                ) as feed:
                    assert values == next(iter(feed)).data.numpy()[0, :, 0, 0].tolist()

    def test_image_files_have_an_order_of_their_own(self, red: Path) -> None:
        assert red.is_dir()
        assert 0 == main(["reencode", "db", "a", "--to", "png"])
        assert not Path("a/channels.txt").exists()
        assert 0 == main(["get", "a", "0", "--out", "x.png"])
        assert "red" == colour_of(Path("x.png"))

    def test_databases_of_both_orders_are_not_merged(
        self, red: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_database(
            Path("other"), [(b"x", encode_image(np.zeros((3, 9, 9), np.uint8), label=0))]
        )
        for both in (["db", "other"], ["other", "db"]):
            assert 1 == main(["merge", *both, "a"])
            error = capsys.readouterr().err
            assert f"{red}: its raw records hold RGB" in error
            assert "write rgb into" in error
            assert not Path("a").exists()
        Path("other/channels.txt").write_text("rgb\n")
        assert 0 == main(["merge", "db", "other", "a"])
        assert "rgb\n" == Path("a/channels.txt").read_text()

    def test_an_order_that_not_all_say_is_not_said(self, source: Path, tmp_path: Path) -> None:
        write_database(
            tmp_path / "a", [(b"x", encode_image(np.zeros((1, 2, 2), np.uint8), label=0))]
        )
        (tmp_path / "a" / "channels.txt").write_text("bgr\n")
        made = tmp_path / "made"
        assert 0 == main(["merge", str(source), str(tmp_path / "a"), str(made)])
        assert not (made / "channels.txt").exists()
        assert 0 == main(["reencode", str(tmp_path / "a"), str(made), "--to", "raw", "--force"])
        assert "bgr\n" == (made / "channels.txt").read_text()

    def test_a_conversion_in_the_place_of_another_says_its_own_order(self, red: Path) -> None:
        again = ["convert", "x.npy", "y.npy", "db"]
        assert 0 == main([*again, "--resume"])
        assert "rgb\n" == (red / "channels.txt").read_text()
        assert 0 == main([*again, "--force", "--reverse-channels"])
        assert not (red / "channels.txt").exists()
        assert 0 == main([*again, "--force"])
        assert "rgb\n" == (red / "channels.txt").read_text()


def colour_of(picture: Path) -> str:
    """Return the colour that a picture has more of than of the other."""
    image = cv2.imread(str(picture), cv2.IMREAD_COLOR)
    assert image is not None
    blue, green, red = np.moveaxis(image.astype(int), 2, 0)
    num_red = int(((red > 200) & (blue < 50) & (green < 50)).sum())
    num_blue = int(((blue > 200) & (red < 50) & (green < 50)).sum())
    assert num_red != num_blue
    return "red" if num_red > num_blue else "blue"
