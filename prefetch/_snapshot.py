"""Snapshots: one committed state of a database, the same for every reader of a feed.

Readers begin transactions of their own as long as nothing was committed since the first. After a
commit a new transaction would see more, so a later reader shares the snapshot's first one, which
LMDB allows where its use is serialised.

Without a lock (the default) nothing is written, and nothing keeps a writer from using pages of the
snapshot again. It does so two commits after the snapshot at the earliest, while it is writing the
third: as long as the last commit is the snapshot's or the one after, all that was read is intact.
``Snapshot.check`` says so, after the reading. With a lock the snapshot's pages are pinned.

Truncation of the file, or an I/O error, under a mapping that is being read kills the process
(SIGBUS). ``Snapshot.check`` notices a file that was truncated before.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import lmdb

from prefetch._database_file import DatabaseFile
from prefetch._errors import (
    DatabaseChangedError,
    EmptyDatabaseError,
    FeedClosedError,
    SourceError,
    UnsupportedSourceError,
)
from prefetch._lmdb import hold_file, release, source_error
from prefetch._pages import TreePages

if TYPE_CHECKING:
    from prefetch._database_file import Meta

_SEVERAL_VALUES_A_KEY: Final = 0x04
# A writer that commits between every two looks of so many is not going to stop for us.
_TRIES: Final = 100


@dataclass(slots=True, eq=False)
class Reading:
    """A read transaction of a snapshot, for one thread at a time.

    Attributes:
        transaction: Values are memoryviews.
        lock: Held by whoever uses the transaction; several may share one.
        closed: Set under the lock when the transaction has ended.
    """

    transaction: lmdb.Transaction[memoryview]
    lock: threading.Lock = field(default_factory=threading.Lock)
    closed: bool = False

    def close(self) -> None:
        """End the transaction, after the call that uses it at the moment; idempotent."""
        with self.lock:
            if not self.closed:
                self.closed = True
                self.transaction.abort()


class Snapshot:
    """One committed state of a database, for any number of readers. Thread-safe.

    Args:
        source: The database's folder, its data file, or an environment that the caller has open
            and keeps open for as long as anything reads it.
        lock: Whether to register as a reader in the lock file, which pins the snapshot's pages.
            Where the folder cannot be written to, the database is read without, which is logged.

    Attributes:
        path: Absolute path of the database, as the caller named it.
        file: The data file, open.
        meta: The state.
        shared: The environment that the transactions belong to, held.

    Raises:
        SourceError: The database cannot be read; the subclass says why.
    """

    def __init__(
        self, source: str | os.PathLike[str] | lmdb.Environment, *, lock: bool = False
    ) -> None:
        foreign = source if isinstance(source, lmdb.Environment) else None
        with ExitStack() as undo:
            self.file = DatabaseFile(_path_of(source))
            undo.callback(self.file.close)
            self.path = self.file.path
            self.shared = hold_file(self.file, foreign, lock=lock)
            undo.callback(release, self.shared)
            self._first, self.meta = self._begin_first()
            undo.callback(self._first.close)
            # Only a transaction that registered itself makes the table of readers count one.
            self._is_pinned = self.shared.environment.info()["num_readers"] > 0
            _check_kind(self.file, self.meta)
            undo.pop_all()
        self._readings = [self._first]
        self._closed = False

    def reading(self) -> Reading:
        """Return a transaction of this snapshot: one of its own, or the first one where it must.

        Raises:
            SourceError: LMDB cannot begin one.
            FeedClosedError: The snapshot is closed.
        """
        if self._closed:
            raise FeedClosedError(f"{self.path}: closed")
        try:
            transaction = self.shared.environment.begin(buffers=True)
        except (lmdb.MapResizedError, lmdb.ReadersFullError):
            return self._first
        except lmdb.Error as error:
            raise source_error(self.path, error) from error
        if transaction.id() != self.meta.txn_id:
            transaction.abort()
            return self._first
        reading = Reading(transaction)
        self._readings.append(reading)
        return reading

    def give_back(self, reading: Reading) -> None:
        """End a transaction that ``reading`` returned, unless others share it; idempotent."""
        if reading is not self._first:
            reading.close()
            with suppress(ValueError):  # closing takes them out too
                self._readings.remove(reading)

    def check(self) -> None:
        """Raise unless all that was read of the snapshot so far is intact; costs about 2 us.

        Raises:
            DatabaseTruncatedError: The file has become shorter than the snapshot's pages.
            DatabaseChangedError: Pages of the snapshot may have been written over.
            SourceError: A foreign environment was closed.
        """
        self.file.check_size(self.meta)
        if self._is_pinned:
            return
        try:
            last = self.shared.environment.info()["last_txnid"]
        except lmdb.Error as error:
            raise source_error(self.path, error) from error
        if last > self.meta.txn_id + 1:
            raise DatabaseChangedError(self.path, snapshot_txn=self.meta.txn_id, last_txn=last)

    def close(self) -> None:
        """End all transactions and let go of the environment; idempotent.

        Waits for calls that are using a transaction. Memory that was handed out stays mapped while
        somebody holds the environment.
        """
        if self._closed:
            return
        self._closed = True
        while self._readings:
            self._readings.pop().close()
        release(self.shared)
        self.file.close()

    def _begin_first(self) -> tuple[Reading, Meta]:
        """Begin a transaction, and find the state in the file that it sees."""
        for _ in range(_TRIES):
            try:
                transaction = self.shared.environment.begin(buffers=True)
            except lmdb.Error as error:
                raise source_error(self.path, error) from error
            seen = transaction.stat()
            for meta in self.file.metas():
                if meta.txn_id == transaction.id() and all(
                    seen[name] == getattr(meta, name)
                    for name in ("entries", "depth", "branch_pages", "leaf_pages")
                ):
                    return Reading(transaction), meta
            transaction.abort()
        raise SourceError(
            self.path, "is written to so fast that no state of it can be read; wait for the writer"
        )


def _path_of(source: str | os.PathLike[str] | lmdb.Environment) -> str | os.PathLike[str]:
    if not isinstance(source, lmdb.Environment):
        return source
    try:
        path: str = os.fsdecode(source.path())
    except lmdb.Error as error:
        raise SourceError("lmdb.Environment", f"cannot be used: {error}") from error
    return path


def _check_kind(file: DatabaseFile, meta: Meta) -> None:
    """Raise unless a state holds records.

    Raises:
        EmptyDatabaseError: It holds nothing.
        UnsupportedSourceError: It holds named databases, or several values a key.
    """
    leaf = TreePages(file, meta).first_leaf()
    if leaf is None:
        raise EmptyDatabaseError(file.path, "holds no records: its writer stored none")
    if meta.flags & _SEVERAL_VALUES_A_KEY:
        raise UnsupportedSourceError(
            file.path, "keeps several values a key (dupsort); records have one each"
        )
    if TreePages(file, meta).holds_databases(leaf):
        raise UnsupportedSourceError(
            file.path,
            "holds named databases, and records are read from the main one only; "
            "copy the one with the records into a database of its own",
        )
