"""Restart markers for JPEGs, without a loss, so that a feed decodes only what a crop needs of them.

A marker after every few MCUs makes stretches that decode each by itself. The coefficients stay
what they are, and so do all segments of the file but for its Huffman tables, which are made anew
for what they code; so the file is as large as before, but for a percent or two. Progressive files
become baseline, which takes more bytes and a fraction of the time to decode. Every new file is
decoded beside the old one, and taken only where no pixel differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from prefetch._kernels.contract import Recoding
from prefetch._kernels.selection import native
from prefetch._record.decode import ImageDecoder
from prefetch._record.faults import BadRecordError
from prefetch._record.jpeg_markers import JPEG_SIGNATURE, read_jpeg_header

if TYPE_CHECKING:
    from numpy.typing import NDArray

MARKED: Final = ""
"""Stands for the reason of a file that has markers."""

NO_JPEG: Final = "no JPEG"
DAMAGED: Final = "damaged, or built as few are"
_REMARKED: Final = "libjpeg remarks on it"
_DIFFERENT: Final = "its pixels would differ"
_REASONS: Final = {
    Recoding.NO_HUFFMAN_FRAME: "not Huffman-coded, or not of 8 bits and 1 or 3 channels",
    Recoding.BYTES_BEHIND_END: "it goes on behind its end marker",
    Recoding.UNUSUAL_FILE: DAMAGED,
}

_LARGE_PIXELS: Final = 1 << 20
# How many MCUs may lie between two markers; the first that makes the file hardly larger. Random
# crops decode soonest with 2 at 500 x 375 pixels (with 4 in 1.1 of the time, with 8 in 1.25) and
# with 4 at 1280 x 960, whose crops are larger too (with 2 in 1.04, with 8 in 1.06).
_FEW_MCUS: Final = (2, 4, 8, 1 << 16)
_MORE_MCUS: Final = (4, 8, 1 << 16)
_MOST_GROWTH: Final = 1.05


class Marked(NamedTuple):
    """A file to store, and whether it has restart markers.

    Attributes:
        file: The file, with markers where that is possible, else as it was.
        why_not: Why it has none; `MARKED` where it has.
    """

    file: bytes
    why_not: str


def add_restart_markers(file: bytes) -> Marked:
    """Return an image file with restart markers, if it is a JPEG that can have any.

    Args:
        file: An image file of any type.

    Raises:
        MemoryError: There is no memory for its pixels.
    """
    assert native is not None  # Treatment refuses --roi where it is not there
    header = read_jpeg_header(memoryview(file)) if file[:3] == JPEG_SIGNATURE else None
    if header is None:
        return Marked(file, NO_JPEG)
    found = native.find_restarts(file)
    if found is not None and found[1]:
        return Marked(file, MARKED)
    is_large = header.height * header.width >= _LARGE_PIXELS
    new: bytes | int = 0
    for most in _MORE_MCUS if is_large else _FEW_MCUS:
        new = native.add_restarts(file, most)
        if isinstance(new, int) or len(new) <= _MOST_GROWTH * len(file):
            break
    if isinstance(new, int):
        return Marked(file, _REASONS[Recoding(new)])
    for force_gray in (False, True):  # grey values are the file's own, and not made of colours
        before, after = (_pixels(one, force_gray=force_gray) for one in (file, new))
        if before is None:
            return Marked(file, _REMARKED)
        if after is None or not np.array_equal(before, after):
            return Marked(file, _DIFFERENT)
    return Marked(new, MARKED)


def _pixels(file: bytes, *, force_gray: bool) -> NDArray[np.uint8] | None:
    """Return a file's pixels; None where libjpeg has anything to remark."""
    decoder = ImageDecoder(force_gray=force_gray)
    try:
        pixels = decoder.decode(memoryview(file))
    except BadRecordError:
        return None
    return None if decoder.remark else pixels
