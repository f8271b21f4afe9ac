"""What is done with image files, and in which types of them a feed reads what is written."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import cv2
import numpy as np

from prefetch._errors.printable import counted
from prefetch._record.decode import MAX_PIXELS, MAX_PIXELS_PER_BYTE, ImageDecoder
from prefetch._record.faults import BadRecordError
from prefetch._tools.convert.errors import UNWRITABLE, OptionsError, UnreadableError
from prefetch._tools.convert.inputs.listing import suffix

if TYPE_CHECKING:
    from numpy.typing import NDArray

GIF: Final = "gif"
_FEW_COLORS: Final = "a GIF that is written has 256 colours at the most, and others would be lost"


@dataclass(frozen=True, slots=True)
class Treatment:
    """What is done with each image.

    Attributes:
        gray: Store one channel instead of three.
        resize_height: Height in pixels; 0 for the image's own.
        resize_width: Width in pixels. Images are resized only where both are given, as in Caffe.
        encoded: Store image files instead of pixels.
        encode_type: Their type, a file name's ending such as ``png``; implies ``encoded``. Empty
            for that of each file's own name.
        max_pixels_per_byte: Which images are too large for their bytes; see `ImageDecoder`.

    Raises:
        OptionsError: A size is negative or too large, or no images of the type can be written.
    """

    gray: bool = False
    resize_height: int = 0
    resize_width: int = 0
    encoded: bool = False
    encode_type: str = ""
    max_pixels_per_byte: int = MAX_PIXELS_PER_BYTE

    def __post_init__(self) -> None:
        if min(self.resize_height, self.resize_width) < 0:
            raise OptionsError(
                f"expected a size in pixels, or 0 for the image's own; "
                f"found {self.resize_height} x {self.resize_width} (height x width)"
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

    @property
    def resizes(self) -> bool:
        """Whether images are resized."""
        return self.resize_height > 0 and self.resize_width > 0

    @property
    def may_keep(self) -> bool:
        """Whether a file's bytes may be stored as they are."""
        return self.resize_height == self.resize_width == 0

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


def encode_image(image: NDArray[np.uint8], ending: str) -> bytes:
    """Return the file of an image.

    Raises:
        UnreadableError: OpenCV writes none of that type with so many channels, or it is GIF.
    """
    if ending == GIF:
        raise UnreadableError(
            f"{UNWRITABLE}it has to be encoded anew, and {_FEW_COLORS}; --encode-type png keeps all"
        )
    is_done, file = cv2.imencode(f".{ending}", image)
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
