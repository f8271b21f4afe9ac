"""Streams of a GPU: our own, which nothing else orders, and those of the caller's libraries.

A ``CudaStream`` is a handle. What has to outlive it, CUDA's stream and what its queued work holds,
is its ``StreamState``. While there is such work a waiter thread holds the state, and releases
what has run; when a handle of ours is collected open, `DeferredFree` ends the stream.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from memory._device.closeable import Closeable, warn_collected_open
from memory._device.event import HostEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory._cuda.event import CudaEvent
    from memory._cuda.stream_state import StreamState
    from memory._device.device import Device
    from memory._device.event import Event

_logger = logging.getLogger("memory")


class CudaStream(Closeable):
    """A stream of a GPU; see ``Stream``. Made by ``CudaDevice.make_stream``, or adopted.

    Two adopted streams are equal if they are the same stream of CUDA's.
    """

    def __init__(
        self, state: StreamState, *, device: Device, forget: Callable[[CudaStream], None]
    ) -> None:
        self.state = state
        self._device = device
        self._forget = forget

    @property
    def handle(self) -> int:
        """CUDA's handle; 0 is the null stream, and a thread's default stream has a negative one."""
        return self.state.handle

    @property
    def name(self) -> str:
        """The name given to make_stream()."""
        return self.state.name

    @property
    def device(self) -> Device:
        """The device it works on."""
        return self._device

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.state.closed

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return CUDA's handle as the protocol of that name asks: (0, handle)."""
        return (0, self.state.ptr)

    def record(self) -> CudaEvent:
        """Return an event that passes when all work given until now has run."""
        return self.state.record()

    def wait(self, event: Event) -> None:
        """Let later work wait for ``event``, of any kind, without blocking the host.

        For an event that is no GPU's, CUDA calls back into Python, which may hold up what other
        streams have asked CUDA to call.
        """
        self.state.wait(event)

    def hold(self, *, limit_s: float) -> HostEvent:
        """Let later work wait until the host completes the event returned; see ``testing.hold``.

        Args:
            limit_s: Seconds after which the stream continues by itself, with a failure.
        """
        latch = HostEvent()
        self.state.wait(latch, limit_s=limit_s)
        return latch

    def synchronize(self) -> None:
        """Block until all work given until now has run.

        Raises:
            DeviceError: If any of it failed. What failed on the GPU itself fails all later calls in
                this process too; what failed on the host is reported once.
            ClosedError: After close().
        """
        self.state.synchronize()

    def close(self) -> None:
        """Finish the queued work, then end the stream; the null and adopted ones stay open."""
        self.state.close()
        if self.state.owned:
            self._forget(self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        # A closed stream of ours may have the handle of a new one: they are not the same.
        return (
            isinstance(other, CudaStream)
            and not self.state.owned
            and not other.state.owned
            and self._device is other._device
            and self.handle == other.handle
        )

    def __hash__(self) -> int:
        return hash(self.handle)

    def __del__(self) -> None:
        if not hasattr(self, "state"):
            return  # Ctrl-C came while it was made
        state = self.state
        context = state.context
        if not state.owned or state.closed or context.forked:
            return
        # Finishing waits for the GPU and takes locks, which no finalizer may.
        context.deferred_free.submit(state.finish, None, expected=False)
        warn_collected_open(self, device=context.name)

    def __repr__(self) -> str:
        kind = "" if self.state.owned else ", adopted"
        state = "closed" if self.state.closed else "open"
        return (
            f"<CudaStream {self.name!r} handle {self.handle} on {self._device.name}{kind}, {state}>"
        )
