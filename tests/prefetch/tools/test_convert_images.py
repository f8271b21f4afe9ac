"""Image files as Datums: the pixels and bytes that Caffe's convert_imageset stores."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
import simplejpeg

from prefetch._tools.convert.errors import OptionsError, UnreadableError
from prefetch._tools.convert.inputs.images import ImageExamples
from prefetch._tools.convert.inputs.listing import Entry, Listing
from prefetch._tools.convert.inputs.treatment import Treatment
from prefetch.caffe import Datum

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

RNG = np.random.default_rng(0)
COLORS = RNG.integers(0, 256, (12, 20, 3), np.uint8)
COLOR_ENCODED = Treatment(encoded=True)
GRAY_ENCODED = Treatment(gray=True, encoded=True)


def write(path: Path, image: NDArray[Any]) -> bytes:
    assert cv2.imwrite(str(path), image)
    return path.read_bytes()


def palette_png() -> bytes:
    """Return a PNG of 2 x 2 palette indices: red, green, blue, white."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + check

    colors = bytes([255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255])
    rows = zlib.compress(b"\0\0\1" + b"\0\2\3")
    header = struct.pack(">IIBBBBB", 2, 2, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", header), (b"PLTE", colors), (b"IDAT", rows), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def turned_jpeg(orientation: int) -> bytes:
    """Return a JPEG of 12 x 20 pixels (height x width) with an EXIF orientation."""
    _, encoded = cv2.imencode(".jpg", COLORS)
    tiff = b"II*\0\x08\0\0\0" + struct.pack("<HHHII", 1, 0x0112, 3, 1, orientation) + b"\0" * 4
    exif = b"Exif\0\0" + tiff
    segment = b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif
    return encoded.tobytes()[:2] + segment + encoded.tobytes()[2:]


def examples(folder: Path, name: str, treatment: Treatment) -> ImageExamples:
    return ImageExamples(Listing(f"{folder}/", (Entry(name, 5),)), treatment)


def stored(folder: Path, name: str, treatment: Treatment | None = None) -> Datum:
    example = examples(folder, name, treatment or Treatment()).read(0)
    datum = Datum.FromString(example.value)
    assert datum.SerializeToString() == example.value  # byte for byte what protobuf writes
    return datum


def pixels(datum: Datum) -> NDArray[np.uint8]:
    shape = datum.channels, datum.height, datum.width
    return np.frombuffer(datum.data, np.uint8).reshape(shape)


def decoded(datum: Datum) -> NDArray[Any]:
    image = cv2.imdecode(np.frombuffer(datum.data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert image is not None
    return image


def imread(path: Path, *, gray: bool = False) -> NDArray[Any]:
    """Return what Caffe begins with."""
    image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE if gray else cv2.IMREAD_COLOR)
    assert image is not None
    return image


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.bmp", "a.tif", "a.webp", "a.ppm"])
@pytest.mark.parametrize("gray", [False, True])
def test_pixels_are_those_of_imread_plane_by_plane(name: str, gray: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of the test
    write(tmp_path / name, COLORS)
    image = np.atleast_3d(imread(tmp_path / name, gray=gray))
    datum = stored(tmp_path, name, Treatment(gray=gray))
    np.testing.assert_array_equal(image.transpose(2, 0, 1), pixels(datum))
    assert (5, True, False) == (datum.label, datum.HasField("encoded"), datum.encoded)


@pytest.mark.parametrize("gray", [False, True])
def test_both_sizes_resize_as_cv2_does_whatever_the_aspect_ratio(
    gray: bool,  # noqa: FBT001 - a parameter of the test
    tmp_path: Path,
) -> None:
    write(tmp_path / "a.png", COLORS)
    image = cv2.resize(imread(tmp_path / "a.png", gray=gray), (7, 9))
    datum = stored(tmp_path, "a.png", Treatment(gray=gray, resize_height=9, resize_width=7))
    np.testing.assert_array_equal(np.atleast_3d(image).transpose(2, 0, 1), pixels(datum))


def test_a_height_without_a_width_is_refused_and_the_same_size_is_encoded_anew(
    tmp_path: Path,
) -> None:
    with pytest.raises(OptionsError, match="without --resize-width"):
        Treatment(resize_height=6)
    file = write(tmp_path / "a.jpg", COLORS)
    same_size = Treatment(resize_height=12, resize_width=20, encoded=True)
    datum = stored(tmp_path, "a.jpg", same_size)
    assert file != datum.data
    assert (12, 20, 3) == decoded(datum).shape


@pytest.mark.parametrize(
    ("name", "treatment"),
    [
        ("a.png", COLOR_ENCODED),
        ("a.PNG", COLOR_ENCODED),
        ("a.jpg", COLOR_ENCODED),
        ("a.jpeg", Treatment(encode_type="jpg")),
        ("a.jpg", Treatment(encode_type="jpeg")),
        ("a.png", Treatment(encode_type="PNG")),
    ],
)
def test_a_file_of_the_type_asked_for_is_stored_as_it_is(
    name: str, treatment: Treatment, tmp_path: Path
) -> None:
    file = write(tmp_path / name, COLORS)
    datum = stored(tmp_path, name, treatment)
    assert Datum(data=file, label=5, encoded=True) == datum
    assert examples(tmp_path, name, treatment).read(0).unchanged


def test_an_encode_type_implies_encoded_and_encodes_what_imread_gave(tmp_path: Path) -> None:
    write(tmp_path / "a.png", COLORS)
    datum = stored(tmp_path, "a.png", Treatment(encode_type="jpg"))
    assert Datum(data=cv2.imencode(".jpg", COLORS)[1].tobytes(), label=5, encoded=True) == datum


def test_a_resized_image_is_encoded_as_its_name_says(tmp_path: Path) -> None:
    write(tmp_path / "a.png", COLORS)
    treatment = Treatment(encoded=True, resize_height=5, resize_width=4)
    expected = cv2.imencode(".png", cv2.resize(COLORS, (4, 5)))[1].tobytes()
    assert expected == stored(tmp_path, "a.png", treatment).data


@pytest.mark.parametrize("name", ["a.jpg", "a.png"])
def test_gray_gives_one_channel_encoded_or_not(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, COLORS)
    assert 1 == stored(tmp_path, name, Treatment(gray=True)).channels
    datum = stored(tmp_path, name, GRAY_ENCODED)
    assert (12, 20) == decoded(datum).shape


def test_a_gray_file_becomes_three_equal_planes_and_stays_as_it_is_encoded(tmp_path: Path) -> None:
    file = write(tmp_path / "a.png", COLORS[:, :, 0])
    planes = pixels(stored(tmp_path, "a.png"))
    np.testing.assert_array_equal(np.stack([COLORS[:, :, 0]] * 3), planes)
    assert file == stored(tmp_path, "a.png", COLOR_ENCODED).data
    assert file == stored(tmp_path, "a.png", GRAY_ENCODED).data
    assert (1, 12, 20) == examples(tmp_path, "a.png", COLOR_ENCODED).read(0).shape


def test_alpha_is_dropped_encoded_or_not(tmp_path: Path) -> None:
    write(tmp_path / "a.png", np.dstack([COLORS, np.full((12, 20), 77, np.uint8)]))
    np.testing.assert_array_equal(COLORS.transpose(2, 0, 1), pixels(stored(tmp_path, "a.png")))
    datum = stored(tmp_path, "a.png", COLOR_ENCODED)
    np.testing.assert_array_equal(COLORS, decoded(datum))


def test_sixteen_bits_are_cut_to_eight_encoded_or_not(tmp_path: Path) -> None:
    write(tmp_path / "a.png", COLORS.astype(np.uint16) * 257)
    np.testing.assert_array_equal(COLORS.transpose(2, 0, 1), pixels(stored(tmp_path, "a.png")))
    datum = stored(tmp_path, "a.png", COLOR_ENCODED)
    np.testing.assert_array_equal(COLORS, decoded(datum))


def test_a_palette_becomes_its_colors(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(palette_png())
    blue, green, red = pixels(stored(tmp_path, "a.png")).reshape(3, 4).tolist()
    assert [0, 0, 255, 255] == blue
    assert [0, 255, 0, 255] == green
    assert [255, 0, 0, 255] == red
    assert palette_png() == stored(tmp_path, "a.png", COLOR_ENCODED).data


def test_cmyk_becomes_three_channels_and_stays_as_it_is_encoded(tmp_path: Path) -> None:
    ink = np.ascontiguousarray(np.dstack([COLORS, COLORS[:, :, :1]]))
    file = simplejpeg.encode_jpeg(ink, colorspace="CMYK", colorsubsampling="444")
    (tmp_path / "a.jpg").write_bytes(file)
    datum = stored(tmp_path, "a.jpg")
    expected = imread(tmp_path / "a.jpg")
    np.testing.assert_array_equal(expected.transpose(2, 0, 1), pixels(datum))
    assert file == stored(tmp_path, "a.jpg", COLOR_ENCODED).data


@pytest.mark.parametrize(("orientation", "shape"), [(1, (12, 20)), (3, (12, 20)), (6, (20, 12))])
def test_pixels_are_turned_upright_and_encoded_files_keep_their_exif(
    orientation: int, shape: tuple[int, int], tmp_path: Path
) -> None:
    file = turned_jpeg(orientation)
    (tmp_path / "a.jpg").write_bytes(file)
    datum = stored(tmp_path, "a.jpg")
    assert shape == (datum.height, datum.width)
    expected = imread(tmp_path / "a.jpg")
    np.testing.assert_array_equal(expected.transpose(2, 0, 1), pixels(datum))
    assert file == stored(tmp_path, "a.jpg", COLOR_ENCODED).data


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"", "^the file is empty$"),
        (b"no image", "^cannot be decoded: it is damaged, or no image of a type"),
        (cv2.imencode(".jpg", COLORS)[1].tobytes()[:-200], "ends before its end marker"),
    ],
)
@pytest.mark.parametrize("treatment", [Treatment(), COLOR_ENCODED])
def test_an_unreadable_file_says_why(
    content: bytes | None, words: str, treatment: Treatment, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(UnreadableError, match=words):
        examples(tmp_path, "a.jpg", treatment).read(0)


@pytest.mark.parametrize("ending", ["png", "jpg", "tif", "webp", "bmp", "gif", "ppm"])
@pytest.mark.parametrize("share", [0.4, 0.9])
def test_a_file_that_ends_early_is_unreadable_whatever_its_type(
    ending: str, share: float, tmp_path: Path
) -> None:
    file = write(tmp_path / f"a.{ending}", COLORS)
    (tmp_path / f"a.{ending}").write_bytes(file[: int(share * len(file))])
    with pytest.raises(UnreadableError):
        examples(tmp_path, f"a.{ending}", Treatment()).read(0)


def test_a_png_of_which_a_byte_of_its_pixels_has_changed_is_unreadable(tmp_path: Path) -> None:
    file = write(tmp_path / "a.png", COLORS)
    for at in range(file.index(b"IDAT") + 4, file.index(b"IEND") - 4, 29):
        changed = bytearray(file)
        changed[at] ^= 0x40
        (tmp_path / "a.png").write_bytes(changed)
        with pytest.raises(UnreadableError, match="cannot be decoded"):
            examples(tmp_path, "a.png", Treatment()).read(0)


def test_a_name_with_a_zero_byte_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="embedded null"):
        examples(tmp_path, "a\0.jpg", Treatment()).read(0)


def test_encoded_needs_a_name_that_tells_a_type_that_can_be_written(tmp_path: Path) -> None:
    write(tmp_path / "a.png", COLORS).startswith(b"\x89PNG")
    (tmp_path / "a.png").rename(tmp_path / "photo")
    with pytest.raises(UnreadableError, match=r"^cannot be written: its name has no ending"):
        examples(tmp_path, "photo", COLOR_ENCODED).read(0)
    assert 3 == decoded(stored(tmp_path, "photo", Treatment(encode_type="png"))).shape[2]


@pytest.mark.parametrize("encode_type", ["xyz", "../png", ".png", "hdr", "pfm", "pgm"])
def test_an_encode_type_that_makes_no_usable_files_is_refused_at_once(encode_type: str) -> None:
    """Nobody writes the first; what OpenCV makes of the others has no colours of 8 bits."""
    with pytest.raises(OptionsError, match="can be written and that a feed reads"):
        Treatment(encode_type=encode_type)


def test_an_image_that_the_type_of_its_name_cannot_hold_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenCV says so by its result alone, as it did of grey GIFs."""
    monkeypatch.setattr(cv2, "imencode", lambda *_: (False, np.empty(0, np.uint8)))
    cv2.imwrite(str(tmp_path / "a.png"), COLORS)
    with pytest.raises(UnreadableError, match="no png file of 1 channel; --encode-type"):
        examples(tmp_path, "a.png", GRAY_ENCODED).read(0)


@pytest.mark.parametrize(
    "treatment",
    [GRAY_ENCODED, Treatment(encoded=True, resize_height=4, resize_width=4)],
    ids=["gray", "resized"],
)
@pytest.mark.parametrize("name", ["a.gif", "a.GIF"])
def test_a_gif_is_stored_as_it_is_or_as_png_and_never_written(
    name: str, treatment: Treatment, tmp_path: Path
) -> None:
    file = write(tmp_path / name, COLORS)
    assert file == stored(tmp_path, name, COLOR_ENCODED).data
    with pytest.raises(UnreadableError, match=r"256 colours at the most.*--encode-type png"):
        examples(tmp_path, name, treatment).read(0)
    as_png = replace(treatment, encode_type="png")
    expected = stored(tmp_path, name, replace(treatment, encoded=False))
    image = decoded(stored(tmp_path, name, as_png))
    image = image if image.ndim == 3 else image[:, :, np.newaxis]
    np.testing.assert_array_equal(pixels(expected), image.transpose(2, 0, 1))


@pytest.mark.parametrize("encode_type", ["gif", "GIF"])
def test_gif_is_no_type_to_encode_to(encode_type: str) -> None:
    with pytest.raises(OptionsError, match=r"256 colours at the most.*--encode-type png"):
        Treatment(encode_type=encode_type)


def test_the_fingerprint_tells_names_labels_and_treatment_apart() -> None:
    def differing(entry: Entry, treatment: Treatment) -> list[str]:
        base = ImageExamples(Listing("/", (Entry("a", 1),)), Treatment()).fingerprint()
        found = ImageExamples(Listing("/", (entry,)), treatment).fingerprint()
        assert base.keys() == found.keys()
        return [name for name in base if base[name] != found[name]]

    assert [] == differing(Entry("a", 1), Treatment())
    assert ["names and labels"] == differing(Entry("b", 1), Treatment())
    assert ["names and labels"] == differing(Entry("a", 2), Treatment())
    assert ["options"] == differing(Entry("a", 1), Treatment(gray=True))


@pytest.mark.parametrize("gray", [False, True])
def test_jpeg_2000_is_a_type_to_encode_to(gray: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of the test
    image = np.repeat(np.repeat(COLORS, 4, axis=0), 4, axis=1)
    write(tmp_path / "a.png", image)
    datum = stored(tmp_path, "a.png", Treatment(encode_type="jp2", gray=gray))
    assert (48, 80) == decoded(datum).shape[:2]
    write(tmp_path / "small.png", COLORS)
    with pytest.raises(UnreadableError, match=r"no jp2 file .* 12 x 20 pixels"):
        examples(tmp_path, "small.png", Treatment(encode_type="jp2")).read(0)


@pytest.mark.parametrize("ending", ["ppm", "webp"])
def test_a_type_that_has_no_grey_files_is_not_written_where_one_channel_is_asked_for(
    ending: str, tmp_path: Path
) -> None:
    write(tmp_path / f"a.{ending}", COLORS)
    with pytest.raises(UnreadableError, match=r"^cannot be written: .*1 channel; --encode-type"):
        examples(tmp_path, f"a.{ending}", GRAY_ENCODED).read(0)


def test_a_file_that_is_turned_or_remarked_on_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(turned_jpeg(6))
    assert examples(tmp_path, "a.jpg", COLOR_ENCODED).read(0).is_turned
    assert not examples(tmp_path, "a.jpg", Treatment()).read(0).is_turned
    file = cv2.imencode(".jpg", COLORS)[1].tobytes()
    (tmp_path / "b.jpg").write_bytes(file[:-2] + bytes(20) + file[-2:])
    for treatment in (COLOR_ENCODED, Treatment()):
        remarked = examples(tmp_path, "b.jpg", treatment).read(0)
        assert "extraneous bytes before marker 0xd9" in remarked.remark
        assert not remarked.is_turned


def test_the_limit_of_pixels_is_an_option_and_no_part_of_the_fingerprint(tmp_path: Path) -> None:
    write(tmp_path / "a.png", np.zeros((4200, 4200), np.uint8))
    strict = Treatment(max_pixels_per_byte=100)
    with pytest.raises(UnreadableError, match="raise max_pixels_per_byte"):
        examples(tmp_path, "a.png", strict).read(0)
    assert (3, 4200, 4200) == examples(tmp_path, "a.png", Treatment()).read(0).shape
    one, other = (examples(tmp_path, "a.png", how) for how in (strict, Treatment()))
    assert one.fingerprint() == other.fingerprint()
