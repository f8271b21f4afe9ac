"""A database that is being written: under another name until it is whole.

All of it lies in the folder ``NAME.partial`` beside its final place ``NAME``:

- ``conversion.json`` says what is being converted, so that only the same is resumed. Whoever
  writes holds a lock on it, which ends with the process, however that ends.
- ``notes`` holds a note of each record put, with the stamp of its source. It
  may hold some of records that were not committed, and lack some after a crash of the machine.
- ``database/`` holds the records committed so far. A commit is all or nothing, on disk when it
  returns, so that a killed process or a full disk costs the records since the last one at most.

Finished, ``database/`` is renamed to its final name, which is all or nothing too.

LMDB's map, the most that a database can grow to, starts small and grows by what is needed: readers
reserve as much address space as the last map had. A transaction that fills it is taken back, and
written again into a larger one, so that nothing is lost and nothing is stored twice.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, Self

import lmdb

from prefetch._files.output import cure, free_bytes, room
from prefetch._tools.convert.draft_folder import (
    OPEN_FLAGS,
    agree_on_description,
    check_free,
    check_whole,
    lock_description,
    sync,
)
from prefetch._tools.convert.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOTE_BYTES: Final = 48
_MAP_BYTES: Final = 1 << 20
_GROWTH: Final = 1.125
_FULL_BYTES: Final = 1 << 20  # a disk with less has refused a write for want of room
# A commit waits for the disk: it should be worth it, and cost little to do again.
_COMMIT_BYTES: Final = 1 << 25
_COMMIT_RECORDS: Final = 5000
# Pages that were freed between commits are given back by copying the database, which costs as much
# time and room again; below this share of its size they stay.
_WASTE: Final = 1 / 256


class Draft:
    """A database that is being written; one thread at a time.

    Args:
        final: Where it goes.
        description: What is converted; compared where a draft is resumed.
        resume: Continue a draft that an earlier process left, if there is one.
        force: Replace the database that is at the final place, once this one is whole; without
            ``resume`` also remove a draft that an earlier process left.
        map_bytes: LMDB's map to begin with.
        commit_bytes: Records are committed whenever there are so many bytes of them.

    Raises:
        ConversionError: Something is at the final place, or an earlier process has left a draft and
            it is not to be resumed, or is of something else; or another process is writing it; or
            the folders cannot be made.
    """

    def __init__(
        self,
        final: Path,
        description: dict[str, Any],
        *,
        resume: bool = False,
        force: bool = False,
        map_bytes: int = _MAP_BYTES,
        commit_bytes: int = _COMMIT_BYTES,
    ) -> None:
        self._final = final.absolute()
        self.folder = self._final.with_name(f"{self._final.name}.partial")
        self._force = force
        check_free(self._final, force=force)
        self._made: list[Path] = []
        try:
            self._made += (one for one in self._final.parents if not one.exists())
            self._final.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(exist_ok=True)
            self._lock = lock_description(self.folder / "conversion.json")
        except OSError as error:
            self._remove_made()
            raise self._not_begun(error) from error
        with ExitStack() as undo:
            undo.callback(os.close, self._lock)
            try:
                agree_on_description(
                    self._lock, self.folder, description, resume=resume, force=force
                )
                self._notes = os.open(self.folder / "notes", OPEN_FLAGS, 0o666)
                undo.callback(os.close, self._notes)
                check_whole(self.folder / "database")
                self._environment = lmdb.open(
                    os.fsencode(self.folder / "database"),
                    map_size=map_bytes,
                    lock=False,
                    mode=0o777,  # less umask, as for every other file; LMDB's binding has 0755
                )
                undo.callback(self._environment.close)
                self._last_key = self._stored_last_key()
            except (lmdb.Error, OSError) as error:
                raise self._not_begun(error) from error
            self._undo = undo.pop_all()
        self._commit_bytes = commit_bytes
        self._pending: list[tuple[bytes, bytes]] = []
        self._pending_bytes = 0
        self._pending_notes: list[bytes] = []
        # What follows the last whole note is of a write that was cut.
        self._notes_end = os.fstat(self._notes).st_size // NOTE_BYTES * NOTE_BYTES
        self._closed = False

    @property
    def num_committed(self) -> int:
        """How many records are stored for good."""
        entries: int = self._environment.stat()["entries"]
        return entries

    def keys(self) -> Iterator[bytes]:
        """Yield the keys that are stored, in order."""
        with self._environment.begin() as transaction:
            yield from transaction.cursor().iternext(keys=True, values=False)

    def value(self, key: bytes) -> bytes | None:
        """Return the value that is stored under a key."""
        with self._environment.begin() as transaction:
            value: bytes | None = transaction.get(key)
            return value

    def notes(self) -> bytes:
        """Return the notes of what was put and committed, and of some that was not, in order."""
        content = b""
        while len(content) < self._notes_end:
            content += os.pread(self._notes, self._notes_end - len(content), len(content))
        return content

    def put(self, key: bytes, value: bytes, *, note: bytes = b"") -> None:
        """Store a record, at the latest when it is finished.

        Args:
            key: Its key.
            value: Its value.
            note: `NOTE_BYTES` that are kept of it until all is finished, or none.

        Raises:
            ConversionError: The disk is full, or fails.
        """
        self._pending.append((key, value))
        if note:
            self._pending_notes.append(note)
        self._pending_bytes += len(key) + len(value)
        if self._pending_bytes >= self._commit_bytes or len(self._pending) >= _COMMIT_RECORDS:
            self.commit()

    def commit(self) -> None:
        """Store what was put since the last commit; on disk when it returns.

        Raises:
            ConversionError: The disk is full, or fails; what was committed before is intact.
        """
        while self._pending:
            last = self._last_key
            try:
                self._write_notes()
                with self._environment.begin(write=True) as transaction:
                    for key, value in self._pending:
                        is_next = key > last
                        transaction.put(key, value, append=is_next)
                        last = key if is_next else last
            except lmdb.MapFullError:
                self._grow()
            except (lmdb.Error, OSError) as error:
                raise self._failure(error) from error
            else:
                self._last_key = last
                self._pending = []
                self._pending_bytes = 0

    def finish(self, files: dict[str, str] | None = None) -> int:
        """Give the database its final name, and return its size in bytes.

        Args:
            files: Text files that go beside its data: names and contents.

        Raises:
            ConversionError: The disk is full, or fails; it can be resumed then.
        """
        self.commit()
        if os.path.lexists(self._final) and not self._force:
            raise self._overtaken()
        try:
            database = self._compact()
            for name, content in (files or {}).items():
                path = database / name
                path.write_text(content, encoding="utf-8", errors="surrogateescape")
                sync(path)
            sync(database / "data.mdb")
            sync(database)
            self._take_place(database)
            sync(self._final.parent)
        except (lmdb.Error, OSError) as error:
            raise self._failure(error) from error
        self.discard()
        return (self._final / "data.mdb").stat().st_size

    def discard(self) -> None:
        """Close the draft and remove it, and the folders that were made for it alone."""
        self._environment.close()
        shutil.rmtree(self.folder, ignore_errors=True)  # what is left is no database
        self._remove_made()
        self.close()  # last, so that no other process begins in a folder that is being removed

    def close(self) -> None:
        """Close the draft as it is, without what is not committed; idempotent."""
        if not self._closed:
            self._closed = True
            self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _remove_made(self) -> None:
        """Remove the folders above that were made for the draft, as far as nothing is in them."""
        with suppress(OSError):
            for folder in self._made:
                folder.rmdir()

    def _stored_last_key(self) -> bytes:
        with self._environment.begin() as transaction:
            cursor = transaction.cursor()
            return cursor.key() if cursor.last() else b""

    def _write_notes(self) -> None:
        """Add the notes of what is to be committed; those of a commit that fails stay."""
        content, end = b"".join(self._pending_notes), self._notes_end
        while content:
            written = os.pwrite(self._notes, content, end)
            content, end = content[written:], end + written
        self._pending_notes, self._notes_end = [], end

    def _grow(self) -> None:
        size = self._environment.info()["map_size"]
        page = self._environment.stat()["psize"]
        grown = max(int(size * _GROWTH), size + 2 * self._pending_bytes)
        self._environment.set_mapsize(-(-grown // page) * page)

    def _compact(self) -> Path:
        """Return the folder of the closed database, copied without its free pages if that pays."""
        stat, info = self._environment.stat(), self._environment.info()
        num_pages = info["last_pgno"] + 1
        used = sum(stat[kind] for kind in ("branch_pages", "leaf_pages", "overflow_pages"))
        database = self.folder / "database"
        if num_pages - used - 2 > num_pages * _WASTE:
            compact = self.folder / "compact"
            shutil.rmtree(compact, ignore_errors=True)
            compact.mkdir()
            self._environment.set_mapsize(num_pages * stat["psize"])
            self._environment.copy(os.fsencode(compact), compact=True)  # type: ignore[arg-type]
            database = compact
        self._environment.close()
        return database

    def _take_place(self, database: Path) -> None:
        """Give the database its final name; what is to be replaced goes with the draft's folder."""
        replaced = self.folder / "replaced"
        if self._force and os.path.lexists(self._final):
            check_free(self._final, force=True)  # it may have become something else meanwhile
            self._final.rename(replaced)
        try:
            database.rename(self._final)
        except OSError:
            if os.path.lexists(self._final):
                raise self._overtaken() from None
            if replaced.exists():
                replaced.rename(self._final)
            raise

    def _overtaken(self) -> ConversionError:
        return ConversionError(
            f"{self._final}: was made by another process meanwhile; remove it and continue with "
            f"--resume"
        )

    def _not_begun(self, error: lmdb.Error | OSError) -> ConversionError:
        if isinstance(error, FileExistsError):
            what, help_ = f"{error.filename} is no folder", "name another place"
        elif isinstance(error, OSError):
            what, help_ = error.strerror or str(error), cure(error, self.folder)
        elif isinstance(error, lmdb.DiskError):
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            what, help_ = str(error), cure(full, self.folder)
        else:
            what = str(error)
            help_ = "remove the folder to begin anew, without --resume"
        return ConversionError(
            f"{self.folder}: the database cannot be begun there: {what}; {help_}"
        )

    def _failure(self, error: lmdb.Error | OSError) -> ConversionError:
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        left = room(self.folder)
        # LMDB reports a full disk as an I/O error.
        is_full = isinstance(error, lmdb.Error) and free_bytes(self.folder) < _FULL_BYTES
        if is_full or getattr(error, "errno", None) == errno.ENOSPC:
            what = f"the disk is full ({what})"
        return ConversionError(
            f"{self.folder}: writing the database failed: {what}; {left}; "
            f"what was written before is kept: see to the disk and continue with --resume"
        )
