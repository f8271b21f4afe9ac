"""Image files as Datums: pixels, or the file's own bytes, as Caffe's convert_imageset stores them.

Pixels are 8-bit, blue first, turned upright as EXIF says, with 3 channels, or 1 for grey: what
OpenCV's ``imread`` gives. So grey files become three equal planes, palettes their colours, alpha is
dropped, CMYK converted and 16 bits cut to 8.

Encoded, a file's bytes are stored as they are where it has the type asked for and no size is asked
for. They are so in Caffe even where a feed could not use them, or not as meant; here three kinds of
file are decoded and encoded anew instead: those of more than 8 bits, those with alpha, and coloured
ones that are to be grey. Grey files that are to be coloured, and turned ones, stay as they are, as
in Caffe; a feed's force_color makes the former coloured and the latter upright.

No GIF is written: OpenCV's have so few colours that pixels differ by 80 of 255, and the OpenCV of
Caffe's time wrote none. GIF files that may stay as they are do.

A JPEG that is cut, or in which libjpeg notices damage, is unreadable here, where OpenCV fills it up
with grey. What damage is noticed in which type is in the guide.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

import cv2
import numpy as np

from prefetch._errors.printable import counted
from prefetch._files.input import check_regular, open_regular
from prefetch._record.decode import ImageDecoder
from prefetch._record.faults import BadRecordError, Reason
from prefetch._record.jpeg_markers import JPEG_SIGNATURE, read_jpeg_header
from prefetch._record.wire import encode_datum
from prefetch._tools.convert.errors import UNWRITABLE, UnreadableError
from prefetch._tools.convert.examples import Example
from prefetch._tools.convert.inputs.keys import image_key
from prefetch._tools.convert.inputs.listing import suffix
from prefetch._tools.convert.inputs.treatment import (
    JPEG,
    Treatment,
    encode_image,
    fill_background,
    is_usable,
)
from prefetch._tools.convert.restart_markers import add_restart_markers
from prefetch._tools.convert.stamps import stamp_of, stamp_of_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from prefetch._tools.convert.inputs.listing import Listing

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_EXIF_MARKS: Final = (b"eXIf", b"EXIF", b"Exif")
# Drafts and databases of before there were others are known by a digest of these.
_FIRST_OPTIONS: Final = frozenset(
    ("gray", "resize_height", "resize_width", "encoded", "encode_type")
)


class ImageExamples:
    """The images of a listing; see `Examples`.

    Args:
        listing: Which.
        treatment: What is done with each.
    """

    chunk = 4

    def __init__(self, listing: Listing, treatment: Treatment) -> None:
        self._root = listing.root
        self._entries = listing.entries
        self._treatment = treatment
        self._decoders = _Decoders(treatment)

    def __len__(self) -> int:
        return len(self._entries)

    def key(self, index: int) -> bytes:
        """Return an image's key."""
        return image_key(index, os.fsencode(self._entries[index].name))

    def name(self, index: int) -> str:
        """Return the path of an image's file."""
        return self._root + self._entries[index].name

    def read(self, index: int) -> Example:
        """Read an image and make it a record.

        Raises:
            UnreadableError: It cannot be read, decoded or encoded.
        """
        name, label = self._entries[index]
        with _unreadable(), open_regular(self._root + name) as opened:
            stamp = stamp_of(os.fstat(opened.fileno()))
            file = opened.read()
        if not file:
            raise UnreadableError("the file is empty")
        try:
            return replace(self._example(name, file, label), stamp=stamp)
        except BadRecordError as bad:
            raise UnreadableError(_why(bad)) from None
        except cv2.error as error:
            raise UnreadableError(f"OpenCV says: {error.err}") from None

    def stamp(self, index: int) -> bytes:
        """Return the stamp of an image's file.

        Raises:
            UnreadableError: It is not there, or no file any more.
        """
        path = self._root + self._entries[index].name
        with _unreadable():
            check_regular(path)
            return stamp_of_all([path])

    def fingerprint(self) -> dict[str, str]:
        """Return digests of the names and labels, and of the treatment."""
        digest = hashlib.sha256()
        for name, label in self._entries:
            digest.update(b"%d %b\0" % (label, os.fsencode(name)))
        # The limit says which files can be read, not what is stored of them.
        given, usual = asdict(self._treatment), asdict(Treatment())
        del given["max_pixels_per_byte"]
        options = {
            name: value
            for name, value in given.items()
            if name in _FIRST_OPTIONS or value != usual[name]
        }
        treatment = json.dumps(options).encode()
        return {
            "names and labels": digest.hexdigest(),
            "options": hashlib.sha256(treatment).hexdigest(),
        }

    def _example(self, name: str, file: bytes, label: int) -> Example:
        treatment = self._treatment
        encoding = treatment.encoding_of(name)
        if encoding and treatment.may_keep and _same_type(suffix(name), encoding):
            shape = self._decoders.shape_as_it_is(file)
            if shape is not None:
                header = read_jpeg_header(memoryview(file))
                example = store_file(file, shape, label, treatment)
                return replace(
                    example,
                    is_turned=header is not None and header.is_turned,
                    remark=self._decoders.as_it_is.remark,
                )
        decoders = self._decoders
        image = decoders.decode_on(file, treatment.background)
        example = make_example(image, label, treatment, encoding, remark=decoders.wanted.remark)
        if treatment.background is None and _has_alpha(file):
            return replace(example, drops_alpha=True)
        return example


def store_file(
    file: bytes, shape: tuple[int, int, int], label: int | None, treatment: Treatment
) -> Example:
    """Return the record of an image file as it is, but for restart markers if they are asked for.

    Args:
        file: The image file.
        shape: (channels, height, width) of its pixels.
        label: An int32; None for a record that has none.
        treatment: What is done with it.
    """
    if not treatment.roi:
        return Example(encode_datum(data=file, label=label, encoded=True), shape, unchanged=True)
    marked = add_restart_markers(file)
    return Example(
        encode_datum(data=marked.file, label=label, encoded=True),
        shape,
        unchanged=marked.file == file,
        whole_because=marked.why_not,
        bytes_added=len(marked.file) - len(file),
    )


def make_example(
    image: NDArray[np.uint8],
    label: int | None,
    treatment: Treatment,
    encoding: str,
    *,
    remark: str = "",
) -> Example:
    """Return the record of an image, resized, cropped and encoded as is asked.

    Args:
        image: uint8 (height, width, channels), blue first.
        label: An int32; None for a record that has none.
        treatment: What is done with it.
        encoding: Type of the image file that is stored; empty for pixels.
        remark: What libjpeg said of its file.

    Raises:
        UnreadableError: It cannot be cropped or encoded so.
    """
    try:
        return _made(image, label, treatment, encoding, remark)
    except cv2.error as error:
        raise UnreadableError(f"OpenCV says: {error.err}") from None


def _made(
    image: NDArray[np.uint8], label: int | None, treatment: Treatment, encoding: str, remark: str
) -> Example:
    image = treatment.resize_and_crop(image)
    height, width, channels = image.shape
    shape = channels, height, width
    if encoding:
        file = encode_image(image, encoding, quality=treatment.quality)
        if not is_usable(encoding, channels):
            raise UnreadableError(
                f"{UNWRITABLE}a {encoding} file that has to be encoded anew does not keep "
                f"{counted(channels, 'channel')}; --encode-type png does"
            )
        return replace(store_file(file, shape, label, treatment), unchanged=False, remark=remark)
    planes = _planes(image)
    value = encode_datum(
        channels=channels,
        height=height,
        width=width,
        data=planes.data,
        label=label,
        encoded=False,
    )
    is_grey = channels == 3 and _has_equal_planes(planes)
    return Example(value, shape, remark=remark, is_grey=is_grey)


@contextmanager
def _unreadable() -> Iterator[None]:
    """Turn what the system says of a file into why an image cannot be read."""
    try:
        yield
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from None
    except ValueError as error:  # a zero byte in the name
        raise UnreadableError(str(error)) from None


@contextmanager
def one_thread_a_call() -> Iterator[None]:
    """Keep OpenCV from using several threads for one image, while several images are made."""
    before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(before)


class _Decoders(threading.local):
    """The decoders of each thread."""

    def __init__(self, treatment: Treatment) -> None:
        gray, most = treatment.gray, treatment.max_pixels_per_byte
        self.wanted = ImageDecoder(force_gray=gray, force_color=not gray, max_pixels_per_byte=most)
        self.as_it_is = ImageDecoder(max_pixels_per_byte=most)
        self.in_color = ImageDecoder(force_color=True, max_pixels_per_byte=most)
        self._usable_channels = (1,) if gray else (1, 3)

    def decode_on(self, file: bytes, background: tuple[int, int, int] | None) -> NDArray[np.uint8]:
        """Return an image as `wanted` decodes it, with alpha blended with a colour if there is one.

        Raises:
            BadRecordError: It cannot be decoded.
        """
        image = self.wanted.decode(memoryview(file))
        if background is None or file[:3] == JPEG_SIGNATURE:
            return image
        try:
            own = self.as_it_is.decode(memoryview(file))
        except BadRecordError as bad:
            if bad.reason is not Reason.IMAGE_DEPTH:
                raise
            if _is_opaque_png(file):
                return image
            raise UnreadableError(
                "has more than 8 bits a channel, and may have alpha: it is not blended with a "
                "background"
            ) from None
        if own.shape[2] != 4:
            return image
        is_marked = any(mark in file for mark in _EXIF_MARKS)
        if is_marked and not np.array_equal(own[:, :, :3], self.in_color.decode(memoryview(file))):
            raise UnreadableError(
                "has alpha, and EXIF asks to turn it: it is not blended with a background"
            )
        blended = fill_background(own, background)
        if image.shape[2] == 3:
            return blended
        return np.atleast_3d(cv2.cvtColor(blended, cv2.COLOR_BGR2GRAY))

    def shape_as_it_is(self, file: bytes) -> tuple[int, int, int] | None:
        """Return the shape that a feed gives a file as it is; None where it is of no use to it."""
        try:
            height, width, channels = self.as_it_is.decode(memoryview(file)).shape
        except BadRecordError:
            return None
        return (channels, height, width) if channels in self._usable_channels else None


def _has_equal_planes(planes: NDArray[np.uint8]) -> bool:
    """Return whether an image of three planes is grey."""
    # A row tells of nearly every coloured image, at a hundredth of the time.
    middle = planes.shape[1] // 2
    return all(
        np.array_equal(one[0], one[1]) and np.array_equal(one[0], one[2])
        for one in (planes[:, middle], planes)
    )


def _planes(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image of (height, width, channels) as (channels, height, width), C-contiguous."""
    height, width, channels = image.shape
    planes = np.empty((channels, height, width), np.uint8)
    cv2.split(image, list(planes))  # a quarter of the time that NumPy takes
    return planes


def _has_alpha(file: bytes) -> bool:
    """Return whether a file is a PNG or WebP that says it has alpha or a transparent colour."""
    if file[:8] == _PNG:
        return file[25:26] in {b"\4", b"\6"} or b"tRNS" in file[: file.find(b"IDAT")]
    if file[:4] == b"RIFF" and file[8:12] == b"WEBP":
        place = {b"VP8X": 20, b"VP8L": 24}.get(file[12:16])
        return place is not None and place < len(file) and bool(file[place] & 0x10)
    return False


def _is_opaque_png(file: bytes) -> bool:
    """Return whether a file is a PNG of grey or colour without alpha or a transparent colour."""
    return file[:8] == _PNG and file[25:26] in {b"\0", b"\2"} and not _has_alpha(file)


def _same_type(one: str, other: str) -> bool:
    return one == other or {one, other} == JPEG


def _why(bad: BadRecordError) -> str:
    """Return why an image cannot be decoded, in the words of a file, not of a record."""
    if bad.reason is Reason.UNDECODABLE:
        detail = f" ({bad.detail})" if bad.detail else ""
        return f"cannot be decoded: it is damaged, or no image of a type that OpenCV reads{detail}"
    return bad.at(0).message()
