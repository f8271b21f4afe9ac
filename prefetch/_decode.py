"""Encoded images: bytes in, height x width x channels out, with the pixels Caffe would have had.

Caffe decodes with OpenCV and one of three flags; the channels come out blue, green, red.

==============  ===================  =====================================================
option          OpenCV's flag        result
==============  ===================  =====================================================
``force_color`` ``IMREAD_COLOR``     3 channels of 8 bits, turned upright as EXIF says
``force_gray``  ``IMREAD_GRAYSCALE`` 1 channel of 8 bits, turned upright as EXIF says
neither         ``IMREAD_UNCHANGED`` the channels as stored, EXIF's orientation ignored
==============  ===================  =====================================================

A grey value is the codec's own (luma, for a JPEG) and not computed from the colours.

Most JPEGs go through simplejpeg, which writes into a buffer of ours and spares an allocation per
image. Its pixels equal OpenCV's for 8-bit Huffman-coded files of one or three components, whatever
the subsampling, progressive or not (3,840 images compared, OpenCV 5.0 against simplejpeg 1.9; the
tests repeat it on a smaller set). Everything else is OpenCV's: CMYK, turned images, other formats.

A damaged JPEG still decodes, to pixels that are partly grey or shifted, and OpenCV 4 and Caffe use
them without a word. Here libjpeg's own warnings make it a fault: its data ends early, or is corrupt
inside. Bytes after the image's end are no damage.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from prefetch._faults import BadRecordError, Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_PIXELS = 1 << 28
"""An image of more pixels than this is refused before anything is allocated for it."""

_KEPT_BYTES = 1 << 25
"""A larger buffer is not kept: one odd image should not hold its memory for the feed's life."""

_LARGE_PIXELS = 1 << 20
"""An image of fewer pixels is decoded whole for a small picture of it."""

_JPEG_SIGNATURE = b"\xff\xd8\xff"
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

_START_OF_SCAN = 0xDA
_APP1 = 0xE1
# Baseline, extended and progressive frames; Huffman-coded all three.
_HUFFMAN_FRAMES = (0xC0, 0xC1, 0xC2)
# C4, C8 and CC lie in the range of the frame markers and are none.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# These stand alone, without a length: none of them belongs before the first scan.
_LONE_MARKERS = frozenset({0x00, 0x01, *range(0xD0, 0xDA)})
_ORIENTATION_TAG = 0x0112
_UPRIGHT_ENTRY = (3, 1, 1)  # one SHORT, and its value is 1


@dataclass(frozen=True, slots=True)
class JpegHeader:
    """What a JPEG says of itself before its first scan.

    Attributes:
        height: In pixels, as stored; 0 where the file leaves it open.
        width: In pixels, as stored.
        components: 1 grey, 3 colour, 4 CMYK.
        common: Whether it is 8-bit and Huffman-coded, as nearly all files are.
        upright: Whether it is sure that EXIF asks for no turning.
    """

    height: int
    width: int
    components: int
    common: bool
    upright: bool


def read_jpeg_header(data: memoryview) -> JpegHeader | None:
    """Read the marker segments of a JPEG up to its first scan.

    Args:
        data: The whole file, bytes.

    Returns:
        The header; None where anything in it is out of the ordinary, which says nothing about
        whether a decoder would cope with it.
    """
    frame: tuple[int, int, int, int] | None = None
    common = False
    upright = True
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a marker may be preceded by any number of these
            at += 1
            continue
        if marker in _LONE_MARKERS:
            return None
        if marker == _START_OF_SCAN:
            if frame is None:
                return None
            _, height, width, components = frame
            return JpegHeader(height, width, components, common, upright)
        length = data[at + 2] << 8 | data[at + 3]
        segment = data[at + 4 : at + 2 + length]
        if marker in _FRAMES:
            if len(segment) < 6:
                return None
            frame = struct.unpack_from(">BHHB", segment)
            common = marker in _HUFFMAN_FRAMES and frame[0] == 8
        elif marker == _APP1:
            upright = upright and _is_upright(segment)
        at += 2 + length
    return None


def _is_upright(segment: memoryview) -> bool:
    """Return whether an APP1 segment surely asks for no turning; False where in doubt."""
    if bytes(segment[:6]) != b"Exif\0\0":
        return True
    tiff = segment[6:]
    order = {b"II": "<", b"MM": ">"}.get(bytes(tiff[:2]))
    if order is None:
        return False
    try:
        (first,) = struct.unpack_from(order + "I", tiff, 4)
        (num_entries,) = struct.unpack_from(order + "H", tiff, first)
        for entry in range(num_entries):
            tag, *value = struct.unpack_from(order + "HHIH", tiff, first + 2 + 12 * entry)
            if tag == _ORIENTATION_TAG:
                return tuple(value) == _UPRIGHT_ENTRY
    except struct.error:
        return False
    return True


def _lacks_end(data: memoryview) -> bool:
    """Return whether a JPEG ends before its end marker.

    Coded pixels never contain a marker (a 0xFF among them is followed by 0x00), so the last start
    of a scan is the real one, and an end marker that comes after it is too.
    """
    whole = bytes(data)
    return whole.rfind(b"\xff\xd9") <= whole.rfind(b"\xff\xda")


class ImageDecoder:
    """Decodes the encoded images of one thread; not thread-safe.

    Args:
        force_color: Deliver 3 channels whatever is stored.
        force_gray: Deliver 1 channel whatever is stored.
        max_pixels: The largest image accepted, in pixels. It is checked before decoding for JPEG
            and PNG; for other formats OpenCV's own limit holds (2**30 pixels by default).
    """

    def __init__(
        self, *, force_color: bool = False, force_gray: bool = False, max_pixels: int = MAX_PIXELS
    ) -> None:
        # Here, where a feed is opened, though its records may all be raw: a reader's first import
        # in the middle of a batch meets a process that may have given up its privileges by then,
        # or has no file left to open. They take 0.1 s, too long for `import prefetch`.
        import cv2  # noqa: F401, PLC0415
        import simplejpeg  # noqa: F401, PLC0415

        self._force_color = force_color
        self._force_gray = force_gray
        self._max_pixels = max_pixels
        self._buffer: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._last: tuple[bytes, NDArray[np.uint8]] | None = None

    def decode(self, data: memoryview) -> NDArray[np.uint8]:
        """Decode one image.

        Args:
            data: The image file, bytes.

        Returns:
            uint8 (height, width, channels), C-contiguous, blue first. It is overwritten by the
            next call.

        Raises:
            BadRecordError: The data is no image, or one that Caffe refuses or garbles.
            MemoryError: There is no memory for its pixels.
        """
        last, self._last = self._last, None  # the next image takes the buffer
        # By content: at the same address a database may show another record by now.
        if last is not None and len(data) == len(last[0]) and bytes(data) == last[0]:
            return last[1]
        if bytes(data[:3]) == _JPEG_SIGNATURE:
            return self._decode_jpeg(data)
        if bytes(data[:8]) == _PNG_SIGNATURE and len(data) >= 24:
            width, height = struct.unpack_from(">II", data, 16)
            self._check_pixels(height, width)
        return self._decode_with_opencv(data)

    def decode_small(self, data: memoryview, side: int) -> NDArray[np.uint8]:
        """Decode one image for a small picture of it.

        A large JPEG is decoded at a half, a quarter or an eighth of its size, where its shorter
        side stays at least ``side`` long; its pixels are close to averages of the whole's.

        Raises:
            BadRecordError: As decode() would.
            MemoryError: There is no memory for its pixels.
        """
        header = read_jpeg_header(data) if bytes(data[:3]) == _JPEG_SIGNATURE else None
        if header is not None and self._has_own_pixels(header):
            self._check_pixels(header.height, header.width)
            if header.height * header.width >= _LARGE_PIXELS:
                small = self._decode_reduced(data, header, side)
                if small is not None:
                    return small
        return self.decode(data)

    def _decode_reduced(
        self, data: memoryview, header: JpegHeader, side: int
    ) -> NDArray[np.uint8] | None:
        """Return an image at a part of its size; None where libjpeg has anything to remark."""
        import simplejpeg  # noqa: PLC0415 - as below

        colorspace = "GRAY" if self._channels(header) == 1 else "BGR"
        try:
            small: NDArray[np.uint8] = simplejpeg.decode_jpeg(
                data, colorspace, min_height=side, min_width=side, strict=True
            )
        except ValueError:
            return None  # the whole's decoder tells what it is
        return small

    def shape(self, data: memoryview) -> tuple[int, int, int]:
        """Return (height, width, channels) of what decode() would return.

        For a JPEG its header tells, unless it has to be turned; anything else is decoded, and where
        decode() is asked for the same image next, that is its answer.

        Raises:
            BadRecordError: As decode() would, but a JPEG is not read beyond its header.
        """
        header = read_jpeg_header(data) if bytes(data[:3]) == _JPEG_SIGNATURE else None
        if header is None or not self._has_own_pixels(header):
            image = self.decode(data)
            if image.nbytes <= _KEPT_BYTES:
                self._last = bytes(data), image
            height, width, channels = image.shape
            return height, width, channels
        self._check_pixels(header.height, header.width)
        return header.height, header.width, self._channels(header)

    def _has_own_pixels(self, header: JpegHeader) -> bool:
        """Return whether simplejpeg's pixels are those that OpenCV would give."""
        forced = self._force_color or self._force_gray
        return (
            header.common
            and header.components in (1, 3)
            and min(header.height, header.width) > 0
            and (header.upright or not forced)
        )

    def _channels(self, header: JpegHeader) -> int:
        if self._force_color:
            return 3
        return 1 if self._force_gray else header.components

    def _decode_jpeg(self, data: memoryview) -> NDArray[np.uint8]:
        header = read_jpeg_header(data)
        whole = False
        if header is not None:
            self._check_pixels(header.height, header.width)
            if header.common:
                image = self._decode_with_simplejpeg(data, header)
                if image is not None and self._has_own_pixels(header):
                    return image
                whole = image is not None
        try:
            image = self._decode_with_opencv(data)
        except BadRecordError:
            if _lacks_end(data):
                raise BadRecordError(Reason.IMAGE_CUT, (len(data),)) from None
            raise
        if not whole and _lacks_end(data):  # OpenCV 4 fills what is missing with grey
            raise BadRecordError(Reason.IMAGE_CUT, (len(data),))
        return image

    def _decode_with_simplejpeg(
        self, data: memoryview, header: JpegHeader
    ) -> NDArray[np.uint8] | None:
        """Decode into this thread's buffer; None where libjpeg has anything harmless to remark."""
        import simplejpeg  # noqa: PLC0415 - slow to import

        # A CMYK image is decoded for libjpeg's verdict only: OpenCV converts it its own way.
        channels = 4 if header.components == 4 else self._channels(header)
        colorspace = {1: "GRAY", 3: "BGR", 4: "CMYK"}.get(channels)
        if colorspace is None:
            return None
        buffer = self._room(header.height * header.width * channels)
        try:
            image: NDArray[np.uint8] = simplejpeg.decode_jpeg(
                data, colorspace, buffer=buffer, strict=True
            )
        except ValueError as error:
            remark = str(error)
            if remark.startswith("Insufficient memory"):
                raise MemoryError(remark) from None  # which is no fault of the record
            if remark.startswith("Premature end of JPEG"):
                raise BadRecordError(Reason.IMAGE_CUT, (len(data),)) from None
            if remark.startswith("Corrupt JPEG data"):
                raise BadRecordError(Reason.IMAGE_CORRUPT, (len(data),), detail=remark) from None
            return None
        return image

    def _decode_with_opencv(self, data: memoryview) -> NDArray[np.uint8]:
        import cv2  # noqa: PLC0415 - slow to import

        flag = cv2.IMREAD_UNCHANGED
        if self._force_color:
            flag = cv2.IMREAD_COLOR
        elif self._force_gray:
            flag = cv2.IMREAD_GRAYSCALE
        try:
            image = cv2.imdecode(np.frombuffer(data, np.uint8), flag)
        except cv2.error as error:
            if error.code == cv2.Error.StsNoMem:
                raise MemoryError(error.err) from None
            raise BadRecordError(
                Reason.UNDECODABLE, (len(data),), detail=f"OpenCV says: {error.err}"
            ) from None
        if image is None:
            raise BadRecordError(Reason.UNDECODABLE, (len(data),))
        if image.dtype != np.uint8:
            raise BadRecordError(Reason.IMAGE_DEPTH, (8 * image.dtype.itemsize,))
        pixels = np.ascontiguousarray(image, np.uint8)
        return pixels if pixels.ndim == 3 else pixels[:, :, np.newaxis]

    def _check_pixels(self, height: int, width: int) -> None:
        if height * width > self._max_pixels:
            raise BadRecordError(Reason.IMAGE_TOO_LARGE, (height, width, self._max_pixels))

    def _room(self, nbytes: int) -> NDArray[np.uint8]:
        """Return at least ``nbytes`` of scratch memory."""
        if nbytes > _KEPT_BYTES:
            return np.empty(nbytes, np.uint8)
        if nbytes > self._buffer.nbytes:
            self._buffer = np.empty(nbytes, np.uint8)
        return self._buffer
