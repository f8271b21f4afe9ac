"""Windows of JPEG files, decoded without the rest of the image where restart markers allow it.

Between two restart markers the codes of a JPEG stand for themselves. So the segments that a window
needs, with a header that states their size, are a small JPEG, which the same decoder decodes to the
same pixels: libjpeg knows nothing of windows here, and cannot do anything else for them. The kernel
makes it (``prefetch/_kernels/native/jpeg_restarts.h`` says of which files), a window of a quarter
of the image in a few microseconds.

What is left out is not looked at. Files that ``ringfeed convert --roi`` wrote have a checksum of
their own, which is compared before: where it is wrong, the whole file is decoded, and says what is
the matter with it. In files with markers of other makers, damage outside of a window is not
noticed when that window is decoded; damage in it is, and then the whole file is decoded too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from numpy.typing import NDArray

    Box: TypeAlias = tuple[int, int, int, int]
    Choose: TypeAlias = Callable[[int, int], Box]

_KEPT_BYTES = 1 << 25
"""More memory is not kept: one odd image should not hold it for the feed's life."""


class Splice(Protocol):
    """What makes the small JPEG: ``splice_jpeg`` of the C kernels."""

    def __call__(  # noqa: PLR0917 - as in C
        self,
        data: memoryview,
        top: int,
        left: int,
        height: int,
        width: int,
        to: NDArray[np.uint8],
        /,
    ) -> tuple[int, int, int, int, int] | None:
        """Make a JPEG of the segments that a window needs.

        Args:
            data: The whole file.
            top: The window, in pixels, as the three below.
            left: Its first column.
            height: Its rows.
            width: Its columns.
            to: uint8 (n,), n not less than ``len(data)``; the small file is written there.

        Returns:
            The small file's bytes; and of what it shows top, left, height and width in the image.
            None where the whole file is to be decoded: it has no such markers, or not all of them,
            its checksum is wrong, or the window is not in the image, or needs all of it.
        """


class Window(NamedTuple):
    """Pixels of an image that cover a window of it.

    Attributes:
        pixels: uint8 (rows, columns, channels), C-contiguous, blue first.
        top: Row of the image that ``pixels`` begins with.
        left: Column of the image that ``pixels`` begins with.
        height: Of the whole image, in pixels.
        width: Of the whole image, in pixels.
    """

    pixels: NDArray[np.uint8]
    top: int
    left: int
    height: int
    width: int


class Spliced(NamedTuple):
    """A small JPEG that shows a part of an image.

    Attributes:
        file: Its bytes, until the next one is made.
        top: Row of the image that it begins with.
        left: Column of the image that it begins with.
        height: Its own, in pixels.
        width: Its own, in pixels.
    """

    file: memoryview
    top: int
    left: int
    height: int
    width: int


class Splicer:
    """Makes small JPEGs, one after the other, in memory that is used again; not thread-safe.

    Args:
        splice: What makes them.
    """

    def __init__(self, splice: Splice) -> None:
        self._splice = splice
        self._memory: NDArray[np.uint8] = np.empty(0, np.uint8)

    def splice(self, data: memoryview, box: Box) -> Spliced | None:
        """Return a small JPEG that covers a window; None where the whole is to be decoded.

        Args:
            data: The whole file.
            box: Top, left, height and width of the window.

        Raises:
            MemoryError: There is no memory for it.
        """
        to = self._memory
        if len(data) > to.nbytes:
            to = np.empty(len(data) * 2, np.uint8)
            if to.nbytes <= _KEPT_BYTES:
                self._memory = to
        found = self._splice(data, *box, to)
        if found is None:
            return None
        num_bytes, top, left, height, width = found
        return Spliced(to.data[:num_bytes], top, left, height, width)
