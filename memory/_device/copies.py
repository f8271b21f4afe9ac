"""What a device moves: bytes between the host's memory and its own, and within its own.

Generic over the device's buffers and streams: those refer to ``Device``, which is made of this, so
that it can stand in a file of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BufferT_contra = TypeVar("BufferT_contra", contravariant=True)
StreamT_contra = TypeVar("StreamT_contra", contravariant=True)


class DeviceCopies(Protocol[BufferT_contra, StreamT_contra]):
    """Work that moves bytes, given to a stream; each call returns before it has run."""

    def copy_to_device(
        self, dst: BufferT_contra, src: NDArray[np.uint8], *, stream: StreamT_contra
    ) -> None:
        """Give a copy from the host to ``stream``; returns before it has run.

        Both ends are kept alive until then. ``src`` must not be changed until an event recorded
        after this call has passed: its bytes are read when the copy runs.

        Args:
            dst: Destination.
            src: uint8, C-contiguous, of exactly ``dst.nbytes`` bytes.
            stream: Runs the copy.

        Raises:
            BufferMismatchError: If sizes, dtype or layout do not fit.
            DeviceMismatchError: If ``dst`` or ``stream`` belongs to another device.
            ClosedError: If the stream or the device is closed.
        """
        ...

    def copy_to_host(
        self, dst: NDArray[np.uint8], src: BufferT_contra, *, stream: StreamT_contra
    ) -> None:
        """Give a copy to the host to ``stream``; returns before it has run.

        Args:
            dst: uint8, C-contiguous, writable, of exactly ``src.nbytes`` bytes. It must be neither
                read nor written until an event recorded after this call has passed.
            src: Source.
            stream: Runs the copy.

        Raises:
            BufferMismatchError: If sizes, dtype or layout do not fit, or ``dst`` is read-only.
            DeviceMismatchError: If ``src`` or ``stream`` belongs to another device.
            ClosedError: If the stream or the device is closed.
        """
        ...

    def copy_on_device(
        self, dst: BufferT_contra, src: BufferT_contra, *, stream: StreamT_contra
    ) -> None:
        """Give a copy within the device's memory to ``stream``; returns before it has run.

        Args:
            dst: Destination; must not partly overlap ``src``.
            src: Source, of the same size.
            stream: Runs the copy.

        Raises:
            BufferMismatchError: If the sizes differ.
            DeviceMismatchError: If a buffer or ``stream`` belongs to another device.
            ClosedError: If the stream or the device is closed.
        """
        ...

    def fill(self, dst: BufferT_contra, value: int, *, stream: StreamT_contra) -> None:
        """Let ``stream`` set every byte of ``dst``; returns before it has run.

        Args:
            dst: Destination.
            value: The byte, 0 to 255.
            stream: Does it.
        """
        ...
