"""What stands beside a database: names of classes, order of channels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from databases import images_fixture

import prefetch
from prefetch._source.sidecar_files import class_names, raw_channel_order
from prefetch.cli import main
from prefetch.testing import fingerprinted_images, write_database

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
