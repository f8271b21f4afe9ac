"""Contact sheets: true colours, whole pixels, labels and keys; and what is put on them."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

import prefetch
from prefetch._config.load import load_config
from prefetch._record.decode import ImageDecoder
from prefetch._record.wire import encode_datum
from prefetch._report.contact_sheet import (
    Tile,
    can_write,
    contact_sheet,
    make_tile,
    stack_sheets,
    write_picture,
)
from prefetch._tools.preview import MOST_TILES, batch_sheet, record_sheet, view_batches
from prefetch._transform.mean_file import load_mean
from prefetch.testing import encode_image, example_database, fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

BLUE, GREEN, RED = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def tile(pixels: NDArray[Any] | None, **words: Any) -> Tile:
    return Tile(pixels, **{"title": "label 1", "caption": "key", **words})


def plane(colour: tuple[int, ...], size: int = 6) -> NDArray[np.uint8]:
    """Return (channels, size, size) with one value a channel."""
    return np.broadcast_to(
        np.array(colour, np.uint8)[:, np.newaxis, np.newaxis], (len(colour), size, size)
    )


def count(sheet: NDArray[np.uint8], colour: tuple[int, int, int]) -> int:
    return int((sheet == np.array(colour, np.uint8)).all(axis=2).sum())


def draw(*tiles: Tile, **options: Any) -> NDArray[np.uint8]:
    return contact_sheet(tiles, heading="heading", **options)


# --- colours ---------------------------------------------------------------------------------


def test_stored_blue_is_shown_as_blue() -> None:
    sheet = draw(tile(plane(BLUE)))
    assert 144 * 144 == count(sheet, BLUE)
    assert 0 == count(sheet, RED)


def test_red_first_turns_the_colours_around() -> None:
    assert 144 * 144 == count(draw(tile(plane(BLUE)), blue_first=False), RED)


def test_a_fourth_channel_is_transparency_and_left_out() -> None:
    assert 144 * 144 == count(draw(tile(plane((*GREEN, 0)))), GREEN)


def test_two_channels_stand_side_by_side_in_grey() -> None:
    sheet = draw(tile(plane((255, 100))))
    assert 72 * 72 == count(sheet, (100, 100, 100))


def test_a_small_image_is_enlarged_by_a_whole_factor_without_smoothing() -> None:
    pixels = np.array([[[0, 200], [90, 255]]], np.uint8)
    sheet = draw(tile(pixels))
    assert [72 * 72] * 3 == [count(sheet, (value,) * 3) for value in (0, 200, 90)]


def test_an_image_of_any_size_fits() -> None:
    tall, tiny, wide = (
        np.full((1, *shape), 90, np.uint8) for shape in ((900, 2), (1, 1), (3, 700))
    )
    alone = draw(tile(plane(RED)))
    assert alone.shape[0] == draw(tile(tall)).shape[0] == draw(tile(tiny)).shape[0]
    assert alone.shape == draw(tile(wide)).shape


def test_dark_values_are_stretched_and_the_sheet_is_a_line_longer() -> None:
    dark = draw(tile(np.array([[[0, 16]]], np.uint8)))
    bright = draw(tile(np.array([[[0, 255]]], np.uint8)))
    assert 72 * 72 <= count(dark, (255, 255, 255))
    assert dark.shape[0] == bright.shape[0] + 20


def test_negative_values_are_stretched_and_what_is_no_number_is_black() -> None:
    pixels = np.array([[[-1.0, 3.0], [np.nan, np.inf]]], np.float32)
    sheet = draw(tile(pixels))
    assert 2 * 72 * 72 == count(sheet, (0, 0, 0))


@pytest.mark.parametrize("value", [0.0, -3.0, 200.0, np.nan])
def test_an_image_of_one_value_is_drawn(value: float) -> None:
    assert draw(tile(np.full((1, 3, 3), value, np.float32))).size


# --- words -----------------------------------------------------------------------------------


def test_words_change_the_sheet_and_nothing_is_drawn_outside_of_its_tile() -> None:
    plain = draw(tile(plane(RED), caption=""), tile(plane(RED), caption=""))
    long = draw(tile(plane(RED), caption="0" * 400), tile(plane(RED), caption=""))
    changed = (plain != long).any(axis=(0, 2)).nonzero()[0]
    assert 24 + 8 <= changed.min()
    assert changed.max() < 24 + 160


def test_a_key_in_any_script_is_drawn() -> None:
    assert draw(tile(plane(RED), caption="жук/犬 \x00\n.jpg")).size


def test_what_no_font_has_is_drawn_as_its_escape() -> None:
    words = {"title": "a\tb", "caption": "\r\x1b\n\x00 \udcff"}
    escaped = {"title": r"a\tb", "caption": r"\r\x1b\n\x00 \xff"}
    sheet = contact_sheet([tile(plane(RED), **words)], heading="x\ty\udcff", notes=["\n"])
    expected = contact_sheet([tile(plane(RED), **escaped)], heading=r"x\ty\xff", notes=[r"\n"])
    np.testing.assert_array_equal(expected, sheet)


def differing(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> list[tuple[int, int]]:
    """Return first and last row, then first and last column, where two sheets differ."""
    return [(int(at.min()), int(at.max())) for at in (one != other).any(axis=2).nonzero()]


def test_heading_notes_label_key_and_alarm_are_drawn_each_at_its_place() -> None:
    def drawn(heading: str = "", note: str = "", **words: str) -> NDArray[np.uint8]:
        cell = tile(plane(RED), **{"title": "", "caption": "", "alarm": " ", **words})
        return contact_sheet([cell], heading=heading, notes=[note])

    places = [
        differing(drawn(), drawn(**{name: "89"}))
        for name in ("heading", "note", "title", "alarm", "caption")
    ]
    rows = [place[0] for place in places]
    assert rows[0][1] < rows[1][0]  # the heading above the note, and so on
    assert rows[1][1] < rows[2][0]
    assert rows[2][1] < rows[4][0]
    columns = [place[1] for place in places]
    assert columns[2][1] < columns[3][0]  # the alarm beside the label
    assert columns[3][1] < 24 + 160


def test_an_alarm_is_framed_in_red() -> None:
    frame = (48, 48, 205)
    assert count(draw(tile(None, alarm="image cut")), frame) > 4 * 160
    assert 0 == count(draw(tile(None)), frame)


def test_a_wide_heading_widens_the_sheet() -> None:
    assert (
        contact_sheet([tile(None)], heading="x" * 200).shape[1]
        > contact_sheet([tile(None)], heading="x").shape[1]
    )


# --- files -----------------------------------------------------------------------------------


def test_a_written_picture_holds_the_sheet(tmp_path: Path) -> None:
    sheet = draw(tile(plane(BLUE)))
    file = tmp_path / "sheet.png"
    write_picture(file, sheet)
    assert sheet.tobytes() == np.asarray(cv2.imread(str(file))).tobytes()


@pytest.mark.parametrize("name", ["sheet", "sheet.txt", ".png.gz", "sheet.", "a.\udcf6"])
def test_a_name_that_is_no_pictures_is_refused(tmp_path: Path, name: str) -> None:
    assert not can_write(tmp_path / name)
    with pytest.raises(ValueError, match=r"end it in \.png"):
        write_picture(tmp_path / name, draw(tile(None)))
    assert [] == list(tmp_path.iterdir())


def test_sheets_of_unequal_width_are_put_one_beneath_the_other() -> None:
    narrow, wide = draw(tile(plane(RED))), draw(*[tile(plane(BLUE))] * 9)
    whole = stack_sheets([narrow, wide])
    assert (len(narrow) + len(wide), wide.shape[1], 3) == whole.shape
    assert (count(narrow, RED), count(wide, BLUE)) == (count(whole, RED), count(whole, BLUE))


# --- records ---------------------------------------------------------------------------------


def test_records_are_shown_as_stored_bad_ones_with_an_alarm(tmp_path: Path) -> None:
    data = cv2.imencode(".png", np.full((6, 6, 3), GREEN, np.uint8))[1].tobytes()
    records = [
        (b"0", encode_image(plane(BLUE), label=0)),
        (b"1", encode_datum(data=data, label=1, encoded=True)),
        (b"\xff", b"\xff"),
        (b"3", encode_image(np.full((24, 32, 3), 40, np.uint8), label=3)),
        (b"4", encode_datum(data=data[:50], label=1, encoded=True)),
    ]
    sheet = record_sheet(write_database(tmp_path / "lmdb", records))
    assert (144 * 144, 144 * 144) == (count(sheet, BLUE), count(sheet, GREEN))
    assert count(sheet, (40, 40, 40)) == 128 * 96  # height x width x channels, seen as that
    assert count(sheet, (48, 48, 205)) > 3 * 4 * 160


def words_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """Collect the words of every image that is drawn: title, caption, alarm."""
    found: list[tuple[str, str, str]] = []

    def collect(tiles: list[Tile], **words: Any) -> NDArray[np.uint8]:
        found.extend((one.title, one.caption, one.alarm) for one in tiles)
        found.append((words["heading"], *words["notes"][-1:], ""))
        return np.zeros((1, 1, 3), np.uint8)

    monkeypatch.setattr("prefetch._tools.preview.contact_sheet", collect)
    return found


def test_each_record_has_its_own_label_and_key_and_what_is_wrong_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jpeg = cv2.imencode(".jpg", np.zeros((6, 6, 3), np.uint8))[1].tobytes()
    records = [
        (b"0", encode_image(plane(BLUE), label=7)),
        (b"1\t\xff", encode_image(plane(RED), label=-3)),
        (rb"2\xff", b"\xff"),
        (b"3", encode_datum(data=jpeg[:-9], label=2**31 - 1, encoded=True)),
        (b"4", encode_image(np.zeros((24, 32, 3), np.uint8), label=0)),
    ]
    words = words_of(monkeypatch)
    folder = write_database(tmp_path / "lmdb", records)
    record_sheet(folder)
    assert [
        ("label 7", "0", ""),
        ("label -3", r"1\t\xff", ""),
        ("no Datum", r"2\\xff", "truncated"),
        ("label 2147483647", "3", "image cut"),
        ("label 0", "4", "looks HWC"),
    ] == words[:5]
    heading, note, _ = words[5]
    assert str(folder) == heading
    assert note.endswith("the first three channels are shown as blue, green, red")
    record_sheet(folder, blue_first=False)
    assert words[-1][1].endswith("are shown as red, green, blue")


def test_each_image_of_a_batch_has_its_own_label_and_key(
    noise: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"source": noise, "batch_size": 9, "shuffle": True, "label_dtype": "float32"}
    words = words_of(monkeypatch)
    (view,) = view_batches(load_config(options), 1)
    batch_sheet(view)
    assert [f"{int(title.removeprefix('label ')):04d}" for title, _, _ in words[:9]] == [
        caption for _, caption, _ in words[:9]
    ]
    assert len(set(words[:9])) == 9
    assert words[9][0] == "batch 0 of epoch 0: 9 x 3 x 9 x 9 float32"


def test_no_more_records_are_shown_than_asked_for(tmp_path: Path) -> None:
    folder = write_database(
        tmp_path / "lmdb", ((b"%04d" % n, encode_image(plane(BLUE), label=n)) for n in range(500))
    )
    shown = count(record_sheet(folder, num_records=7), BLUE)
    assert 7 * 144 * 144 == shown
    assert np.array_equal(record_sheet(folder, num_records=7), record_sheet(folder, num_records=7))


# --- batches ---------------------------------------------------------------------------------


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    return write_database(
        tmp_path / "lmdb",
        (
            (b"%04d" % n, encode_image(rng.integers(0, 256, (3, 9, 9), np.uint8), label=n))
            for n in range(20)
        ),
    )


@pytest.mark.parametrize(
    "transform",
    [
        {"mean_value": [10, 20, 30], "scale": 0.25},
        {"mean_file": True, "scale": 0.5},
        {"channels": "rgb", "layout": "nhwc", "dtype": "float16"},
        {"dtype": "uint8"},
    ],
    ids=["mean values", "mean file", "turned around", "bytes"],
)
def test_a_batch_is_shown_exactly_as_it_is_before_mean_and_scale(
    noise: Path, tmp_path: Path, transform: dict[str, Any]
) -> None:
    if transform.get("mean_file"):
        np.save(tmp_path / "mean.npy", np.full((3, 9, 9), 5, np.float32))
        transform = transform | {"mean_file": tmp_path / "mean.npy"}
    config = load_config(
        {
            "source": noise,
            "batch_size": 8,
            "shuffle": True,
            "transform": {"crop_size": 6, "mirror": True, **transform},
        }
    )
    means: Any = transform.get("mean_value", 0)
    if "mean_file" in transform:
        means = load_mean(transform["mean_file"])[:, :1, :1].ravel()
    with prefetch.open(config) as feed:
        for view, batch in zip(view_batches(config, 2), feed, strict=False):
            values = batch.data.numpy().astype(np.float64)
            if config.transform.layout == "nhwc":
                values = values.transpose(0, 3, 1, 2)
            images = values / transform.get("scale", 1) + np.reshape(means, (-1, 1, 1))
            assert np.array_equal(images, view.images)
            assert batch.keys == view.keys
            assert {"label": batch.label.numpy().tolist()} == view.labels
            assert (values.min(), values.max()) == (view.least, view.most)
            assert values.mean() == pytest.approx(view.mean)
            assert batch.data.shape == view.shape


def test_a_seed_of_null_draws_the_same_for_picture_and_numbers(noise: Path) -> None:
    transform = {"crop_size": 4, "mirror": True}
    config = load_config(
        {"source": noise, "seed": None, "shuffle": True, "batch_size": 6, "transform": transform}
    )
    (view,) = view_batches(config, 1)
    assert (view.least, view.most) == (view.images.min(), view.images.max())
    assert view.images.mean() == pytest.approx(view.mean)
    assert view.images.std() == pytest.approx(view.deviation)


def test_batches_go_on_into_the_next_epoch(noise: Path) -> None:
    config = load_config({"source": noise, "batch_size": 15, "epochs": 1})
    views = list(view_batches(config, 3))
    assert [(0, 0), (0, 1), (1, 0)] == [(view.epoch, view.number) for view in views]


def test_an_epoch_without_batches_is_an_error(noise: Path) -> None:
    config = load_config({"source": noise, "batch_size": 100, "last_batch": "drop"})
    with (
        pytest.warns(prefetch.PrefetchWarning),
        pytest.raises(prefetch.EmptyDatabaseError, match="batch_size 100"),
    ):
        list(view_batches(config, 1))


def test_nothing_is_put_into_the_quarantine(noise: Path, tmp_path: Path) -> None:
    config = load_config(
        {"source": noise, "on_bad_record": "quarantine", "quarantine": tmp_path / "bad"}
    )
    assert 1 == len(list(view_batches(config, 1)))
    assert not (tmp_path / "bad").exists()


def test_of_a_large_batch_the_first_are_drawn(tmp_path: Path) -> None:
    folder = write_database(tmp_path / "lmdb", fingerprinted_images(MOST_TILES + 40, (1, 2, 2)))
    (view,) = view_batches(load_config({"source": folder, "batch_size": MOST_TILES + 30}), 1)
    assert MOST_TILES == len(view.images)
    assert MOST_TILES + 30 == len(view.keys)
    assert batch_sheet(view).size


def test_a_feed_without_labels_is_drawn() -> None:
    with example_database() as path:
        (view,) = view_batches(load_config({"source": path, "labels": False}), 1)
    assert view.labels == {}
    assert batch_sheet(view, notes=("a note",)).size


def test_a_sheet_of_some_records_is_drawn_from_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(240, (3, 12, 12)))
    shown: list[str] = []

    def collect(tiles: list[Tile], **_: Any) -> NDArray[np.uint8]:
        shown.extend(tile.caption for tile in tiles)
        return np.zeros((1, 1, 3), np.uint8)

    monkeypatch.setattr("prefetch._tools.preview.contact_sheet", collect)
    record_sheet(source, num_records=60)
    places = [int(caption) for caption in shown]
    assert places == sorted(places)
    assert len(places) > 40
    assert min(places) < 24
    assert max(places) >= 216


# --- large images ----------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".jpg", ".png"])
def test_of_large_images_no_more_than_one_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    size = 1536
    rows = np.repeat(np.arange(size) // 8, size).reshape(size, size).astype(np.uint8)
    data = cv2.imencode(ending, cv2.merge([rows, rows, 255 - rows]))[1].tobytes()
    folder = write_database(
        tmp_path / "lmdb",
        ((b"%d" % n, encode_datum(data=data, label=n, encoded=True)) for n in range(6)),
    )
    held: list[NDArray[Any]] = []

    def collect(tiles: list[Tile], **_: Any) -> NDArray[np.uint8]:
        held.extend(tile.pixels for tile in tiles if tile.pixels is not None)
        return contact_sheet(tiles, heading="")

    monkeypatch.setattr("prefetch._tools.preview.contact_sheet", collect)
    tracemalloc.start()
    try:
        sheet = record_sheet(folder)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert [pixels.shape for pixels in held] == 6 * [(3, 144, 144)]
    assert peak_bytes < 3 * 3 * size * size + sheet.nbytes
    for pixels in held:
        assert np.allclose(pixels[:, 0, 70], [0, 0, 255], atol=3)
        assert np.allclose(pixels[:, -1, 70], [191, 191, 64], atol=3)


def test_an_image_is_decoded_once_and_only_where_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = cv2.imencode(".png", np.zeros((6, 6, 3), np.uint8))[1].tobytes()
    folder = write_database(
        tmp_path / "lmdb",
        ((b"%02d" % n, encode_datum(data=data, label=n, encoded=True)) for n in range(40)),
    )
    decoded: list[int] = []
    decode = ImageDecoder.decode

    def count_decoded(self: ImageDecoder, image: memoryview) -> NDArray[np.uint8]:
        decoded.append(len(image))
        return decode(self, image)

    monkeypatch.setattr(ImageDecoder, "decode", count_decoded)
    record_sheet(folder, num_records=5)

    assert len(decoded) == 5


def test_a_large_jpeg_that_is_cut_is_told_as_a_small_one_is(tmp_path: Path) -> None:
    data = cv2.imencode(".jpg", np.zeros((1200, 1200, 3), np.uint8))[1].tobytes()
    record = encode_datum(data=data[: len(data) // 2], label=0, encoded=True)
    sheet = record_sheet(write_database(tmp_path / "lmdb", [(b"0", record)]))

    assert count(sheet, (48, 48, 205)) > 4 * 160


def test_a_large_image_is_stretched_by_the_values_of_the_whole_of_it() -> None:
    pixels = np.zeros((1, 300, 300), np.float32)
    pixels[0, 0, 0], pixels[0, 299, 299], pixels[0, 150, 150] = -5.0, 7.0, np.nan

    tile = make_tile(pixels, "", "")

    assert tile.values == (-5.0, 7.0)
    assert tile.pixels is not None
    assert tile.pixels.shape == (1, 144, 144)
    assert np.isfinite(tile.pixels).all()
