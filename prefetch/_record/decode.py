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
them without a warning. Here libjpeg checks every JPEG, also those that OpenCV decodes, and each of
its warnings is a fault, except those that are known to leave the pixels as they are
(:mod:`prefetch._record.jpeg_markers`).

Nothing is decoded before its header says what it takes (:mod:`prefetch._record.image_format`).
An image may have `FREE_PIXELS`; a larger one has a limit in proportion to the bytes that are there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from prefetch._process.nvtx import ranged
from prefetch._record.faults import BadRecordError, Reason
from prefetch._record.image_format import Canvas, UnknownFormatError, canvas_of, format_of
from prefetch._record.jpeg_markers import (
    JPEG_SIGNATURE,
    JpegHeader,
    lacks_end,
    num_scans,
    odd_marker,
    read_jpeg_header,
    without_harmless,
)
from prefetch._record.jpeg_windows import Splicer, Window
from prefetch._record.png import still_images

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._record.jpeg_windows import Choose, Splice

MAX_PIXELS: Final = 1 << 28
"""An image of more pixels than this is refused before anything is allocated for it."""

FREE_PIXELS: Final = 1 << 24
"""An image of more pixels than this has to have bytes for them."""

MAX_PIXELS_PER_BYTE: Final = 2048
"""How many pixels a byte of such an image may stand for: twice what deflate can make of one."""

_FREE_SCANS: Final = 16
"""Encoders make at most a dozen; each takes a pass over all pixels."""

_SCAN_BYTES: Final = 10
"""The least that a scan takes."""

_KEPT_BYTES = 1 << 25
"""A larger buffer is not kept: one odd image should not hold its memory for the feed's life."""

_LARGE_PIXELS = 1 << 20
"""An image of fewer pixels is decoded whole for a small picture of it."""

_MOST_REMARKS: Final = 8

# What TurboJPEG says of a file that is none of those it answers for, sound or not.
_NO_ANSWER: Final = ("Could not determine", "Unsupported color conversion", "data precision")

_COLORSPACES: Final = {1: ("GRAY", 1), 3: ("BGR", 3), 4: ("CMYK", 4)}


class ImageDecoder:
    """Decodes the encoded images of one thread; not thread-safe.

    Args:
        force_color: Deliver 3 channels from any record.
        force_gray: Deliver 1 channel from any record.
        max_pixels_per_byte: The largest image accepted that has more than `FREE_PIXELS` pixels, in
            pixels for each byte of its file.
        max_pixels: The largest image accepted, in pixels.
        splice: What makes small JPEGs of windows of large ones; None to decode all as a whole.

    Attributes:
        remark: What libjpeg said of the last JPEG that was decoded and leaves its pixels as they
            are; empty where it said nothing.
    """

    def __init__(
        self,
        *,
        force_color: bool = False,
        force_gray: bool = False,
        max_pixels_per_byte: int = MAX_PIXELS_PER_BYTE,
        max_pixels: int = MAX_PIXELS,
        splice: Splice | None = None,
    ) -> None:
        # Here, where a feed is opened, though its records may all be raw: a reader's first import
        # in the middle of a batch meets a process that may have given up its privileges by then,
        # or has no file left to open. They take 0.1 s, too long for `import prefetch`.
        # Where one is missing, no image is decoded, or its decoding says so.
        with suppress(ModuleNotFoundError):
            import cv2  # noqa: F401, PLC0415
            import simplejpeg  # noqa: F401, PLC0415

        self._force_color = force_color
        self._force_gray = force_gray
        self._max_pixels_per_byte = max_pixels_per_byte
        self._max_pixels = max_pixels
        self._free_pixels = min(FREE_PIXELS, max_pixels)
        self._buffer: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._last: tuple[bytes, NDArray[np.uint8]] | None = None
        self._splicer = None if splice is None else Splicer(splice)
        self.remark = ""

    @ranged("decode")
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
        self.remark = ""
        if bytes(data[:3]) == JPEG_SIGNATURE:
            return self._decode_jpeg(data)
        try:
            self._check_canvas(canvas_of(data), len(data))
        except UnknownFormatError:
            raise BadRecordError(Reason.UNDECODABLE, (len(data),)) from None
        if format_of(bytes(data[:16])) == "png":
            self._check_animation(data)
        return self._decode_with_opencv(data)

    def decode_window(self, data: memoryview, choose: Choose) -> Window:
        """Decode an image, or what of it a window needs, if that is less and gives the same pixels.

        Args:
            data: The image file, bytes.
            choose: Is given the image's height and width, and returns top, left, height and width
                of the window. Called once, or, where the image is decoded as a whole, perhaps not.

        Returns:
            Pixels that cover the window, if that lies in the image, and where in it they lie. They
            are overwritten by the next call, of whichever method.

        Raises:
            BadRecordError: As decode() would; but damage outside of what is decoded is noticed only
                in files that have a checksum (:mod:`prefetch._record.jpeg_windows`).
            MemoryError: There is no memory for its pixels.
        """
        if self._splicer is not None and bytes(data[:3]) == JPEG_SIGNATURE:
            header = read_jpeg_header(data)
            if header is not None and header.one_scan and self._has_own_pixels(header):
                self._check_jpeg(data, header)
                window = self._decode_spliced(data, header, choose, self._splicer)
                if window is not None:
                    return window
        pixels = self.decode(data)
        return Window(pixels, 0, 0, pixels.shape[0], pixels.shape[1])

    @ranged("decode window")
    def _decode_spliced(
        self, data: memoryview, header: JpegHeader, choose: Choose, splicer: Splicer
    ) -> Window | None:
        """Decode the part of a JPEG that a window needs; None where the whole is to be decoded."""
        height, width = header.height, header.width
        part = splicer.splice(data, choose(height, width))
        if part is None:
            return None
        self._last = None  # its pixels are overwritten
        self.remark = ""
        # Whatever there is to remark, the whole file says it in its own words.
        _, pixels = self._decode_with_simplejpeg(
            part.file, header._replace(height=part.height, width=part.width)
        )
        if pixels is None or pixels.shape[:2] != (part.height, part.width):
            return None
        return Window(pixels, part.top, part.left, height, width)

    def decode_small(self, data: memoryview, side: int) -> NDArray[np.uint8]:
        """Decode one image for a small picture of it.

        A large JPEG is decoded at a half, a quarter or an eighth of its size, where its shorter
        side stays at least ``side`` long; its pixels are close to averages of the whole's.

        Raises:
            BadRecordError: As decode() would.
            MemoryError: There is no memory for its pixels.
        """
        header = read_jpeg_header(data) if bytes(data[:3]) == JPEG_SIGNATURE else None
        if header is not None and self._has_own_pixels(header):
            self._check_jpeg(data, header)
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
            return None  # decoding the whole says what is wrong
        return small

    def shape(self, data: memoryview) -> tuple[int, int, int]:
        """Return (height, width, channels) of what decode() would return.

        For a JPEG its header tells, unless it has to be turned; anything else is decoded, and where
        decode() is asked for the same image next, that is its answer.

        Raises:
            BadRecordError: As decode() would, but a JPEG is not read beyond its header.
        """
        header = read_jpeg_header(data) if bytes(data[:3]) == JPEG_SIGNATURE else None
        if header is None or not self._has_own_pixels(header):
            image = self.decode(data)
            if image.nbytes <= _KEPT_BYTES:
                self._last = bytes(data), image
            height, width, channels = image.shape
            return height, width, channels
        self._check_jpeg(data, header)
        return header.height, header.width, self._channels(header)

    def _has_own_pixels(self, header: JpegHeader) -> bool:
        """Return whether simplejpeg's pixels are those that OpenCV would give."""
        forced = self._force_color or self._force_gray
        return (
            header.common
            and header.components in (1, 3)
            and min(header.height, header.width) > 0
            and (header.is_upright or not forced)
        )

    def _channels(self, header: JpegHeader) -> int:
        if self._force_color:
            return 3
        return 1 if self._force_gray else header.components

    def _decode_jpeg(self, data: memoryview) -> NDArray[np.uint8]:
        header = read_jpeg_header(data)
        if header is None:
            cut = Reason.IMAGE_CUT if lacks_end(data) else Reason.UNDECODABLE
            raise BadRecordError(cut, (len(data),))
        self._check_jpeg(data, header)
        image = self._ask_libjpeg(data, header)
        if image is not None and self._has_own_pixels(header):
            return image
        if image is None:
            self._check_markers(data, header)
        return self._decode_with_opencv(data)

    def _ask_libjpeg(self, data: memoryview, header: JpegHeader) -> NDArray[np.uint8] | None:
        """Return libjpeg's pixels of a file that it has nothing to say against.

        Returns:
            The pixels, in this thread's buffer; None where TurboJPEG answers for no such file.

        Raises:
            BadRecordError: It reports damage.
        """
        first = remark = ""
        nbytes = len(data)
        for _ in range(_MOST_REMARKS):
            remark, image = self._decode_with_simplejpeg(data, header)
            if image is not None or any(words in remark for words in _NO_ANSWER):
                self.remark = first
                return image
            first = first or remark
            cured = without_harmless(bytes(data), header, remark)
            if cured is None:
                break
            data = memoryview(cured)
            cured_header = read_jpeg_header(data)
            if cured_header is None:  # whatever was cured, it is a JPEG no more
                break
            header = cured_header
        if remark.startswith("Premature end of JPEG"):
            raise BadRecordError(Reason.IMAGE_CUT, (nbytes,))
        raise BadRecordError(Reason.IMAGE_CORRUPT, (nbytes,), detail=remark)

    def _decode_with_simplejpeg(
        self, data: memoryview, header: JpegHeader
    ) -> tuple[str, NDArray[np.uint8] | None]:
        """Return libjpeg's first remark, and the pixels where it has none."""
        import simplejpeg  # noqa: PLC0415 - slow to import

        # A CMYK image is decoded for libjpeg's verdict only: OpenCV converts it its own way.
        channels = 4 if header.components == 4 else self._channels(header)
        colorspace, num_planes = _COLORSPACES.get(channels, _COLORSPACES[3])
        buffer = self._room(header.height * header.width * num_planes)
        try:
            image: NDArray[np.uint8] = simplejpeg.decode_jpeg(
                data, colorspace, buffer=buffer, strict=True
            )
        except ValueError as error:
            remark = str(error)
            if remark.startswith("Insufficient memory"):
                raise MemoryError(remark) from None  # which is no fault of the record
            return remark, None
        return "", image

    def _check_markers(self, data: memoryview, header: JpegHeader) -> None:
        """Refuse a file that libjpeg cannot be asked about, and that is not whole by its markers.

        Raises:
            BadRecordError: It has no end, or a marker among its pixels that has no place there.
        """
        if lacks_end(data):  # OpenCV 4 fills what is missing with grey
            raise BadRecordError(Reason.IMAGE_CUT, (len(data),))
        odd = odd_marker(data, header)
        if odd is not None:
            detail = f"there is a marker 0x{odd:02x} among its pixels"
            raise BadRecordError(Reason.IMAGE_CORRUPT, (len(data),), detail=detail)

    def _check_animation(self, data: memoryview) -> None:
        """Refuse an animated PNG that is damaged; OpenCV would not look.

        Raises:
            BadRecordError: A checksum is wrong, or pixels are missing.
        """
        try:
            stills = still_images(data)
        except ValueError as error:
            numbers = (len(data),)
            raise BadRecordError(Reason.UNDECODABLE, numbers, detail=str(error)) from None
        for still in stills:
            self._decode_with_opencv(memoryview(still))

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

    def _check_jpeg(self, data: memoryview, header: JpegHeader) -> None:
        if header.one_scan and header.height * header.width <= self._free_pixels:
            return  # nearly all
        # Counting is spared where so few bytes cannot hold too many scans.
        most_scans = 1 if header.one_scan else len(data) // _SCAN_BYTES
        most_passes = most_scans // _FREE_SCANS + 1
        if header.height * header.width * most_passes > self._most_pixels(len(data)):
            passes = -(-num_scans(data, header) // _FREE_SCANS)
            self._check_canvas(Canvas(header.height, header.width, passes), len(data))

    def _check_canvas(self, canvas: Canvas, nbytes: int) -> None:
        """Refuse an image that takes too much memory for its bytes.

        Raises:
            BadRecordError: It does.
        """
        most = self._most_pixels(nbytes) // canvas.weight
        if canvas.height * canvas.width > most:
            numbers = canvas.height, canvas.width, most, nbytes
            raise BadRecordError(Reason.IMAGE_TOO_LARGE, numbers)

    def _most_pixels(self, nbytes: int) -> int:
        """Return how many pixels are decoded of a file of so many bytes."""
        return min(max(FREE_PIXELS, nbytes * self._max_pixels_per_byte), self._max_pixels)

    def _room(self, nbytes: int) -> NDArray[np.uint8]:
        """Return at least ``nbytes`` of scratch memory."""
        if nbytes > _KEPT_BYTES:
            return np.empty(nbytes, np.uint8)
        if nbytes > self._buffer.nbytes:
            self._buffer = np.empty(nbytes, np.uint8)
        return self._buffer
