"""What a CUDA stream and its handles share: the order of what is queued, and what that holds."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from memory._cuda.drain import Drain
from memory._cuda.event import CudaEvent, HostWait
from memory._cuda.keepalive import KeepAlive
from memory._cuda.runtime import CAPTURE_CURE, CAPTURE_ERRORS, cupy, runtime
from memory._errors import ClosedError, DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory._cuda.context import CudaContext
    from memory._device.event import Event

_logger = logging.getLogger("memory")

LEGACY: Final[int] = runtime.streamLegacy
PER_THREAD: Final[int] = runtime.streamPerThread


class StreamState:
    """CUDA's stream and what its queued work holds. Thread-safe.

    Args:
        context: The GPU.
        ptr: CUDA's handle; 0 is the null stream.
        name: For people.
        owned: Whether it is ours to destroy.
        foreign: What keeps another library's stream alive.

    Attributes:
        closed: Whether nothing more can be queued.
        keep_alive: What its queued work holds.
    """

    def __init__(
        self, context: CudaContext, ptr: int, *, name: str, owned: bool, foreign: object = None
    ) -> None:
        self.context = context
        self.ptr = ptr
        self.name = name
        self.owned = owned
        self.foreign = foreign
        self.closed = False
        self.keep_alive = KeepAlive()
        # Two handles name no stream of their own. 1 is the null stream, like 0. 2 is the *calling*
        # thread's default stream: on another thread it would be another, so the state notes whose.
        self._thread = threading.get_ident() if ptr == PER_THREAD else None
        self._number = 0
        self._watched = False
        self._host_waits: tuple[HostWait, ...] = ()
        # Held while work is queued and while an event is recorded, so that the event covers exactly
        # what was added before it. No finalizer takes it.
        self._lock = threading.Lock()
        context.add_stream(self)

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return CUDA's handle as the protocol of that name asks: (0, handle)."""
        return (0, self.ptr)

    @property
    def handle(self) -> int:
        """A number that no other open stream has; negative for a thread's default stream."""
        return self.ptr if self._thread is None else -self._thread

    def as_cupy(self) -> Any:
        """Return CuPy's object for the stream as the calling thread reaches it; holds this one."""
        ptr = self._ptr_here()
        if ptr in {0, LEGACY}:
            return cupy.cuda.Stream.null
        if ptr == PER_THREAD:
            return cupy.cuda.Stream.ptds
        return cupy.cuda.Stream.from_external(self)

    def submit(self, operation: str, launch: Callable[[int], object], holds: object) -> None:
        """Queue work.

        Args:
            operation: What it is, for errors.
            launch: Called with the handle by which the calling thread reaches the stream.
            holds: Kept alive until the work has run.

        Raises:
            ClosedError: After close().
            DeviceError: If CUDA refuses.
        """
        with self.context.call(operation, self.keep_alive.pending), self._lock:
            self._check_open(operation)
            self.refuse_capture(operation)
            self.keep_alive.add(operation, holds)
            try:
                launch(self._ptr_here())
            except Exception:
                # Exception only: after Ctrl-C it may be queued all the same.
                self.keep_alive.drop_last()
                raise
            if not self.owned:
                # Now: once the caller captures a graph on this stream, an event would be captured.
                self._record()
            watched, self._watched = self._watched, True
        if not watched:
            # Without the lock: starting a thread may take long, and the drain needs the lock.
            self._watch()

    def record(self, operation: str = "record") -> CudaEvent:
        """Return an event that passes when all work given until now has run.

        Raises:
            ClosedError: After close().
            DeviceError: If CUDA refuses, which it does once earlier work has failed.
        """
        with self.context.call(operation, self.keep_alive.pending), self._lock:
            self._check_open(operation)
            self.refuse_capture(operation)
            return self._record()

    def record_unless_captured(self) -> CudaEvent | None:
        """Return an event behind the work given until now; None for a closed or captured stream."""
        with self.context.call("record", self.keep_alive.pending), self._lock:
            return None if self.closed or self._is_captured() else self._record()

    def wait(self, event: Event, *, limit_s: float | None = None) -> None:
        """Let later work wait for an event of any kind; see ``Stream.wait``.

        Args:
            event: The event.
            limit_s: Seconds after which to continue with a failure, if host code is to let it pass.
        """
        if isinstance(event, CudaEvent):
            with self.context.call("wait", self.keep_alive.pending), self._lock:
                self._check_open("wait")
                self.refuse_capture("wait")
                runtime.streamWaitEvent(self._ptr_here(), event.token.handle)
                # Their failures become this stream's, as those of CUDA's own work do.
                self._host_waits += event.host_waits
            return
        wait = HostWait(event, limit_s=limit_s, device=self.context.name)

        def queue(ptr: int) -> None:
            runtime.launchHostFunc(ptr, wait, 0)
            self._host_waits += (wait,)  # within the lock

        self.submit("wait", queue, wait)

    def refuse_capture(self, operation: str) -> None:
        """Refuse what a stream cannot do while it is captured into a CUDA graph; within ``call``.

        Raises:
            DeviceError: It is being captured.
        """
        # Work would go into the graph and not run now, and so would an event, which could never be
        # waited for. The query does the capture no harm; trying would spoil it.
        if self._is_captured():
            raise DeviceError(
                self.context.name,
                operation=operation,
                reason=f"stream {self.name!r} is being captured into a CUDA graph: {CAPTURE_CURE}",
            )

    def _is_captured(self) -> bool:
        try:
            return bool(runtime.streamIsCapturing(self._ptr_here()))
        except runtime.CUDARuntimeError as error:
            if error.status not in CAPTURE_ERRORS:
                raise
        except RuntimeError:  # CuPy's, for a capture that has failed already
            pass
        return True

    def synchronize(self) -> None:
        """Block until all work given until now has run; a failed host wait is reported once."""
        event = self.record("synchronize")
        try:
            event.synchronize()
        except DeviceError:
            reported = event.host_waits
            with self._lock:
                self._host_waits = tuple(w for w in self._host_waits if w not in reported)
            raise

    def close(self) -> None:
        """Finish the queued work, then destroy a stream of ours; one of others stays open.

        Raises no failure: it is logged.
        """
        if self.context.forked:
            self.closed = True
        elif self.owned:
            self.finish()
        elif not self.closed:
            try:
                self.record("close").synchronize()
            except DeviceError as error:
                self._log(error)

    def finish(self, _: object = None) -> None:
        """Wait for the work of a stream of ours, release what it holds, and destroy it."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
        # Without the lock: nothing can be queued any more, and the drain may need it meanwhile.
        try:
            with self.context.call("close", self.keep_alive.pending):
                runtime.streamSynchronize(self.ptr)
        except DeviceError as error:
            self._log(error)
        self.keep_alive.release_all()
        with contextlib.suppress(DeviceError), self.context.call("close"):
            runtime.streamDestroy(self.ptr)

    def _watch(self) -> None:
        try:
            drain = Drain(self.context, self.keep_alive, self._cover)
            self.context.waiters.wait(drain, _do_nothing)
        except RuntimeError as error:
            # The stream's next event that is found passed releases it instead.
            _logger.warning("no thread to watch stream %r: %s", self.name, str(error))
            self._watched = False

    def _cover(self) -> bool:
        """Record an event behind what none covers; return False, and stop, if there is nothing."""
        with self.context.call("record"), self._lock:
            if self.keep_alive.has_uncovered and not self.closed:
                self.refuse_capture("record")
                self._record()
                return True
            # Within the lock: work that is queued after this starts another drain.
            self._watched = False
            return False

    def _record(self) -> CudaEvent:
        token = self.context.take_event()
        runtime.eventRecord(token.handle, self._ptr_here())
        self._number += 1
        self.keep_alive.seal(self._number, token)
        self._host_waits = tuple(wait for wait in self._host_waits if wait.matters)
        return CudaEvent(
            token,
            context=self.context,
            keep_alive=self.keep_alive,
            number=self._number,
            host_waits=self._host_waits,
        )

    def _ptr_here(self) -> int:
        # From another thread by way of the null stream, with which CUDA orders every thread's
        # default stream in both directions.
        if self._thread is None or self._thread == threading.get_ident():
            return self.ptr
        return LEGACY

    def _check_open(self, operation: str) -> None:
        if self.closed:
            raise ClosedError(f"stream {self.name!r}", operation=operation)

    def _log(self, error: DeviceError) -> None:
        # Not the exception: a log that keeps its records would keep the buffers in its frames.
        _logger.error("stream %r ended with a failure: %s", self.name, str(error))


def _do_nothing() -> None:
    pass
