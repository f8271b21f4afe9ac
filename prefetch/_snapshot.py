"""Snapshots: one committed state of a database, the same for every reader of a feed.

A snapshot has one transaction of LMDB's, which says which state this is and, with a lock, pins it.
Nothing is read through it: LMDB trusts what a file says, and ends the process on some damaged
pages. Pages are read by our own code, which checks them (see `prefetch._pages`).

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
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import lmdb

from prefetch._database_file import DatabaseFile
from prefetch._errors import (
    CorruptDatabaseError,
    DatabaseChangedError,
    EmptyDatabaseError,
    FeedClosedError,
    SourceError,
    UnsupportedSourceError,
)
from prefetch._lmdb import hold_file, release, source_error, unlockable
from prefetch._pages import TreePages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from prefetch._database_file import Meta

# A writer that commits between every two looks of so many is not going to stop for us.
_TRIES: Final = 100


class Snapshot:
    """One committed state of a database, for any number of readers. Thread-safe.

    Args:
        source: The database's folder, its data file, or an environment that the caller has open
            and keeps open for as long as anything reads it.
        lock: Whether to register as a reader in the lock file, which pins the snapshot's pages.

    Attributes:
        path: Absolute path of the database, as the caller named it.
        file: The data file, open.
        meta: The state.
        shared: The environment that the transaction belongs to, held.

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
            self._transaction, self.meta = self._begin()
            undo.callback(self._transaction.abort)
            # Only a transaction that registered itself makes the table of readers count one.
            self._is_pinned = self.shared.environment.info()["num_readers"] > 0
            if lock and not self._is_pinned:  # so LMDB goes on where the file system is read-only
                raise unlockable(self.path, self.file.data_path)
            try:
                _check_kind(self.file, self.meta)
            except CorruptDatabaseError:
                self.check()  # pages that were written over look like damage
                raise
            undo.pop_all()
        self._closed = False
        self._uses: dict[int, AbstractContextManager[bool]] = {}

    @contextmanager
    def using(self) -> Iterator[None]:
        """Keep the snapshot open during a block; any number of threads may.

        Raises:
            FeedClosedError: The snapshot is closed.
        """
        # A lock for each thread, and none for all: a finalizer that closes waits for nobody who is
        # not reading. Reentrant, since Ctrl-C between here and the block leaves the lock taken for
        # as long as the traceback lives, and whoever handles it closes on this very thread.
        with self._uses.setdefault(threading.get_ident(), threading.RLock()):
            if self._closed:
                raise FeedClosedError(f"{self.path}: the record source is closed")
            yield

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
        """End the transaction and let go of the environment; idempotent.

        Waits for blocks that are using the snapshot. Memory that was handed out stays mapped.
        """
        if self._closed:
            return
        self._closed = True
        for use in list(self._uses.values()):
            with use:  # whoever takes it later finds the snapshot closed
                pass
        self._transaction.abort()
        release(self.shared)
        self.file.close()

    def _begin(self) -> tuple[lmdb.Transaction[memoryview], Meta]:
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
                    return transaction, meta
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
    if meta.has_several_values:
        raise UnsupportedSourceError(
            file.path, "keeps several values a key (dupsort); records have one each"
        )
    if TreePages(file, meta).holds_databases(leaf):
        raise UnsupportedSourceError(
            file.path,
            "holds named databases, and records are read from the main one only; "
            "copy the one with the records into a database of its own",
        )
