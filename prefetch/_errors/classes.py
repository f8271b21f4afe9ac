"""The errors of the feed.

::

    PrefetchError
      ConfigError (ValueError)                   the configuration is wrong; lists every fault
        ConfigNotFoundError (FileNotFoundError)    its file is not there
      SourceError                                the database as a whole
        DatabaseNotFoundError (FileNotFoundError)  there is none at the path
        UnsupportedSourceError (ValueError)        something is there that is not read here
        CorruptDatabaseError (ValueError)          its pages contradict each other
        EmptyDatabaseError (ValueError)            it has no records
        DatabaseTruncatedError (OSError)           the file is shorter than its pages
        DatabaseChangedError (RuntimeError)        a writer overwrote the snapshot being read
        DatabaseInUseError (RuntimeError)          other code of this process holds it open
      StateError (ValueError)                    a saved state belongs to something else
      RecordError (ValueError)                   one record is bad; says which
      QuarantineError (OSError)                  a bad record cannot be quarantined
      TooManyBadRecordsError (ValueError)        more bad records than the configuration allows
      BatchesHeldError (RuntimeError)            the consumer holds as many batches as it may
      RingTooLargeError (MemoryError)            the process or device has no memory for the ring
      OutOfMemoryError (MemoryError)             a step of the work found no memory; says which
      ThreadStartError (RuntimeError)            the system gives no further reader thread
      BatchReleasedError (RuntimeError)          an accessor of a batch that was given back
      LabelsNotProducedError (AttributeError)    labels are off, or the layer has one top
      StaleIteratorError (RuntimeError)          a newer iterator of the feed has taken over
      EpochsExhaustedError (RuntimeError)        every configured epoch has been served
      FeedBusyError (RuntimeError)               next() inside another call of the same thread
      FeedClosedError (RuntimeError)             the feed is closed
    PrefetchWarning (UserWarning)                it works, but hardly as meant

Each inherits the built-in that a caller would expect, says what was expected and what was found,
and carries the same facts as attributes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from memory.threads import ALLOW_MORE
from prefetch._errors.os_errors import find_cure
from prefetch._errors.printable import (
    counted,
    printable_fault,
    printable_message,
    printable_option,
    printable_path,
    printable_short_key,
)

_MOST_LISTED = 20


class PrefetchError(Exception):
    """Root of everything that this package raises on purpose.

    The text is safe to print: of what it names, such as files and keys, nothing steers a terminal.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(*([printable_message(message)] if message else []))


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """One thing wrong with a configuration.

    Attributes:
        key: Dotted path of the option, such as ``transform.crop_size``; empty for the whole file.
        message: What is wrong, what was found and what would be right.
        line: Line in the YAML or prototxt file, counted from 1; None for a mapping.
    """

    key: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        name = f"{printable_option(self.key)}: " if self.key else ""
        return f"{where}{name}{printable_fault(self.message)}"


def _join_lines(lines: tuple[object, ...]) -> str:
    """Return lines of an error, of which a hostile file may have any number."""
    more = len(lines) - _MOST_LISTED
    rest = [f"and {more} more"] if more > 0 else []
    return "".join(f"\n  {line}" for line in [*lines[:_MOST_LISTED], *rest])


class ConfigError(PrefetchError, ValueError):
    """Raised for a configuration that cannot be used, with every fault found in it.

    Attributes:
        origin: The file, or a word such as ``mapping`` where there is none.
        faults: All of the faults, in the order of the file.
    """

    def __init__(self, origin: str, faults: tuple[ConfigFault, ...]) -> None:
        self.origin = origin
        self.faults = faults
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        super().__init__(
            f"{printable_path(origin)}: {count} in the configuration{_join_lines(faults)}"
        )


class ConfigNotFoundError(ConfigError, FileNotFoundError):
    """Raised for a configuration's or a network's file that is not there; one line of text."""

    def __init__(self, origin: str, faults: tuple[ConfigFault, ...]) -> None:
        super().__init__(origin, faults)
        self.args = (f"{printable_path(origin)}: {'; '.join(map(str, faults))}",)


class SourceError(PrefetchError):
    """Root of what can be wrong with a database as a whole.

    Attributes:
        path: Absolute path of the database, as the caller named it.
    """

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        super().__init__(f"{printable_path(path)}: {message}")


class DatabaseNotFoundError(SourceError, FileNotFoundError):
    """Raised where there is no database at the path; nothing is created there."""


class UnsupportedSourceError(SourceError, ValueError):
    """Raised for a file or layer that is of a kind not read here, with what to do instead."""


class CorruptDatabaseError(SourceError, ValueError):
    """Raised for a database whose pages contradict each other."""


class EmptyDatabaseError(SourceError, ValueError):
    """Raised for a database, or a subset of one, that holds no record."""


class DatabaseTruncatedError(SourceError, OSError):
    """Raised for a file shorter than its pages; touching the missing part would kill the process.

    Attributes:
        expected_bytes: The least size that the database's own header promises.
        actual_bytes: The size of the file.
    """

    def __init__(self, path: str, *, expected_bytes: int, actual_bytes: int) -> None:
        self.expected_bytes = expected_bytes
        self.actual_bytes = actual_bytes
        super().__init__(
            path,
            f"the file is truncated: its pages take {expected_bytes} bytes, "
            f"the file has {actual_bytes} bytes; copy it again from its origin",
        )


class DatabaseChangedError(SourceError, RuntimeError):
    """Raised when pages that are being read may have been written over.

    By a writer that has committed more than once since, or by something that is not LMDB, as by a
    copy over the file: then it was modified, and no commit explains that.

    Attributes:
        snapshot_txn: Transaction id of the snapshot that the feed reads.
        last_txn: Transaction id of the newest commit.
        lock_path: The lock file that the feed is registered in; None where it has none.
    """

    def __init__(
        self, path: str, *, snapshot_txn: int, last_txn: int, lock_path: str | None = None
    ) -> None:
        self.snapshot_txn = snapshot_txn
        self.last_txn = last_txn
        self.lock_path = lock_path
        numbers = f"the feed reads transaction {snapshot_txn}, the newest is {last_txn}"
        is_past = last_txn > snapshot_txn + 1
        if is_past and lock_path is not None:
            reason = (
                f"the database was written to by a program that does not heed the lock file "
                f"{lock_path}: {numbers}; have all programs open it by one name and with a lock"
            )
        elif is_past:
            reason = (
                f"the database was written to while it was read without a lock: {numbers}; open it "
                f"again when the writer has ended, or with lock: true, which makes writers keep "
                f"what is read"
            )
        elif lock_path is not None:
            reason = (
                f"what the feed reads of the file was written over, and by no writer that heeds "
                f"the lock file {lock_path} ({numbers}): another file was copied over it; open it "
                f"again. Never copy over a database in use: replace it by renaming"
            )
        else:
            reason = (
                f"the file was modified while it was read without a lock, and no commit says why "
                f"({numbers}): another file was copied over it, or a writer is taking long over a "
                f"transaction; open it again when that has ended. Never copy over a database in "
                f"use: replace it by renaming. Beside a writer, lock: true"
            )
        super().__init__(path, reason)


class DatabaseInUseError(SourceError, RuntimeError):
    """Raised where other code of this process holds the same file open through lmdb."""


class StateError(PrefetchError, ValueError):
    """Raised for a saved state that this feed cannot continue from.

    Attributes:
        differences: What is otherwise than when it was saved, one sentence each.
    """

    def __init__(self, differences: tuple[str, ...]) -> None:
        self.differences = differences
        super().__init__(f"the saved state does not belong to this feed:{_join_lines(differences)}")


class RecordError(PrefetchError, ValueError):
    """Raised for a record that cannot be used.

    Attributes:
        database: Absolute path of the database.
        record: Index of the record in key order, counted from 0 within its database.
        key: The record's key; None where it could not be read.
        batch: Number of the batch in its epoch, counted from 0; None outside of a feed.
        stage: ``read``, ``parse``, ``validate``, ``decode``, ``transform`` or ``per_record``; for
            the last, what the function raised is the ``__cause__``.
        reason: What is wrong with it, in words.
    """

    def __init__(
        self,
        reason: str,
        *,
        database: str,
        record: int,
        key: bytes | None,
        stage: str,
        batch: int | None = None,
    ) -> None:
        self.database = database
        self.record = record
        self.key = key
        self.batch = batch
        self.stage = stage
        self.reason = reason
        named = "unknown" if key is None else f"'{printable_short_key(key)}'"
        in_batch = "" if batch is None else f", batch {batch}"
        super().__init__(
            f"{printable_path(database)}: record {record}, key {named}{in_batch}, stage {stage}: "
            f"{reason}"
        )


class TooManyBadRecordsError(PrefetchError, ValueError):
    """Raised when more records were bad than ``max_bad_records`` allows.

    Attributes:
        num_bad: How many different bad records were met.
        max_bad_records: How many the configuration allows.
        last: The error of the last of them.
    """

    def __init__(self, *, num_bad: int, max_bad_records: int, last: RecordError) -> None:
        self.num_bad = num_bad
        self.max_bad_records = max_bad_records
        self.last = last
        super().__init__(
            f"{counted(num_bad, 'bad record')}, and max_bad_records allows {max_bad_records}; "
            f"the last of them: {last}"
        )


class QuarantineError(PrefetchError, OSError):
    """Raised when a bad record cannot be written to the quarantine.

    Attributes:
        path: Absolute path of the quarantine.
        reason: What is in the way, such as what the system said.
    """

    def __init__(self, path: str, reason: str, *, cure: str | None = None) -> None:
        self.path = path
        self.reason = reason.rstrip(".")
        cure = cure or find_cure(reason)
        first = "" if cure is None else f"{cure}, "
        super().__init__(
            f"{printable_path(path)}: a bad record cannot be written there: {self.reason}; {first}"
            f"name another folder as quarantine, or use on_bad_record: skip"
        )


class BatchesHeldError(PrefetchError, RuntimeError):
    """Raised by next() when the consumer holds as many batches as it may; recoverable.

    Release one (drop every reference to its arrays) and call next() again: the same batch is
    served then.

    Attributes:
        num_held: How many batches the consumer holds.
        max_batches_held: How many the configuration allows.
        batches: (epoch, number) of each of them.
    """

    def __init__(self, *, max_batches_held: int, batches: tuple[tuple[int, int], ...]) -> None:
        self.num_held = len(batches)
        self.max_batches_held = max_batches_held
        self.batches = batches
        named = ", ".join(f"epoch {epoch} batch {number}" for epoch, number in batches)
        super().__init__(
            f"the consumer holds {counted(len(batches), 'batch', 'batches')} and max_batches_held "
            f"is {max_batches_held}; still referenced: {named} (a loop's variable holds the batch "
            f"before the one asked for{_kept_by_notebook()}); drop them or copy what is kept, then "
            f"call next() again, or raise max_batches_held"
        )


def _kept_by_notebook() -> str:
    """Say which names of an IPython that runs here hold batches; nothing where none runs."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return ""
    shown = dict(shell.user_ns.get("Out", {}))
    names = [f"Out[{number}]" for number, value in shown.items() if _holds_batch(value)]
    names += [name for name, value in list(shell.user_ns.items()) if _holds_batch(value)]
    held = f", here in {', '.join(names[:8])}" if names else ""
    # Not %reset -f out: IPython 9 keeps the last three elsewhere too.
    return (
        f"; IPython keeps what cells have shown in Out[], the last three also in _, __ and ___"
        f"{held}: call release() of them, as in {names[0] if names else '_'}.release()"
    )


def _holds_batch(value: object) -> bool:
    """Return whether a value is a batch, or a list or tuple of some."""
    if isinstance(value, list | tuple):
        return any(map(_holds_batch, value[:64]))
    return type(value).__name__ == "Batch" and type(value).__module__ == "prefetch"


class RingTooLargeError(PrefetchError, MemoryError):
    """Raised before a ring is allocated that the process or the device has no memory for.

    The process has what the machine has, or less: a control group, as containers have one, and
    ``ulimit`` may allow it less.

    Attributes:
        device: Name of the device whose memory does not suffice; None where it is the process's.
        batch_bytes: Bytes there of the largest batch.
        num_batches: Batches in the ring at the start: prefetch and the one in use.
        available_bytes: Bytes of memory that the device has, or that are left to the process.
    """

    def __init__(
        self,
        *,
        device: str | None,
        batch_bytes: int,
        num_batches: int,
        available_bytes: int,
        limit: str,
    ) -> None:
        self.device = device
        self.batch_bytes = batch_bytes
        self.num_batches = num_batches
        self.available_bytes = available_bytes
        super().__init__(
            f"the ring needs {batch_bytes * num_batches} bytes ({num_batches} batches of "
            f"{batch_bytes} bytes), and {limit}; lower batch_size or prefetch"
        )


class OutOfMemoryError(PrefetchError, MemoryError):
    """Raised where the process has no memory left for a step of the work; its cause is what failed.

    Attributes:
        database: Absolute path of the database.
        stage: ``open``, ``index``, ``plan``, ``read``, ``allocate``, ``fill``, ``push`` or
            ``per_batch``; between them ``reader``.
        epoch: Epoch of the batch, counted from 0; None where it happened in none.
        batch: Number of the batch in its epoch, counted from 0; None where it happened in none.
        reason: What Python said, which may be nothing.
    """

    def __init__(
        self,
        reason: str,
        *,
        database: str,
        stage: str,
        epoch: int | None = None,
        batch: int | None = None,
    ) -> None:
        self.database = database
        self.stage = stage
        self.epoch = epoch
        self.batch = batch
        self.reason = reason
        in_batch = "" if batch is None else f"epoch {epoch}, batch {batch}, "
        said = f" ({reason})" if reason else ""
        super().__init__(
            f"{printable_path(database)}: {in_batch}stage {stage}: the process has no memory left"
            f"{said}; lower batch_size, prefetch or threads, or allow it more (ulimit -v)"
        )


class ThreadStartError(PrefetchError, RuntimeError):
    """Raised where the system gives no further reader thread; the feed is closed then.

    Attributes:
        reason: What the system said.
        number: Which of the readers could not be started, counted from 0.
        threads: How many there were to be.
    """

    def __init__(self, reason: str, *, number: int, threads: int) -> None:
        self.reason = reason.rstrip(".")
        self.number = number
        self.threads = threads
        # Where not even the first was given, with fewer of them it would not be either.
        fewer = f"set threads to {number}, or " if number > 0 else ""
        super().__init__(
            f"thread ringfeed-reader-{number} cannot be started, {number + 1} of {threads}: "
            f"{self.reason}; {fewer}{ALLOW_MORE}"
        )


class BatchReleasedError(PrefetchError, RuntimeError):
    """Raised by the accessors of a batch after its release()."""


class LabelsNotProducedError(PrefetchError, AttributeError):
    """Raised by ``batch.label`` with ``labels: false``, or where the layer has one top only."""


class StaleIteratorError(PrefetchError, RuntimeError):
    """Raised by next() of an iterator after a newer iterator of the same feed has started."""


class EpochsExhaustedError(PrefetchError, RuntimeError):
    """Raised by a further ``for`` after every epoch that the configuration names.

    Attributes:
        epochs: How many epochs were configured, and served.
    """

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        super().__init__(
            f"all epochs that the configuration asks for have been served (epochs: {epochs}); "
            f"raise epochs, or leave it out for as many as the loop asks for"
        )


class FeedBusyError(PrefetchError, RuntimeError):
    """Raised by next() in a signal handler or a finalizer that interrupts another call; harmless.

    It would have to wait for what its own thread is in the middle of. `Feed.close`, `Feed.stats`
    and `Feed.state_dict` may be called there.
    """


class FeedClosedError(PrefetchError, RuntimeError):
    """Raised when a closed feed is asked for batches; says what closed it, if `close` did not."""


class PrefetchWarning(UserWarning):
    """Something that works, but hardly as meant: an option without effect, an epoch of nothing."""
