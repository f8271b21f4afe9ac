"""What is done with image files, and in which types of them a feed reads what is written."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import cv2
import numpy as np

from prefetch._errors.printable import counted
from prefetch._kernels.selection import native
from prefetch._record.decode import MAX_PIXELS, MAX_PIXELS_PER_BYTE, ImageDecoder
from prefetch._record.faults import BadRecordError
from prefetch._tools.convert.errors import UNWRITABLE, OptionsError, UnreadableError
from prefetch._tools.convert.inputs.listing import suffix

if TYPE_CHECKING:
    from numpy.typing import NDArray

GIF: Final = "gif"
JPEG: Final = frozenset(("jpg", "jpeg"))
_FEW_COLORS: Final = "a GIF that is written has 256 colours at the most, and others would be lost"


@dataclass(frozen=True, slots=True)
class Treatment:
    """What is done with each image.

    Attributes:
        gray: Store one channel instead of three.
        resize_height: Height in pixels; 0 for the image's own.
        resize_width: Width in pixels; given with the height, or not at all.
        encoded: Store image files instead of pixels.
        encode_type: Their type, a file name's ending such as ``png``; implies ``encoded``. Empty
            for that of each file's own name.
        max_pixels_per_byte: Which images are too large for their bytes; see `ImageDecoder`.
        resize_shorter: Length of the shorter side in pixels, 0 for the image's own; the longer
            one keeps the proportions, rounded down.
        center_crop: Side of the square that is cut out of the middle, after resizing; 0 for all.
        background: Red, green and blue that alpha is blended with; None to drop alpha.
        quality: Of JPEGs that are written, 1 to 100; None for OpenCV's own, 95.
        roi: Give JPEGs restart markers, so that a feed decodes what it needs of them.

    Raises:
        OptionsError: A size is negative or too large, or one of two is missing; or no images of
            the type can be written.
    """

    gray: bool = False
    resize_height: int = 0
    resize_width: int = 0
    encoded: bool = False
    encode_type: str = ""
    max_pixels_per_byte: int = MAX_PIXELS_PER_BYTE
    resize_shorter: int = 0
    center_crop: int = 0
    background: tuple[int, int, int] | None = None
    quality: int | None = None
    roi: bool = False

    def __post_init__(self) -> None:
        if self.resize_shorter and (self.resize_height or self.resize_width):
            raise OptionsError(
                "--resize-shorter keeps an image's proportions; it does not go with "
                "--resize-height and --resize-width"
            )
        if self.quality is not None and not (self.encoded or self.encode_type):
            raise OptionsError("--quality is that of JPEGs that are written; give --encoded too")
        if self.roi:
            self._check_roi()
        if min(self.resize_height, self.resize_width) < 0:
            raise OptionsError(
                f"expected a size in pixels, or 0 for the image's own; "
                f"found {self.resize_height} x {self.resize_width} (height x width)"
            )
        if (self.resize_height > 0) != (self.resize_width > 0):
            given, missing = ("height", "width") if self.resize_height else ("width", "height")
            size = self.resize_height or self.resize_width
            raise OptionsError(
                f"--resize-{given} has no effect without --resize-{missing}: give both, or "
                f"--resize-shorter {size}, which keeps an image's proportions"
            )
        if self.resize_height * self.resize_width > MAX_PIXELS:
            raise OptionsError(
                f"{self.resize_height} x {self.resize_width} (height x width) are more than the "
                f"{MAX_PIXELS} pixels that a feed takes of an image"
            )
        if self.encode_type.lower() == GIF:
            raise OptionsError(f"--encode-type gif: {_FEW_COLORS}; --encode-type png keeps all")
        if self.encode_type and not is_usable(self.encode_type, 1 if self.gray else 3):
            kind = "grey images" if self.gray else "colour images"
            raise OptionsError(
                f"expected a type of image files in which {kind} can be written and that a feed "
                f"reads, such as jpg or png; found {self.encode_type!r}"
            )

    def _check_roi(self) -> None:
        if not (self.encoded or self.encode_type):
            raise OptionsError("--roi is about JPEGs that are stored; give --encoded too")
        if self.encode_type and self.encode_type.lower() not in JPEG:
            raise OptionsError(f"--roi is about JPEGs, and --encode-type is {self.encode_type!r}")
        if native is None:
            raise OptionsError(
                "--roi needs the C kernels, and NumPy's are in use: see RINGFEED_KERNELS, and "
                "whether a C compiler was there when ringfeed was installed"
            )

    @property
    def resizes(self) -> bool:
        """Whether images are resized."""
        return self.resize_height > 0 and self.resize_width > 0

    @property
    def may_keep(self) -> bool:
        """Whether a file's bytes may be stored as they are."""
        return not (
            self.resize_height or self.resize_width or self.resize_shorter or self.center_crop
        )

    def resize_and_crop(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return an image, (height, width, channels), in the size that is asked for.

        Raises:
            UnreadableError: It is smaller than what is to be cut out of it, or becomes too large.
        """
        height, width = image.shape[:2]
        if self.resizes:
            image = np.atleast_3d(cv2.resize(image, (self.resize_width, self.resize_height)))
        elif self.resize_shorter:
            shorter, longer = min(height, width), max(height, width)
            side = self.resize_shorter * longer // shorter
            if self.resize_shorter * side > MAX_PIXELS:
                raise UnreadableError(
                    f"would be {self.resize_shorter} x {side} pixels, more than the {MAX_PIXELS} "
                    f"that a feed takes of an image"
                )
            size = (self.resize_shorter, side) if height > width else (side, self.resize_shorter)
            image = np.atleast_3d(cv2.resize(image, size))
        if self.center_crop:
            height, width = image.shape[:2]
            side = self.center_crop
            if min(height, width) < side:
                raise UnreadableError(
                    f"is {height} x {width} pixels (height x width), and a square of {side} is to "
                    f"be cut out of it; --resize-shorter {side} makes it large enough"
                )
            top, left = (height - side) // 2, (width - side) // 2
            image = np.ascontiguousarray(image[top : top + side, left : left + side])
        return image

    def encoding_of(self, name: str) -> str:
        """Return the type of the file that is stored for an image; empty for pixels.

        Raises:
            UnreadableError: It is that of the name, which is of none that can be written.
        """
        if self.encode_type:
            return self.encode_type.lower()
        if not self.encoded:
            return ""
        ending = suffix(name)
        if not _can_encode(ending):
            raise UnreadableError(
                f"{UNWRITABLE}its name has no ending of image files that can be ({ending!r}); "
                f"--encode-type sets one for all"
            )
        return ending


def fill_background(
    image: NDArray[np.uint8], background: tuple[int, int, int]
) -> NDArray[np.uint8]:
    """Return an image of blue, green, red and alpha blended with a colour, without alpha.

    Args:
        image: uint8 (height, width, 4).
        background: Red, green and blue.

    Returns:
        uint8 (height, width, 3), rounded to the nearest.
    """
    alpha = image[:, :, 3:].astype(np.uint16)
    behind = np.array(background[::-1], np.uint16)
    blended = image[:, :, :3] * alpha + behind * (255 - alpha)
    return ((blended + 127) // 255).astype(np.uint8)


def encode_image(image: NDArray[np.uint8], ending: str, *, quality: int | None = None) -> bytes:
    """Return the file of an image.

    Args:
        image: (height, width, channels), blue first.
        ending: Its type, as a file name ends.
        quality: That of a JPEG, 1 to 100; None for OpenCV's own.

    Raises:
        UnreadableError: OpenCV writes none of that type with so many channels, or it is GIF.
    """
    if ending == GIF:
        raise UnreadableError(
            f"{UNWRITABLE}it has to be encoded anew, and {_FEW_COLORS}; --encode-type png keeps all"
        )
    if not _can_encode(ending):
        raise UnreadableError(
            f"{UNWRITABLE}{ending!r} is no ending of image files that can be, as jpg and png are"
        )
    options = () if quality is None or ending not in JPEG else (cv2.IMWRITE_JPEG_QUALITY, quality)
    is_done, file = cv2.imencode(f".{ending}", image, options)
    if not is_done:
        height, width, channels = np.atleast_3d(image).shape
        raise UnreadableError(
            f"{UNWRITABLE}OpenCV writes no {ending} file of {counted(channels, 'channel')}; "
            f"--encode-type sets another type (the image is {height} x {width} pixels, height x "
            f"width)"
        )
    return bytes(file)


@functools.cache
def is_usable(ending: str, channels: int) -> bool:
    """Return whether a feed reads what is written in a type: try it with an image."""
    if not _can_encode(ending):
        return False
    # JPEG 2000 is not written of less than 32 x 32 pixels.
    image = np.zeros((64, 64, channels), np.uint8)
    try:
        file = encode_image(image, ending)
        return ImageDecoder().decode(memoryview(file)).shape == image.shape
    except (UnreadableError, BadRecordError, cv2.error):
        return False


def _can_encode(ending: str) -> bool:
    """Return whether OpenCV writes images of a type."""
    return bool(ending) and ending.isalnum() and bool(cv2.haveImageWriter(f"image.{ending}"))
