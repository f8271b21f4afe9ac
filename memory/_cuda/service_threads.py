"""The threads of an opened GPU: one that frees, and those that wait for events.

All are daemons that end by themselves once they are retired and have nothing left to do. None
refers to the device. They stay out of the CUDA graphs that others capture; if CUDA refuses a call
because of one all the same, they retry until the capture is over.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import sleep
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from memory._cuda.capture import stay_out_of_captures
from memory._cuda.runtime import ASK_AGAIN_S, is_capture_error, runtime
from memory.threads import ThreadStart, start_for_device

if TYPE_CHECKING:
    from collections.abc import Callable

_logger = logging.getLogger("memory")

_Job: TypeAlias = "tuple[Awaited, Callable[[], None]]"
_Freeing: TypeAlias = "tuple[Callable[[Any], object], Any, bool]"


class Awaited(Protocol):
    """What a waiter waits for: an event, or the end of a stream's work."""

    def done(self) -> bool:
        """Return whether the wait would be over at once."""
        ...

    def synchronize(self) -> None:
        """Block until it is."""
        ...


class DeferredFree:
    """Frees what finalizers hand in, on a thread: freeing waits for work on the GPU.

    The thread runs from the first allocation or stream until the device is closed or collected
    *and* nothing is left to be freed: a batch may be held for longer than its feed and device are
    open. What cannot be freed while somebody captures a CUDA graph is postponed.

    Args:
        ordinal: Number of the GPU.
        wait_for_streams: Blocks until all has run that streams may still do to what is freed.
    """

    def __init__(self, ordinal: int, wait_for_streams: Callable[[], None]) -> None:
        self._ordinal = ordinal
        self._wait_for_streams = wait_for_streams
        self._postponed: list[_Freeing] = []  # by a capture; only the thread uses it
        self._queue: SimpleQueue[_Freeing | threading.Event | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._start: ThreadStart | None = None
        self._num_expected = 0
        self._retired = False

    def start(self) -> None:
        """Start the thread, if there is none."""
        with self._lock:
            self._start_locked()

    def expect(self) -> None:
        """Count something that will be submitted; the thread stays until it has been freed."""
        with self._lock:
            self._num_expected += 1
            self._start_locked()

    def submit(self, free: Callable[[Any], object], what: Any, *, expected: bool = True) -> None:
        """Have ``free(what)`` called on the thread. Takes no lock and makes no call to CUDA.

        Args:
            free: What frees it; its failure is logged.
            what: What is to be freed.
            expected: Whether it was counted by ``expect``.
        """
        self._queue.put((free, what, expected))

    def settle(self) -> None:
        """Block until all that was submitted until now is free, but for what a capture postpones.

        Waits for work on the GPU.
        """
        passed = threading.Event()
        # Counted like memory, so that the thread does not end before it has reached the marker.
        self.expect()
        self._queue.put(passed)
        passed.wait()

    def retire(self) -> None:
        """Let the thread end when nothing is left to come. Takes no lock."""
        self._retired = True
        self._queue.put(None)

    def join(self) -> None:
        """Free what was submitted, and wait for the thread's end unless it has to stay.

        After ``retire``; waits for the GPU.
        """
        self.settle()
        with self._lock:
            thread = self._thread if self._num_expected == 0 else None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _start_locked(self) -> None:
        # Asked of the attempt: Ctrl-C in it, or a system without threads, leaves none to wait for.
        if self._start is None or not self._start.has_started():
            name = f"cuda:{self._ordinal}-deferred-free"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._start = ThreadStart([self._thread])
            start_for_device(self._start, device=f"cuda:{self._ordinal}", what=f"thread {name!r}")

    def _run(self) -> None:
        stay_out_of_captures()
        while True:
            with suppress(Empty):
                freeing = self._queue.get(timeout=ASK_AGAIN_S if self._postponed else None)
                if isinstance(freeing, threading.Event):
                    self._reach_marker(freeing)
                elif freeing is not None:
                    self._free(freeing)
                del freeing  # an idle thread keeps nothing alive
            postponed, self._postponed = self._postponed, []
            while postponed:
                self._free(postponed.pop(0))
            # Within the lock of start() and expect(): a later call starts another thread.
            with self._lock:
                if self._retired and self._num_expected == 0 and self._queue.empty():
                    self._thread = self._start = None
                    return

    def _reach_marker(self, passed: threading.Event) -> None:
        with self._lock:
            self._num_expected -= 1
        passed.set()

    def _free(self, freeing: _Freeing) -> None:
        free, what, expected = freeing
        try:
            runtime.setDevice(self._ordinal)  # not set back: the thread is ours
            self._wait_for_streams()
            free(what)
        except Exception as error:  # noqa: BLE001 - in a lost context nothing can be freed
            if is_capture_error(error):
                self._postponed.append(freeing)
                return
            _logger.warning(
                "memory or a stream of GPU %d was not freed: %s", self._ordinal, str(error)
            )
        with self._lock:
            self._num_expected -= expected


class Waiters:
    """Threads that wait for events, one for each wait in progress; idle ones are used again.

    Threads and not CUDA's own callbacks: those are not called once a context has failed, and they
    share one thread, on which one stream's can hold up another's.

    Args:
        ordinal: Number of the GPU.
    """

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self._name = f"cuda:{ordinal}-waiter"
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._waiting_for: dict[threading.Thread, Awaited | None] = {}  # None: for a job
        self._num_free = 0  # idle threads less queued jobs: any thread may take any job

    def wait(self, event: Awaited, callback: Callable[[], None]) -> None:
        """Wait for ``event`` on another thread, and then call ``callback`` there.

        Raises:
            DeviceError: If the system gives no thread.
        """
        with self._lock:
            if self._num_free:
                self._num_free -= 1
            else:
                self._start_locked()
            # Not as the thread's argument, which a Thread keeps for as long as it runs.
            self._jobs.put((event, callback))

    def retire(self) -> None:
        """Let idle threads end now, and the others after their wait. Takes no lock."""
        self._jobs.put(None)  # every thread that finds it puts it back for the next

    def join(self) -> None:
        """Wait for the end of the threads whose event has passed; after ``retire``."""
        with self._lock:
            ending = [
                thread
                for thread, event in self._waiting_for.items()
                if event is None or event.done()
            ]
        for thread in ending:
            if thread is not threading.current_thread():
                thread.join()

    def _start_locked(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._waiting_for[thread] = None
        start = ThreadStart([thread])
        try:
            start_for_device(start, device=f"cuda:{self._ordinal}", what=f"thread {self._name!r}")
        except BaseException:
            if start.has_started():
                self._num_free += 1  # Ctrl-C came: it waits for a job, and gets none from here
            else:
                del self._waiting_for[thread]
            raise

    def _run(self) -> None:
        with suppress(runtime.CUDARuntimeError):  # the wait reports it as well
            runtime.setDevice(self._ordinal)  # not set back: the thread is ours
        stay_out_of_captures()
        me = threading.current_thread()
        job = self._next_job()
        while job is not None:
            event, callback = job
            with self._lock:
                self._waiting_for[me] = event
            _wait_and_call(event, callback)
            del job, event, callback  # an idle thread keeps nothing alive
            with self._lock:
                self._waiting_for[me] = None
                self._num_free += 1
            job = self._next_job()
        with self._lock:
            del self._waiting_for[me]

    def _next_job(self) -> _Job | None:
        """Return the next job; None once the threads are retired and this one is not needed."""
        while (job := self._jobs.get()) is None:
            with self._lock:
                self._jobs.put(None)
                if self._num_free:
                    self._num_free -= 1
                    return None
            # No thread is free, so each of those that are not, this one too, has a job coming.
        return job


def _wait_and_call(event: Awaited, callback: Callable[[], None]) -> None:
    try:
        _wait(event)
    except Exception as error:  # noqa: BLE001 - the event raises it when it is queried
        _logger.debug("an event for which a callback waits has failed: %s", str(error))
    try:
        callback()
    except Exception:
        _logger.exception("a callback of an event failed")


def _wait(event: Awaited) -> None:
    while True:
        try:
            event.synchronize()
        except Exception as error:
            if not is_capture_error(error):
                raise
        else:
            return
        sleep(ASK_AGAIN_S)
