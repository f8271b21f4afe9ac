"""What people see of a feed and its batches: contact sheets, and what a notebook draws."""

from __future__ import annotations

import base64
import re
import threading
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from databases import images_fixture

import prefetch
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from pathlib import Path

source = images_fixture(40)


def opened(source: Path, **options: Any) -> prefetch.Feed:
    return prefetch.open({"source": source, "batch_size": 8, "device": "cpu"} | options)


def pictured(shown: Any) -> Any:
    """Return the picture that a notebook draws, uint8 (height, width, 3), blue first."""
    found = re.search(r'src="data:image/png;base64,([^"]+)"', shown._repr_html_())
    assert found
    return cv2.imdecode(np.frombuffer(base64.b64decode(found[1]), np.uint8), cv2.IMREAD_COLOR)


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_a_notebook_draws_a_batch_and_leaves_it_as_it_is(
    source: Path, device: str, layout: str
) -> None:
    with opened(source, device=device, transform={"layout": layout}) as feed:
        batch = next(iter(feed))
        heads = batch.data.data.head
        assert pictured(batch).shape[0] > 144
        assert "8 of 8 images" in repr(batch.show())
        assert (heads is batch.data.data.head) or device == "simulated"
        batch.release()
        assert "&lt;Batch" in batch._repr_html_()
        assert "<img" not in batch._repr_html_()
        with pytest.raises(prefetch.BatchReleasedError):
            batch.show()


def names_of_readers() -> list[str]:
    """Of readers alone: what starts them may be about to end."""
    names = [thread.name for thread in threading.enumerate()]
    return sorted(name for name in names if name.startswith("ringfeed-reader"))


def test_a_feed_shows_its_epochs_first_images_and_stays_where_it_is(source: Path) -> None:
    with opened(source) as feed:
        batches = iter(feed)
        assert 0 == next(batches).number
        readers = names_of_readers()
        sheet = feed.show(5)
        assert "batch 0 of epoch 0: 5 of 5 images" in repr(sheet)
        assert pictured(feed).shape[0] > 144
        assert readers == names_of_readers()
        assert 1 == next(batches).number
    assert "5 of 5 images" in repr(feed.show(5))


@pytest.mark.parametrize("num", [0, -1])
def test_a_number_of_images_below_1_is_refused(source: Path, num: int) -> None:
    with opened(source) as feed:
        for shown in (feed, next(iter(feed))):
            with pytest.raises(ValueError, match=f"expected 1 image or more, found {num}"):
                shown.show(num)


def test_a_sheet_is_saved(source: Path, tmp_path: Path) -> None:
    with opened(source) as feed:
        sheet = feed.show()
    sheet.save(tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes() == sheet._repr_png_()
    with pytest.raises(ValueError, match="no picture"):
        sheet.save(tmp_path / "x.docx")


def test_a_sheet_is_bounded(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 300, 300), dtype=np.uint8)
    record = encode_image(pixels, label=1)
    write_database(tmp_path / "db", [(b"%03d" % number, record) for number in range(80)])
    with opened(tmp_path / "db", batch_size=80) as feed:
        batch = next(iter(feed))
        assert "24 of 80 images" in repr(batch.show(1000))
        assert len(batch._repr_html_()) < 3_000_000


def test_what_is_shown_is_escaped(tmp_path: Path) -> None:
    record = encode_image(np.zeros((3, 4, 4), np.uint8), label=0)
    write_database(tmp_path / "db", [(b"<script>", record)])
    with opened(tmp_path / "db") as feed:
        html = feed._repr_html_()
        assert html.startswith("<pre>&lt;Feed ")
        assert "<script" not in html


def _seen_colour(source: Path, **options: Any) -> str:
    with opened(source, **options) as feed:
        picture = pictured(next(iter(feed))).reshape(-1, 3).tolist()
    return "blue" if [255, 0, 0] in picture else "red" if [0, 0, 255] in picture else "none"


def test_colours_are_true_whatever_the_order_of_channels(tmp_path: Path) -> None:
    blue = np.zeros((3, 40, 40), np.uint8)
    blue[0] = 255  # as Caffe's tools write it
    write_database(tmp_path / "db", [(b"a", encode_image(blue, label=0))])
    for channels in ("stored", "bgr", "rgb"):
        assert "blue" == _seen_colour(tmp_path / "db", transform={"channels": channels})
    (tmp_path / "db" / "channels.txt").write_text("rgb\n")
    for channels in ("stored", "bgr", "rgb"):
        assert "red" == _seen_colour(tmp_path / "db", transform={"channels": channels})


def test_classes_are_named(source: Path) -> None:
    with opened(source) as feed:
        unnamed = next(iter(feed)).show()._repr_png_()
    (source / "classes.tsv").write_text("0\tcat\n1\tdog\n")
    with opened(source) as feed:
        assert unnamed != next(iter(feed)).show()._repr_png_()


def test_a_bad_record_is_said_in_words(tmp_path: Path) -> None:
    write_database(tmp_path / "bad", [(b"a", b"\xff")])
    with opened(tmp_path / "bad") as feed:
        html = feed._repr_html_()
    assert "<img" not in html
    assert "key &#x27;a&#x27;" in html


def test_a_batch_is_shown_when_its_feed_is_gone(source: Path) -> None:
    feed = opened(source)
    batch = next(iter(feed))
    feed.close()
    del feed
    assert pictured(batch).shape[0] > 144


def fail(*_: Any) -> None:
    raise LookupError("per_batch was called")


def test_a_feed_is_shown_without_per_batch(source: Path) -> None:
    with opened(source, per_batch=fail) as feed:
        assert "8 of 8 images" in repr(feed.show())
        assert pictured(feed).shape[0] > 144


def test_a_feed_without_a_seed_shows_the_order_that_it_serves(source: Path) -> None:
    with opened(source, seed=None, shuffle=True, transform={"dtype": "uint8"}) as feed:
        shown = feed.show()._repr_png_()
        assert shown == feed.show()._repr_png_()
        assert shown == next(iter(feed)).show()._repr_png_()


def test_a_feed_that_was_shared_out_anew_shows_its_share(
    source: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with opened(source, shard="auto", seed=1) as feed:
        feed.reshard(1, 4)
        shown = feed.show()._repr_png_()
        feed.reshard(0, 1)
        assert shown != feed.show()._repr_png_()
    with opened(source, shard={"rank": 1, "world_size": 4}, seed=1) as feed:
        assert shown == feed.show()._repr_png_()
    assert [] == recwarn.list
