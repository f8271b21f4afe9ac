"""Snapshots: one committed state of a database, the same for every reader of a feed.

A snapshot has one transaction of LMDB's, which says which state this is and, with a lock, pins it.
Nothing is read through it: LMDB trusts what a file says, and ends the process on some damaged
pages. Pages are read by our own code, which checks them (see `prefetch._source.lmdb.pages`).

Without a lock (the default) nothing is written, and writers may use pages of the snapshot again:
two commits after the snapshot at the earliest, while they write the third. ``Snapshot.check``,
called after the reading, says whether all that was read is intact. With a lock the snapshot's pages
are pinned, for writers that heed the same lock file.

Truncation of the file, or an I/O error, under a mapping that is being read kills the process
(SIGBUS). ``Snapshot.check`` notices a file that was truncated before.
"""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import lmdb

from prefetch._errors.classes import (
    CorruptDatabaseError,
    DatabaseChangedError,
    DatabaseTruncatedError,
    EmptyDatabaseError,
    FeedClosedError,
    SourceError,
    UnsupportedSourceError,
)
from prefetch._source.lmdb.environment import hold_file, release, source_error, unlockable
from prefetch._source.lmdb.file import DatabaseFile
from prefetch._source.lmdb.pages import TreePages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from prefetch._source.lmdb.meta import Meta

# A commit writes its pages, waits for the disk and then writes the page that makes it the last,
# most often in milliseconds. There is no notification of it, so the page is polled.
_COMMIT_S: Final = 2.0
_LOOK_EVERY_S: Final = 0.005
# Of the first and the last record's value, which are compared with what they were.
_SAMPLE_BYTES: Final = 65536

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
            # Since before the state was read: what is modified from then on may not belong to it.
            modified_ns, self._transaction, self._committed = self._begin()
            undo.callback(self._transaction.abort)
            self._is_pinned = self._is_registered()
            if (
                lock and not self._is_pinned
            ):  # LMDB itself continues without, where the file system is read-only
                raise unlockable(self.path, self.file.data_path)
            self._closed = self._is_replaced = False
            # When the file was modified last at each commit that left the snapshot as it was.
            self._explained = {self._committed.txn_id: modified_ns}
            try:
                self.meta = self.file.as_stored(self._committed)
                _check_kind(self.file, self.meta)
            except (CorruptDatabaseError, DatabaseTruncatedError):
                self._check_commits()  # pages that were written over look like damage
                raise
            self._ends = _ends(self.file, self.meta)
            undo.pop_all()
        self._uses: dict[int, AbstractContextManager[bool]] = {}

    @contextmanager
    def using(self) -> Iterator[None]:
        """Keep the snapshot open during a block; any number of threads may.

        Raises:
            FeedClosedError: The snapshot is closed.
            DatabaseChangedError: The block found damage, and a writer is why.
            SourceError: The block found damage.
        """
        # A lock for each thread, and none for all: a finalizer that closes waits only for threads
        # that read. Reentrant, since Ctrl-C between here and the block leaves the lock taken for as
        # long as the traceback lives, and its handler closes on this very thread.
        with self._uses.setdefault(threading.get_ident(), threading.RLock()):
            if self._closed:
                raise FeedClosedError(f"{self.path}: the record source is closed")
            try:
                yield
            except CorruptDatabaseError:
                self.check()  # pages that were written over look like damage
                raise

    def check(self) -> None:
        """Raise unless all that was read of the snapshot so far is intact; costs about 2 us.

        Waits up to 2 s where the file was modified without a commit, for that may be under way.

        Raises:
            DatabaseTruncatedError: The file has become shorter than the snapshot's pages.
            DatabaseChangedError: Pages of the snapshot may have been written over.
            FeedClosedError: The snapshot was closed during the wait.
            SourceError: A foreign environment was closed.
        """
        modified_ns = self.file.check_size(self.meta)
        # In this order: a commit in between has a number that is not explained yet.
        if self._explained.get(self._last_txn()) != modified_ns:
            self._explain()

    @property
    def ends_digest(self) -> str:
        """SHA-256 of the leaf pages and values of the first and last record, in hexadecimal."""
        return hashlib.sha256(self._ends).hexdigest()

    def _last_txn(self) -> int:
        try:
            last: int = self.shared.environment.info()["last_txnid"]
        except lmdb.Error as error:
            raise source_error(self.path, error) from error
        return last

    def _is_registered(self) -> bool:
        # Only a transaction that registered itself makes the table of readers count one.
        return bool(self.shared.environment.info()["num_readers"] > 0)

    def _explain(self) -> None:
        """Raise unless a commit explains how the file was modified, and left the snapshot intact.

        Raises:
            DatabaseChangedError: There is no such commit, nor does one appear in 2 s.
        """
        deadline = monotonic() + _COMMIT_S
        while True:
            if self._closed:
                raise FeedClosedError(f"{self.path}: the record source is closed")
            modified_ns = self.file.check_size(self.meta)
            last = self._last_txn()
            # From the second commit after the snapshot on, a writer may be at the third, over pages
            # of the snapshot.
            if last < self.meta.txn_id or (last > self.meta.txn_id + 1 and not self._is_pinned):
                raise self._changed_error(last)
            if self._is_pinned:
                # Writers that heed the lock may take as long as they like: no wait for a commit.
                if self._is_heeded(last):
                    self._explained = {last: modified_ns}
                    return
            # The same before and after the look at the number: that commit did it, or one before.
            elif modified_ns == self.file.modified_ns():
                if last not in self._explained and not self._is_kept(last):
                    raise self._changed_error(self._last_txn())
                if self._explained.setdefault(last, modified_ns) == modified_ns:
                    return
            # A commit modifies the file some time before it shows, a long transaction perhaps long
            # before. A copy over the file, by another program, keeps its size and perhaps the
            # number of the last commit: after the wait the two cannot be distinguished.
            if self._is_replaced or monotonic() > deadline:
                self._is_replaced = True  # the next check need not wait for the same again
                raise self._changed_error(last)
            sleep(_LOOK_EVERY_S)

    def _is_heeded(self, last: int) -> bool:
        """Return whether the commits so far heeded the lock; one shows there after the file.

        Raises:
            DatabaseChangedError: What is pinned was written over.
        """
        if not self._is_kept(last):
            if self._last_txn() == last:
                raise self._changed_error(last)
            return False  # the commits after it have taken the place of the snapshot's meta
        # A commit that does not show in the lock file came by another name or without a lock.
        return last <= self.meta.txn_id + 1 or last <= self._last_heeding()

    def _last_heeding(self) -> int:
        """Return the number of the last commit that heeded the lock; 0 while no place is free.

        Raises:
            DatabaseInUseError: The file has grown past what this process has mapped.
        """
        try:
            transaction = self.shared.environment.begin()
        except lmdb.ReadersFullError:
            return 0
        except lmdb.Error as error:
            raise source_error(self.path, error) from error
        number: int = transaction.id()
        transaction.abort()
        return number

    def _check_commits(self) -> None:
        """Raise where commits may have written over pages of the snapshot."""
        last = self._last_txn()
        if not self._is_pinned and last not in (self._committed.txn_id, self._committed.txn_id + 1):
            raise self._changed_error(last)

    def _is_kept(self, last: int) -> bool:
        """Return whether the file still has the snapshot's meta and end records, as commits do."""
        is_meta_kept = last > self.meta.txn_id + 1 or self._committed in self.file.metas()
        return is_meta_kept and _ends(self.file, self.meta) == self._ends

    def _changed_error(self, last: int) -> DatabaseChangedError:
        return DatabaseChangedError(
            self.path,
            snapshot_txn=self._committed.txn_id,
            last_txn=last,
            lock_path=self.shared.lock_path if self._is_pinned else None,
        )

    def close(self) -> None:
        """End the transaction and release the environment; idempotent.

        Waits for blocks that are using the snapshot. Memory that was handed out stays mapped.
        """
        if self._closed:
            return
        self._closed = True
        for use in list(self._uses.values()):
            with use:  # a thread that takes it later finds the snapshot closed
                pass
        self._transaction.abort()
        release(self.shared)
        self.file.close()

    def _begin(self) -> tuple[int, lmdb.Transaction[memoryview], Meta]:
        """Begin a transaction, and find the state in the file that it sees.

        Returns:
            When the file was modified last before that, the transaction, and the state.
        """
        for _ in range(_TRIES):
            modified_ns = self.file.modified_ns()
            transaction = self._begin_registered()
            number, seen = transaction.id(), transaction.stat()
            metas = self.file.metas()
            # With a lock LMDB takes the meta page where commits of that number belong, without one
            # that with the larger number.
            is_registered, place = self._is_registered(), number & 1
            for meta in metas[place : place + 1] if is_registered else metas:
                if meta.txn_id == number and all(
                    seen[name] == getattr(meta, name)
                    for name in ("entries", "depth", "branch_pages", "leaf_pages")
                ):
                    return modified_ns, transaction, meta
            transaction.abort()
            if is_registered and metas[1 - place].txn_id == number:
                raise CorruptDatabaseError(
                    self.path,
                    f"has its last commit, {number}, on meta page {1 - place}, where LMDB does not "
                    f"look for it with a lock; set lock: false, or copy it again from its origin",
                )
        raise SourceError(
            self.path, "is written to so fast that no state of it can be read; wait for the writer"
        )

    def _begin_registered(self) -> lmdb.Transaction[memoryview]:
        """Begin a transaction; in a full lock file, in the place of a process that has ended.

        Raises:
            SourceError: LMDB begins none.
        """
        environment = self.shared.environment
        try:
            try:
                return environment.begin(buffers=True)
            except lmdb.ReadersFullError:
                environment.reader_check()
                return environment.begin(buffers=True)
        except lmdb.Error as error:
            raise source_error(self.path, error) from error


def _path_of(source: str | os.PathLike[str] | lmdb.Environment) -> str | os.PathLike[str]:
    if not isinstance(source, lmdb.Environment):
        return source
    try:
        path: str = os.fsdecode(source.path())
    except lmdb.Error as error:
        raise SourceError("lmdb.Environment", f"cannot be used: {error}") from error
    return path


def _ends(file: DatabaseFile, meta: Meta) -> bytes:
    """Return the leaf pages and the values of the first and last record, or much of them.

    Of damaged pages, what comes before the damage.
    """
    pages = TreePages(file, meta)
    found = b""
    with suppress(CorruptDatabaseError):
        for is_last in (False, True):
            leaf = pages.last_leaf() if is_last else pages.first_leaf()
            if leaf is None:
                break
            found += file.read(meta.page_bytes, leaf * meta.page_bytes)
            slot = pages.record_count(leaf) - 1 if is_last else 0
            _, _, begin, size = pages.locate(leaf, slot)
            found += file.read(min(size, _SAMPLE_BYTES), begin)
    return found


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
