"""Database files: finding one, telling what it is, and the states committed to it.

All of it is done through ``pread`` on a descriptor of our own, before LMDB maps the file: a mapping
of a truncated file kills the process at the first touch of what is missing.

The format is version 1 of LMDB (0.9.x), 64-bit little-endian. Its first two pages are the *metas*,
each the root of one committed state; a commit overwrites the older of them.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Final

from prefetch._errors.classes import (
    CorruptDatabaseError,
    DatabaseNotFoundError,
    DatabaseTruncatedError,
    SourceError,
    UnsupportedSourceError,
)
from prefetch._errors.os_errors import describe_os_error
from prefetch._files.path_hints import hint, images_hint, kind_of
from prefetch._source.lmdb.meta import Meta
from prefetch._source.lmdb.pages import TreePages

_PAGE_HEADER_BYTES: Final = 16
_META_FLAG: Final = 0x08
_MAGIC: Final = b"\xde\xc0\xef\xbe"
_VERSION: Final = 1

# A meta page: page header (the flags at byte 10), magic, version, address, map size, the tree of
# free pages (whose padding is the page size), the tree of records, last page in use, transaction.
_META: Final = struct.Struct("<10xH4x 4sI8xQ IHH32xQ 4xHHQQQQQ QQ")
_LARGEST_PAGE_BYTES: Final = 65536
_NO_ROOT: Final = 2**64 - 1
# A slot, a node's head, a key of one byte and the byte that makes that even.
_LEAST_RECORD_BYTES: Final = 12
# LMDB's own limit on the height of a tree.
_MOST_LEVELS: Final = 32
_NUM_METAS: Final = 2
_MOST_BYTES: Final = 2**63  # of a file

_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"
_DUMP: Final = "write it out there with mdb_dump, and load that here with mdb_load"


class DatabaseFile:
    """The data file of an LMDB database, open for reading.

    Thread-safe. Closing the descriptor drops no lock of LMDB's: those are on the lock file.

    Args:
        path: The database's folder, its ``data.mdb``, or a database that is a single file.

    Attributes:
        path: Absolute path, as the caller named it: the folder, or the file.
        data_path: Absolute path of the data file.
        identity: Device and inode: the same for every path that leads to the file.

    Raises:
        DatabaseNotFoundError: Nothing is at the path, or a folder without ``data.mdb``.
        UnsupportedSourceError: Something else is there.
        DatabaseTruncatedError: The file is shorter than its pages.
        SourceError: The file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)  # noqa: PTH100 - Path.absolute keeps the ".."
        self.data_path = _data_path(self.path)
        try:
            # It closes itself when Ctrl-C comes before anybody holds this object.
            self._file = FileIO(self.data_path)
            self._descriptor = self._file.fileno()
        except OSError as error:
            raise SourceError(self.path, f"cannot be read: {describe_os_error(error)}") from error
        try:
            status = os.fstat(self._descriptor)
            self.identity = (status.st_dev, status.st_ino)
            _recognise(self.path, self.read(512, 0))
            self.newest()
        except BaseException:
            self.close()
            raise

    def newest(self) -> Meta:
        """Return the last committed state, as it lies in the file; see `as_stored`.

        Raises:
            UnsupportedSourceError: The file is no LMDB database, or one of another kind.
            CorruptDatabaseError: No database is in such a state.
            DatabaseTruncatedError: The file is shorter than its pages.
        """
        while True:
            first, second = self.metas()
            # The one that LMDB takes, and only that is judged: a write that failed may have left
            # nonsense in the other.
            newest = second if second.txn_id > first.txn_id else first
            if newest.page_bytes != first.page_bytes:
                raise CorruptDatabaseError(
                    self.path,
                    f"says that its pages have {first.page_bytes} and {newest.page_bytes} bytes",
                )
            try:
                return self.as_stored(newest)
            except SourceError:
                if newest in self.metas():
                    raise  # else a writer has replaced it meanwhile

    def metas(self) -> tuple[Meta, Meta]:
        """Return the two committed states that the file keeps, as they say it; nothing is checked.

        One that a writer is replacing at the moment may be torn: take a state only where its
        numbers equal those that LMDB gives for the transaction, and then ``as_stored``.

        Raises:
            UnsupportedSourceError: The file is no LMDB database, or one of another kind.
            CorruptDatabaseError: It has no second meta page, for its pages are of no possible size.
            DatabaseTruncatedError: The file ends before its second page does.
        """
        first = self._meta(0, 2 * mmap.PAGESIZE)
        page_bytes = first.page_bytes
        if page_bytes & (page_bytes - 1) or not 256 <= page_bytes <= _LARGEST_PAGE_BYTES:
            raise CorruptDatabaseError(self.path, f"pages cannot have {page_bytes} bytes")
        return first, self._meta(page_bytes, 2 * page_bytes)

    def as_stored(self, meta: Meta) -> Meta:
        """Return a state with the last page that the file has for it; costs one fstat.

        Where the file is shorter than the state's pages, those that its trees use are looked for,
        which reads all of their leaves.

        Raises:
            CorruptDatabaseError: No database is in such a state.
            DatabaseTruncatedError: The file ends before a page that one of them uses.
        """
        _check_possible(self.path, meta)
        num_pages = os.fstat(self._descriptor).st_size // meta.page_bytes
        if num_pages > meta.last_page:
            return meta
        # A sound file may be shorter: a page that was allocated and freed within one transaction is
        # never written. It is truncated if a page that its trees use is missing.
        if num_pages < _NUM_METAS or not all(
            TreePages(self, tree).lie_within(num_pages) for tree in (meta, meta.free)
        ):
            self.check_size(meta)
        return replace(meta, last_page=min(meta.last_page, num_pages - 1))

    def read(self, num_bytes: int, offset: int) -> bytes:
        """Return a part of the file, less where the file ends.

        Raises:
            SourceError: The file cannot be read.
        """
        try:
            return os.pread(self._descriptor, num_bytes, offset)
        except OSError as error:
            raise SourceError(self.path, f"cannot be read: {describe_os_error(error)}") from error

    def read_all(self, num_bytes: int, offset: int, meta: Meta) -> bytes:
        """Return a part of a state's pages, all of it.

        Raises:
            DatabaseTruncatedError: The file is shorter than those pages.
            SourceError: The file cannot be read.
        """
        found = self.read(num_bytes, offset)
        while len(found) < num_bytes:  # one call of the system reads 2 GB at most
            more = self.read(num_bytes - len(found), offset + len(found))
            if not more:
                self.check_size(meta)
                raise SourceError(self.path, f"ends before byte {offset + num_bytes}")
            found += more
        return found

    def fileno(self) -> int:
        """Return the descriptor, so that the file can be mapped; it stays this object's."""
        return self._descriptor

    def check_size(self, meta: Meta) -> int:
        """Raise where the file is shorter than a state's pages; costs one fstat.

        Returns:
            When the file was modified last, in nanoseconds, by its file system.

        Raises:
            DatabaseTruncatedError: The file is shorter.
        """
        status = os.fstat(self._descriptor)
        if status.st_size < meta.size_bytes:
            raise DatabaseTruncatedError(
                self.path, expected_bytes=meta.size_bytes, actual_bytes=status.st_size
            )
        return status.st_mtime_ns

    def modified_ns(self) -> int:
        """Return when the file was modified last, as `check_size` does."""
        return os.fstat(self._descriptor).st_mtime_ns

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        self._descriptor = -1
        self._file.close()

    def _meta(self, offset: int, end: int) -> Meta:
        """Return the state in a meta page that ends at a byte of the file."""
        page = self.read(_META.size, offset)
        if len(page) < _META.size:
            raise DatabaseTruncatedError(
                self.path, expected_bytes=end, actual_bytes=offset + len(page)
            )
        page_flags, magic, version, map_bytes, page_bytes, *trees, last_page, txn_id = _META.unpack(
            page
        )
        free_flags, free_depth, free_root, *tree = trees
        flags, depth, branches, leaves, overflow, entries, root = tree
        if magic != _MAGIC or not page_flags & _META_FLAG:
            raise UnsupportedSourceError(
                self.path, f"is no LMDB database: there is no meta page at byte {offset}"
            )
        if version != _VERSION:
            raise UnsupportedSourceError(
                self.path,
                f"was written in version {version} of LMDB's format, and version {_VERSION} "
                f"(LMDB 0.9) is read here; dump it with mdb_dump and load it with mdb_load 0.9",
            )
        return Meta(
            txn_id=txn_id,
            map_bytes=map_bytes,
            page_bytes=page_bytes,
            last_page=last_page,
            root=None if root == _NO_ROOT else root,
            depth=depth,
            branch_pages=branches,
            leaf_pages=leaves,
            overflow_pages=overflow,
            entries=entries,
            flags=flags,
            free_root=None if free_root == _NO_ROOT else free_root,
            free_depth=free_depth,
            free_flags=free_flags,
        )


def _check_possible(path: str, meta: Meta) -> None:
    """Raise where a state's numbers contradict each other.

    Raises:
        CorruptDatabaseError: They do.
    """
    if meta.size_bytes >= _MOST_BYTES:
        raise CorruptDatabaseError(path, f"cannot have {meta.last_page + 1} pages")
    if meta.depth > _MOST_LEVELS or (meta.root is None) != (meta.entries == 0):
        raise CorruptDatabaseError(
            path,
            f"a tree of {meta.depth} levels from page {meta.root} cannot hold {meta.entries} "
            f"records",
        )
    most = meta.leaf_pages * (meta.page_bytes // _LEAST_RECORD_BYTES)
    if meta.branch_pages + meta.leaf_pages + meta.overflow_pages > meta.last_page or (
        meta.entries > most and not meta.has_several_values
    ):
        raise CorruptDatabaseError(
            path,
            f"{meta.entries} records cannot lie in {meta.leaf_pages} leaf pages of "
            f"{meta.page_bytes} bytes, nor {meta.branch_pages} + {meta.leaf_pages} + "
            f"{meta.overflow_pages} pages in {meta.last_page + 1}",
        )


def _data_path(path: str) -> str:
    """Return the data file of the database at a path.

    Raises:
        DatabaseNotFoundError: There is none.
        UnsupportedSourceError: It is a LevelDB, or neither a file nor a folder.
        SourceError: The path cannot be looked at.
    """
    if "\0" in path:
        raise DatabaseNotFoundError(path.replace("\0", "\\x00"), "no path holds a NUL character")
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - paths are plain strings here
        names = sorted(os.listdir(path)) if stat.S_ISDIR(mode) else None  # noqa: PTH208 - as above
    except (FileNotFoundError, NotADirectoryError):
        raise DatabaseNotFoundError(
            path, f"there is nothing here; {_nearest(path)}{hint(path)}"
        ) from None
    except OSError as error:
        raise SourceError(path, f"cannot be read: {describe_os_error(error)}") from error
    if names is not None:
        return _data_path_in(path, names)
    if not stat.S_ISREG(mode):
        raise UnsupportedSourceError(
            path, "is neither a folder nor a file; give the folder of an LMDB database"
        )
    return path


def _data_path_in(folder: str, names: list[str]) -> str:
    if "data.mdb" in names:
        data = Path(folder, "data.mdb")
        if not data.is_file():
            raise UnsupportedSourceError(folder, "data.mdb in it is no file, or leads to none")
        return str(data)
    if "CURRENT" in names and any(name.startswith("MANIFEST-") for name in names):
        raise UnsupportedSourceError(
            folder,
            "is a LevelDB, which is not read here; convert it to LMDB: "
            "ringfeed convert LEVELDB NEW",
        )
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    found = f"the folder has no data.mdb; it holds {shown or 'nothing'}"
    raise DatabaseNotFoundError(folder, f"{found}{images_hint(folder, names)}")


def _nearest(path: str) -> str:
    """Say how far along a path something exists."""
    for parent in Path(path).parents:
        if parent.is_dir():
            return f"the nearest folder that exists is {parent}"
        if parent.exists():
            return f"{parent} is a file"
    return "nor does any folder above it exist"


def _recognise(path: str, head: bytes) -> None:
    """Raise unless a file that begins with ``head`` looks like a database that is read here.

    Raises:
        UnsupportedSourceError: It does not.
    """
    if head[_PAGE_HEADER_BYTES : _PAGE_HEADER_BYTES + 4] == _MAGIC:
        return
    if not head:
        reason = "is an empty file (0 bytes): its writer never committed, or a copy failed"
    elif head.startswith(_LFS_POINTER):
        reason = "is a Git LFS pointer, not the database itself; fetch it with: git lfs pull"
    elif head[12:16] == _MAGIC:
        reason = f"was written by a 32-bit LMDB, whose pages differ; {_DUMP}, by a 64-bit LMDB"
    elif _MAGIC[::-1] in (head[12:16], head[16:20]):
        reason = f"was written by a big-endian machine, whose pages differ; {_DUMP}"
    else:
        kind = kind_of(head)
        reason = f"is no LMDB database: the file begins with the bytes {head[:8].hex(' ')}"
        if kind is not None:
            reason = f"is no LMDB database, but {kind}"
    raise UnsupportedSourceError(path, reason)
