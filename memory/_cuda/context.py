"""What everything on one opened GPU shares: how CUDA is called, its events, its service threads.

Rules that hold for every call to CUDA:

* Within it the calling thread's current device is the GPU, and after it the caller's again.
* A failure is a ``DeviceError`` that names what was asked, and after a fork nothing is asked.
* Finalizers make no call and take no lock: what they free goes to `DeferredFree`.
* Nothing waits for the whole device: that would spoil every capture into a CUDA graph.

Nothing here refers to the device object or holds its streams, so that both are freed with their
last reference.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from memory._cuda.capture import stay_out_of_captures
from memory._cuda.runtime import (
    CAPTURE_CURE,
    CAPTURE_ERRORS,
    FORK_CURE,
    FORK_REASON,
    OUT_OF_MEMORY,
    is_capture_error,
    runtime,
)
from memory._cuda.service_threads import DeferredFree, Waiters
from memory._errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from memory._device.event import Event

# Blocking: a thread that waits gives up its core, which decoding needs, instead of spinning.
_EVENT_FLAGS: Final[int] = runtime.eventDisableTiming | runtime.eventBlockingSync

_live: weakref.WeakSet[CudaContext] = weakref.WeakSet()


class KnownStream(Protocol):
    """A stream that was made or met."""

    def record_unless_captured(self) -> Event | None:
        """Return an event behind the stream's work; None if nothing can follow it."""
        ...


class CudaContext:
    """One opened GPU, without its public face. Thread-safe.

    Args:
        ordinal: Number of the GPU.

    Attributes:
        deferred_free: Frees what finalizers hand in.
        waiters: Wait for events on behalf of callbacks.
        forked: Whether this is the child of a process that opened the GPU.
        kernels: Names of the kernels that are loaded and were not made by ``compile``.
    """

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.name = f"cuda:{ordinal}"
        self.forked = False
        self.kernels: set[str] = set()
        self.deferred_free = DeferredFree(ordinal, self.wait_for_streams)
        self.waiters = Waiters(ordinal)
        self._lock = threading.Lock()
        self._streams: weakref.WeakSet[KnownStream] = weakref.WeakSet()
        self._idle_events: deque[int] = deque()
        _live.add(self)

    def call(self, operation: str, pending: Callable[[], str] | None = None) -> _Call:
        """Return the ``with`` block in which CUDA is called.

        Args:
            operation: What for, for the DeviceError that a failure becomes.
            pending: Names the work that is not known to have finished, and may be what failed.
        """
        return _Call(self, operation, pending)

    def dedicate_thread(self) -> None:
        """Make the GPU the calling thread's current one for good, and keep it out of captures.

        Raises:
            DeviceError: If CUDA refuses.
        """
        self.refuse_forked("dedicate_thread")
        try:
            # A new thread has GPU 0 for current. To put that back after each call would have CUDA
            # set it up, with a few hundred MB of its memory.
            runtime.setDevice(self.ordinal)
        except runtime.CUDARuntimeError as error:
            raise self.failure("dedicate_thread", error) from error
        stay_out_of_captures()

    def add_stream(self, stream: KnownStream) -> None:
        """Have `wait_for_streams` wait for a stream's work too, for as long as anybody has it."""
        with self._lock:
            self._streams.add(stream)

    def wait_for_streams(self) -> None:
        """Block until all has run that the streams met so far were given, by us or by others.

        One that is captured has been given nothing that runs.

        Raises:
            DeviceError: CUDA refuses; `is_capture_error` says whether only for now.
        """
        # A copy, so that no call to CUDA is made within the lock, which add_stream() takes too.
        with self._lock:
            streams = tuple(self._streams)
        events = [stream.record_unless_captured() for stream in streams]
        for event in events:
            if event is not None:
                event.synchronize()

    def take_event(self) -> EventToken:
        """Return an unused event of CUDA's; within ``call``."""
        try:
            handle = self._idle_events.popleft()  # atomic: finalizers append to it
        except IndexError:
            handle = runtime.eventCreateWithFlags(_EVENT_FLAGS)
        return EventToken(handle, self._idle_events)

    def destroy_events(self) -> None:
        """Destroy the unused events; within ``call``."""
        while self._idle_events:
            runtime.eventDestroy(self._idle_events.popleft())

    def is_lost(self) -> bool:
        """Return whether no call can succeed any more: a kernel failed, or the process was forked.

        Nothing that was queued runs then, either.
        """
        try:
            with self.call("memory_info"):
                runtime.memGetInfo()
        except DeviceError as error:
            return not is_capture_error(error)
        return False

    def refuse_forked(self, operation: str) -> None:
        """Raise DeviceError in a forked child."""
        if self.forked:
            raise DeviceError(self.name, operation=operation, reason=f"{FORK_REASON}; {FORK_CURE}")

    def failure(self, operation: str, error: Exception, *, pending: str = "") -> DeviceError:
        """Say what a failed call to CUDA means.

        Args:
            operation: What was asked.
            error: The CUDARuntimeError.
            pending: The work that was not known to have finished, and may be what failed.
        """
        reason = str(error)
        if getattr(error, "status", None) in CAPTURE_ERRORS:
            reason += f"; a stream is being captured into a CUDA graph: {CAPTURE_CURE}"
        # A failure of queued work is CUDA's *sticky* error: it comes up at any later call, and CUDA
        # does not say whose it is. So all that may have failed is named.
        if pending:
            reason += f"; not seen to finish until then: {pending}"
        return DeviceError(self.name, operation=operation, reason=reason)

    def stop(self) -> None:
        """End the service threads that have nothing to wait for, and the others after that."""
        self.stop_soon()
        self.waiters.join()  # first: what their threads still hold goes to DeferredFree
        self.deferred_free.join()
        with contextlib.suppress(DeviceError), self.call("close"):
            self.destroy_events()

    def stop_soon(self) -> None:
        """Let the service threads end when they have nothing left to do; for finalizers too."""
        self.deferred_free.retire()
        self.waiters.retire()


class _Call:
    """Sets the current device, puts it back, and translates CUDA's errors."""

    __slots__ = ("_context", "_operation", "_pending", "_previous")

    def __init__(
        self, context: CudaContext, operation: str, pending: Callable[[], str] | None
    ) -> None:
        self._context = context
        self._operation = operation
        self._pending = pending

    def __enter__(self) -> None:
        self._context.refuse_forked(self._operation)
        try:
            self._previous: int = runtime.getDevice()
            if self._previous != self._context.ordinal:
                runtime.setDevice(self._context.ordinal)
        except runtime.CUDARuntimeError as error:
            raise self._failure(error) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._previous != self._context.ordinal:
            try:
                runtime.setDevice(self._previous)
            except runtime.CUDARuntimeError as second:
                # A sticky error of the GPU's comes up here as well; the first is the one to report.
                error = error or second
        if isinstance(error, runtime.CUDARuntimeError):
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> DeviceError:
        pending = "" if self._pending is None else self._pending()
        return self._context.failure(self._operation, error, pending=pending)


def is_out_of_memory(error: DeviceError) -> bool:
    """Return whether what CUDA refused was memory."""
    return getattr(error.__cause__, "status", None) == OUT_OF_MEMORY


class EventToken:
    """The use of one of CUDA's events; ends when it is collected, and the event is used again."""

    # Used again although streams may still wait for it: CUDA takes an event's state as it is asked
    # to wait, so a later use disturbs no wait.

    __slots__ = ("_idle", "handle")

    def __init__(self, handle: int, idle: deque[int]) -> None:
        self.handle = handle
        self._idle = idle

    def __del__(self) -> None:
        if hasattr(self, "_idle"):  # else Ctrl-C came while it was made
            self._idle.append(self.handle)


def _note_fork() -> None:
    for context in tuple(_live):
        context.forked = True
        # A lock that another thread held at the fork is held for ever in the child.
        context.deferred_free = DeferredFree(context.ordinal, context.wait_for_streams)
        context._lock = threading.Lock()  # noqa: SLF001 - its own module
        context.waiters = Waiters(context.ordinal)


os.register_at_fork(after_in_child=_note_fork)
