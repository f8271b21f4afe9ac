"""What users hold of a stream of the simulated device: orders for its worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory._device.closeable import Closeable, warn_collected_open
from memory._device.event import HostEvent
from memory._simulated.stream_thread import Record, Wait

if TYPE_CHECKING:
    from memory._device.device import Device
    from memory._device.event import Event
    from memory._simulated.stream_thread import StreamWorker, Work


class SimulatedStream(Closeable):
    """A stream of the simulated device; see ``Stream``. Made by ``SimulatedDevice.make_stream``.

    Example:
        >>> from memory import open_device
        >>> with open_device("simulated") as device, device.make_stream("copies") as stream:
        ...     event = stream.record()
        ...     event.synchronize()
        ...     event.done()
        True
    """

    def __init__(self, worker: StreamWorker, *, handle: int, device: Device) -> None:
        self._device = device
        self._handle = handle
        self._worker = worker

    @property
    def handle(self) -> int:
        """The stream's number; 0 is the null stream."""
        return self._handle

    @property
    def name(self) -> str:
        """The stream's name, which is its thread's too."""
        return self._worker.name

    @property
    def device(self) -> Device:
        """The device it works on."""
        return self._device

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._worker.closed

    def record(self) -> HostEvent:
        """Return an event that passes when all work given until now has run."""
        event = HostEvent()
        self._worker.submit("record", Record(event))
        return event

    def wait(self, event: Event) -> None:
        """Let later work wait for ``event``, of any kind, without blocking the host."""
        self._worker.submit("wait", Wait(event))

    def hold(self, *, limit_s: float) -> HostEvent:
        """Let later work wait until the host completes the event returned; see ``testing.hold``.

        Args:
            limit_s: Seconds after which the stream continues by itself, with a failure.
        """
        latch = HostEvent()
        self._worker.submit("hold", Wait(latch, limit_s=limit_s))
        return latch

    def synchronize(self) -> None:
        """Block until all work given until now has run; report its failure once."""
        event = HostEvent()
        self._worker.submit("synchronize", Record(event, report=True))
        event.synchronize()

    def submit(self, operation: str, work: Work) -> None:
        """Queue work of the device's."""
        self._worker.submit(operation, work)

    def close(self) -> None:
        """Finish the queued work and join the thread.

        The null stream is the device's: closing it waits for its work, and it stays open.
        """
        if self._handle != 0:
            self._worker.close()
        elif not self._worker.closed:
            self.record().wait_for(None)

    def __del__(self) -> None:
        if not hasattr(self, "_worker"):
            return  # Ctrl-C came while it was made
        if self._handle == 0 or self._worker.closed or self._worker.inherited:
            return
        self._worker.stop_soon()
        warn_collected_open(self, device=self._worker.device)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._worker.num_queued} queued"
        return f"<SimulatedStream {self.name!r} handle {self._handle}, {state}>"
