"""A database that is being written: under another name until it is whole.

All of it lies in the folder ``NAME.partial`` beside its final place ``NAME``:

- ``conversion.json`` says what is being converted, so that only the same is gone on with. Whoever
  writes holds a lock on it, which ends with the process, however that ends.
- ``database/`` holds the records committed so far. A commit is all or nothing, on disk when it
  returns, so that a killed process or a full disk costs the records since the last one at most.

Finished, ``database/`` is renamed to its final name, which is all or nothing too.

LMDB's map, the most that a database can grow to, starts small and grows by what is needed: readers
reserve as much address space as the last map had. A transaction that fills it is taken back, and
written again into a larger one, so that nothing is lost and nothing is stored twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from typing import TYPE_CHECKING, Any, Final, Self

import lmdb

from prefetch._convert._errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAP_BYTES: Final = 1 << 20
_GROWTH: Final = 1.125
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
        description: What is converted; compared where a draft is gone on with.
        resume: Go on with a draft that an earlier process left, if there is one.
        map_bytes: LMDB's map to begin with.
        commit_bytes: Records are committed whenever there are so many bytes of them.

    Raises:
        ConversionError: Something is at the final place, or an earlier process has left a draft and
            it is not to be resumed, or is of something else; or another process is writing it.
        OSError: The folders cannot be made.
    """

    def __init__(
        self,
        final: Path,
        description: dict[str, Any],
        *,
        resume: bool = False,
        map_bytes: int = _MAP_BYTES,
        commit_bytes: int = _COMMIT_BYTES,
    ) -> None:
        self._final = final.absolute()
        self.folder = self._final.with_name(f"{self._final.name}.partial")
        if os.path.lexists(self._final):
            raise ConversionError(
                f"{self._final}: is there already; remove it, or choose another name"
            )
        self._final.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(exist_ok=True)
        self._lock = _locked(self.folder / "conversion.json")
        try:
            _agree(self._lock, self.folder, description, resume=resume)
            self._environment = lmdb.open(
                str(self.folder / "database"), map_size=map_bytes, lock=False
            )
        except BaseException:
            os.close(self._lock)
            raise
        self._commit_bytes = commit_bytes
        self._pending: list[tuple[bytes, bytes]] = []
        self._pending_bytes = 0
        self._last_key = self._stored_last_key()
        self._closed = False

    def keys(self) -> Iterator[bytes]:
        """Yield the keys that are stored, in order."""
        with self._environment.begin() as transaction:
            yield from transaction.cursor().iternext(keys=True, values=False)

    def first_value(self) -> bytes | None:
        """Return the value of the first record that is stored."""
        with self._environment.begin() as transaction:
            cursor = transaction.cursor()
            return cursor.value() if cursor.first() else None

    def put(self, key: bytes, value: bytes) -> None:
        """Store a record, at the latest when it is finished.

        Raises:
            ConversionError: The disk is full, or fails.
        """
        self._pending.append((key, value))
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
                with self._environment.begin(write=True) as transaction:
                    for key, value in self._pending:
                        is_next = key > last
                        transaction.put(key, value, append=is_next)
                        last = key if is_next else last
            except lmdb.MapFullError:
                self._grow()
            except lmdb.Error as error:
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
        try:
            database = self._compacted()
            for name, content in (files or {}).items():
                path = database / name
                path.write_text(content, encoding="utf-8", errors="surrogateescape")
                _sync(path)
            _sync(database / "data.mdb")
            _sync(database)
            database.rename(self._final)
            _sync(self._final.parent)
        except (lmdb.Error, OSError) as error:
            raise self._failure(error) from error
        self.discard()
        return (self._final / "data.mdb").stat().st_size

    def discard(self) -> None:
        """Close the draft and remove it."""
        self._environment.close()
        shutil.rmtree(self.folder, ignore_errors=True)  # what is left is no database
        self.close()

    def close(self) -> None:
        """Close the draft as it is, without what is not committed; idempotent."""
        if not self._closed:
            self._closed = True
            self._environment.close()
            os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _stored_last_key(self) -> bytes:
        with self._environment.begin() as transaction:
            cursor = transaction.cursor()
            return cursor.key() if cursor.last() else b""

    def _grow(self) -> None:
        size = self._environment.info()["map_size"]
        page = self._environment.stat()["psize"]
        grown = max(int(size * _GROWTH), size + 2 * self._pending_bytes)
        self._environment.set_mapsize(-(-grown // page) * page)

    def _compacted(self) -> Path:
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
            self._environment.copy(str(compact), compact=True)
            database = compact
        self._environment.close()
        return database

    def _failure(self, error: lmdb.Error | OSError) -> ConversionError:
        free = shutil.disk_usage(self.folder).free  # LMDB tells a full disk as an I/O error
        return ConversionError(
            f"{self.folder}: writing the database failed: {error}; {free} bytes are free there; "
            f"what was written before is kept: see to the disk and go on with --resume"
        )


def _locked(path: Path) -> int:
    """Open the file that describes a draft, and return its descriptor, locked.

    Raises:
        ConversionError: Another process has it locked.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o664)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConversionError(f"{path.parent}: another conversion is writing it") from None
    return descriptor


def _agree(descriptor: int, folder: Path, description: dict[str, Any], *, resume: bool) -> None:
    """Write the description of a new draft, or compare it with that of an old one.

    Raises:
        ConversionError: There is an old one that is not to be resumed, or of something else.
    """
    content = os.pread(descriptor, 1 << 20, 0)
    if not content:
        os.pwrite(descriptor, json.dumps(description, indent=2).encode(), 0)
        os.fsync(descriptor)
        shutil.rmtree(folder / "database", ignore_errors=True)
        return
    if not resume:
        raise ConversionError(
            f"{folder}: an earlier conversion has not finished; go on with it with --resume, "
            f"or remove the folder to begin anew"
        )
    try:
        before = json.loads(content)
    except ValueError:
        before = {}
    other = sorted(
        name for name in {*before, *description} if before.get(name) != description.get(name)
    )
    if other:
        raise ConversionError(
            f"{folder}: cannot be resumed, since what is converted has changed "
            f"({', '.join(other)}); repeat the same command, or remove the folder to begin anew"
        )


def _sync(path: Path) -> None:
    """Wait until a file or a folder's entries are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
