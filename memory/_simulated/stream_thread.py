"""The queue and the thread behind a stream of the simulated device.

The handle that users hold, ``SimulatedStream``, and the thread share a ``StreamWorker``. The thread
holds nothing else, neither handle nor device, so both are collected with their last reference;
queued work holds the buffers it needs, and no longer than until it has run.

A worker ends by ``close``, by ``stop_soon`` (for finalizers), or at interpreter exit.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol

from memory._device.event import Failure, HostEvent, held_too_long
from memory._errors import ClosedError, DeviceError
from memory.threads import ThreadStart, start_for_device

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory._device.event import Event

_logger = logging.getLogger("memory")

# Longer than any copy in progress should take. A thread that is not back by then is a daemon and
# cannot hold up the exit.
_EXIT_WAIT_S: Final = 5.0


class Command(Protocol):
    """Something for a worker to do."""

    def execute(self, worker: StreamWorker) -> None:
        """Do it, on the worker's thread; note a failure instead of raising it."""
        ...


class Work:
    """A function to call after a while: a copy with the time that it takes.

    Args:
        operation: What it is, for errors.
        function: Does it. Whatever it refers to stays alive until it has been called.
        duration_s: Seconds until it takes effect.
    """

    __slots__ = ("_duration_s", "_function", "_operation")

    def __init__(
        self, operation: str, function: Callable[[], object], *, duration_s: float = 0.0
    ) -> None:
        self._operation = operation
        self._function = function
        self._duration_s = duration_s

    def execute(self, worker: StreamWorker) -> None:
        """Wait for as long as it takes, then call the function."""
        if worker.abandoned:
            gone = ClosedError("the interpreter", operation=self._operation)
            worker.note_failure(self._operation, gone)
            return
        try:
            # The bytes move at the end of the time: a source refilled at any moment before, or a
            # destination read at any moment before, shows.
            if self._duration_s > 0:
                worker.sleep(self._duration_s)
            self._function()
        except BaseException as error:  # noqa: BLE001 - it shows at the stream's next event
            worker.note_failure(self._operation, error)


class Record:
    """Let an event pass.

    Args:
        event: The event.
        report: Whether a failure of the stream is thereby reported, and forgotten.
    """

    __slots__ = ("_event", "_report")

    def __init__(self, event: HostEvent, *, report: bool = False) -> None:
        self._event = event
        self._report = report

    def execute(self, worker: StreamWorker) -> None:
        """Let the event pass, with the failure of the work before it."""
        failure = worker.failure
        if self._report:
            worker.failure = None
        self._event.complete(failure)


class Wait:
    """Wait for an event of another stream, or for a hold's release.

    Args:
        event: The event, of any kind.
        limit_s: Seconds after which to give up and fail; None for no limit.
    """

    __slots__ = ("_event", "_limit_s")

    def __init__(self, event: Event, *, limit_s: float | None = None) -> None:
        self._event = event
        self._limit_s = limit_s

    def execute(self, worker: StreamWorker) -> None:
        """Wait on the worker's thread, and take over the failure if there is one."""
        # Not synchronize(): this wait can also be ended by abandon().
        passed = HostEvent()
        worker.waiting = passed
        self._event.notify(passed.complete)
        # abandon() sets the flag first and then looks for what is waited for: one of us sees it.
        if worker.abandoned:
            passed.complete()
        in_time = passed.wait_for(self._limit_s)
        worker.waiting = None
        if not in_time:
            worker.note_failure("a hold", held_too_long(self._limit_s))
        elif self._event.done():
            try:
                self._event.synchronize()
            except BaseException as error:  # noqa: BLE001 - it shows at the stream's next event
                worker.note_failure("waiting for an event", error)


class StreamWorker:
    """The queue and the thread of one stream. Thread-safe, except for what only its thread uses.

    Args:
        device: Name of the device, for errors.
        name: Name of the stream; the thread is called so too.
        group: Token by which ``close_group`` finds the workers of one device.
        sleep: Called with the seconds that a copy takes.

    Attributes:
        failure: What went wrong and was not yet reported; the worker's thread alone uses it.
        waiting: What ends the wait that the thread is in; None while it is in none.
        abandoned: Set at interpreter exit: what is queued is dropped.
    """

    def __init__(
        self, *, device: str, name: str, group: object, sleep: Callable[[float], object]
    ) -> None:
        self.device = device
        self.name = name
        self.group = group
        self.sleep = sleep
        # No lock for these two: only the thread writes them; abandon() reads `waiting` after it has
        # set the flag that the thread reads after it has set `waiting`.
        self.failure: Failure | None = None
        self.waiting: HostEvent | None = None
        self.abandoned = False
        self.closed = False
        self._commands: SimpleQueue[Command | None] = SimpleQueue()
        # Orders submit() against close(): nothing is queued behind the end. Not for finalizers.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._start: ThreadStart | None = None
        self._runs = False
        self._pid = os.getpid()

    @property
    def num_queued(self) -> int:
        """How many commands wait, without the one that is running."""
        return self._commands.qsize()

    @property
    def inherited(self) -> bool:
        """Whether a fork has brought the object into a process that has not its thread."""
        return os.getpid() != self._pid

    def refuse_inherited(self, operation: str) -> None:
        """Refuse to work in a forked child, which has the objects but not the threads.

        Call it before any lock is taken: one that was held at the fork is held for ever here.

        Raises:
            DeviceError: After a fork.
        """
        if self.inherited:
            raise DeviceError(
                self.device,
                operation=f"{operation} on stream {self.name!r}",
                reason="the process was forked after the device was opened, and threads are not "
                "inherited; start processes with 'spawn', or open the device after the fork",
            )

    def start(self) -> None:
        """Start the thread, if it does not run yet.

        Raises:
            DeviceError: If the system gives no thread, or after a fork.
        """
        self.refuse_inherited("start")
        with self._lock:
            self._start_locked()

    def submit(self, operation: str, command: Command) -> None:
        """Queue a command; the thread starts with the first.

        Args:
            operation: What the caller asked for, for errors.
            command: What to do.

        Raises:
            ClosedError: After close().
            DeviceError: If the system gives no thread, or after a fork.
        """
        self.refuse_inherited(operation)
        with self._lock:
            if self.closed:
                raise ClosedError(f"stream {self.name!r}", operation=operation)
            self._start_locked()
            self._commands.put(command)

    def close(self) -> None:
        """Finish what is queued and join the thread. Idempotent; safe on the thread itself."""
        if self.inherited:
            self.closed = True
            return
        with self._lock:
            self.stop_soon()
            thread = self._thread if self._has_started() else None
        # Without the lock: the thread may be in work that asks this worker for something.
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def stop_soon(self) -> None:
        """Let the thread end after what is queued. Takes no lock and never waits.

        A finalizer may run on any thread within any lock, on this worker's own thread too.
        """
        # Nobody is within submit(): close() holds the lock, and a finalizer runs when no handle is
        # left to call it through.
        if not self.closed:
            self.closed = True
            self._commands.put(None)

    def note_failure(self, operation: str, error: BaseException) -> None:
        """Keep the first failure until it is reported. Only for the worker's thread."""
        if self.failure is None:
            self.failure = Failure(self.device, operation=operation, error=error)

    def abandon(self) -> None:
        """Drop what is queued and end the thread, for interpreter exit."""
        self.abandoned = True  # first, see Wait.execute
        waiting = self.waiting
        if waiting is not None:
            waiting.complete()
        with self._lock:
            self.stop_soon()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end, at most for ``timeout_s`` seconds."""
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _start_locked(self) -> None:
        if self._runs or self.closed or self._has_started():
            return
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._start = ThreadStart([self._thread])
        # Before the start: the exit hook must find a thread that Ctrl-C leaves half started.
        with _running_lock:
            _running.add(self)
        try:
            start_for_device(self._start, device=self.device, what=f"stream {self.name!r}")
        except DeviceError:
            with _running_lock:
                _running.discard(self)
            raise
        self._runs = True

    def _has_started(self) -> bool:
        """Return whether there is a thread, also where Ctrl-C came while it was being started."""
        return self._start is not None and self._start.has_started()

    def _run(self) -> None:
        try:
            while (command := self._commands.get()) is not None:
                command.execute(self)
                # Or it would keep its buffers alive until the next one comes.
                del command
        finally:
            with _running_lock:
                _running.discard(self)
        if self.failure is not None and not self.failure.seen:
            _logger.error(
                "stream %r ended; a failure had not been raised yet: %s", self.name, self.failure
            )


_running_lock = threading.Lock()
_running: set[StreamWorker] = set()


def close_group(group: object) -> None:
    """Close every running worker with that token; finishes their work."""
    with _running_lock:
        workers = [worker for worker in _running if worker.group is group]
    for worker in workers:
        worker.close()


def _end_all() -> None:
    with _running_lock:
        workers = tuple(_running)
    # All of them first: one may wait for an event of another.
    for worker in workers:
        worker.abandon()
    deadline_s = time.monotonic() + _EXIT_WAIT_S
    for worker in workers:
        worker.join(max(0.0, deadline_s - time.monotonic()))


def _forget_parents_threads() -> None:
    global _running_lock  # noqa: PLW0603 - it may have been held at the moment of the fork
    _running_lock = threading.Lock()
    _running.clear()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_forget_parents_threads)
