"""What a device computes: the four operations that a Blob's arithmetic is made of.

Generic over the device's buffers and streams: those refer to ``Device``, which is made of this, so
that it can stand in a file of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

BufferT_contra = TypeVar("BufferT_contra", contravariant=True)
StreamT_contra = TypeVar("StreamT_contra", contravariant=True)


class DeviceMaths(Protocol[BufferT_contra, StreamT_contra]):
    """Caffe's vector operations on float32 and float64, given to a stream."""

    def axpy(
        self,
        y: BufferT_contra,
        x: BufferT_contra,
        *,
        alpha: float,
        dtype: DTypeLike,
        stream: StreamT_contra,
    ) -> None:
        """Let ``stream`` compute y = alpha * x + y; returns before it has run.

        Args:
            y: Changed in place.
            x: Of the same size.
            alpha: Factor, rounded to ``dtype`` first.
            dtype: float32 or float64: of both buffers, and of the arithmetic.
            stream: Does it.

        Raises:
            DtypeError: For any other dtype.
            BufferMismatchError: If the sizes differ or are no multiple of the item's.
        """
        ...

    def scale(
        self, x: BufferT_contra, *, alpha: float, dtype: DTypeLike, stream: StreamT_contra
    ) -> None:
        """Let ``stream`` compute x = alpha * x; returns before it has run.

        Args:
            x: Changed in place.
            alpha: Factor, rounded to ``dtype`` first.
            dtype: float32 or float64.
            stream: Does it.

        Raises:
            DtypeError: For any other dtype.
            BufferMismatchError: If the size is no multiple of the item's.
        """
        ...

    def asum(self, x: BufferT_contra, *, dtype: DTypeLike, stream: StreamT_contra) -> float:
        """Return the sum of absolute values, computed on ``stream``. Blocks until it is there.

        Args:
            x: The values.
            dtype: float32 or float64; the sum is accumulated and rounded in it.
            stream: Does it, after the work given to it before.

        Raises:
            DtypeError: For any other dtype.
            BufferMismatchError: If the size is no multiple of the item's.
            DeviceError: If work before it on the stream failed.
        """
        ...

    def sumsq(self, x: BufferT_contra, *, dtype: DTypeLike, stream: StreamT_contra) -> float:
        """Return the sum of squares; otherwise as ``asum``."""
        ...
