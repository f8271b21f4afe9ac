"""Batches that are kept until work has finished that is on no stream of ours.

Other libraries compute on streams that they do not name, and drop a batch when their array is
gone on the host. So the consumer names what to wait for, and a thread waits for it. To the ring
that is one more event of the slot: a batch that is kept and dropped is draining, not held.

The thread starts with the first such batch. It ends when the feed is closed and all waits are over.
"""

from __future__ import annotations

import inspect
import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from memory import SyncedMemoryError
from memory._device.event import Failure, HostEvent
from memory.threads import ThreadStart
from prefetch._process.fork import is_forked
from prefetch._process.nested_calls import mark_entry

if TYPE_CHECKING:
    from memory import Device

mark_entry(__file__)

_Wait: TypeAlias = Callable[[], object]

_logger = logging.getLogger("prefetch")

LIMIT_S = 10.0
"""How long close() waits for what batches are kept until; their memory stays after it too."""

_WAITS: Final = ("block_until_ready", "synchronize", "wait")
_HOST_VALUES: Final = (
    type(None), bool, int, float, complex, str, bytes, np.ndarray, np.generic
)  # fmt: skip


class _Kept(HostEvent):
    """Passes when what a batch is kept until is over."""

    __slots__ = ()

    def done(self) -> bool:
        """Return whether it is over.

        Raises:
            DeviceError: It is not known: memory may be in use that would be filled again.
        """
        if self._passed and self._failure is not None:
            raise self._failure.error()
        return self._passed


class _Job(NamedTuple):
    """What one batch is kept until.

    Attributes:
        waits: Called one after the other; all are over when the last has returned.
        event: Passes then.
        name: Of the batch, for errors.
        holds: Its memory, but not its lease.
    """

    waits: list[_Wait]
    event: _Kept
    name: str
    holds: object


class Keeper:
    """The thread that waits for what a feed's batches are kept until, in the order of `keep`.

    Thread-safe.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pid = os.getpid()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stopping = False

    @property
    def is_stopping(self) -> bool:
        """Whether the feed is being closed."""
        return self._stopping

    def keep(self, waits: list[_Wait], *, name: str, holds: object) -> HostEvent:
        """Return an event that passes when all of ``waits`` have returned.

        Args:
            waits: Of `waits_of`.
            name: Of the batch, for errors.
            holds: Kept alive until then.
        """
        job = _Job(waits, _Kept(), name, holds)
        if is_forked(self._pid):
            return job.event  # the thread is the parent's, and no slot is filled here
        with self._lock:
            try:
                self._start_locked()
            except RuntimeError as error:
                _logger.warning("no thread to keep %s, so that its caller waits: %s", name, error)
                self._carry_out(job)
            else:
                self._jobs.put(job)
        return job.event

    def stop(self) -> None:
        """Let the thread end when its last wait is over. Takes no lock."""
        self._stopping = True
        self._jobs.put(None)

    def join(self) -> None:
        """Wait for the thread's end after `stop`, `LIMIT_S` at most: it runs on if it has to."""
        with self._lock:
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join(LIMIT_S)
        if thread.is_alive():
            _logger.warning(
                "the feed was closed while batches are kept until something that was not over in "
                "%g s; their memory stays until it is",
                LIMIT_S,
            )

    def _start_locked(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="ringfeed-keeper", daemon=True)
        start = ThreadStart([thread])
        try:
            start.run()
        finally:
            if start.has_started():  # also where Ctrl-C came while it was waited for
                self._thread = thread

    def _run(self) -> None:
        with suppress(SyncedMemoryError):  # the waits will fail with the same error
            # Among other things this keeps its calls out of CUDA graphs that others capture.
            self._device.dedicate_thread()
        while True:
            job = self._jobs.get()
            if job is not None:
                self._carry_out(job)
            del job  # an idle thread keeps nothing alive
            with self._lock:
                if self._stopping and self._jobs.empty():
                    self._thread = None
                    return

    def _carry_out(self, job: _Job) -> None:
        try:
            for wait in job.waits:
                wait()
        except BaseException as error:  # noqa: BLE001 - any error has to reach the feed
            what = f"waiting for what {job.name} is kept until"
            _logger.error("%s failed: %s: %s", what, type(error).__name__, str(error))  # noqa: TRY400 - a log that keeps its records would keep the memory in its frames
            job.event.complete(Failure(self._device.name, operation=what, error=error))
        else:
            job.event.complete()


def waits_of(until: Any) -> list[_Wait]:
    """Return what is called to wait until something is over.

    Args:
        until: See `Batch.keep_until`.

    Raises:
        TypeError: It cannot be waited for.
    """
    if isinstance(until, (list, tuple)):
        return [wait for part in until for wait in waits_of(part)]
    if isinstance(until, Mapping):
        return [wait for part in until.values() for wait in waits_of(part)]
    if isinstance(until, _HOST_VALUES):
        return []
    for name in _WAITS:
        wait = getattr(until, name, None)
        if callable(wait) and not inspect.iscoroutinefunction(wait):
            return [wait]
    raise TypeError(
        f"keep_until: expected a JAX array, an event, or anything else that has "
        f"block_until_ready(), synchronize() or wait(), or lists, tuples and mappings of such; "
        f"found an object of type {type(until).__name__}; for work of PyTorch's give the event "
        f"that torch.cuda.current_stream().record_event() returns"
    )
