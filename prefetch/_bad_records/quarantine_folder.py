"""The folder of a quarantine: making it whole, telling it from other databases, what goes wrong.

LMDB never opens a database again whose making was cut short, as by a full disk. So a quarantine is
made under another name and linked to its own. An empty file beside it says what it is. Quarantines
of earlier versions lack that, and are recognised by how they were written: each record in a
transaction of its own, into a map that grew with them.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Final

import lmdb

from prefetch._errors.classes import QuarantineError, SourceError
from prefetch._errors.printable import counted
from prefetch._source.lmdb.before_writing import check_sound, find_irregular
from prefetch._source.lmdb.file import DatabaseFile
from prefetch._source.lmdb.lock_file import LOCK_FILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from prefetch._source.lmdb.meta import Meta

MARK: Final = "ringfeed-quarantine"
"""Name of the file that says that the database beside it is a quarantine."""

_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
_MAGIC_AT: Final = slice(16, 20)
_MAGIC: Final = b"\xde\xc0\xef\xbe"
_LEAST_MAP_BYTES: Final = 2 << 20

_MAKE_SPACE: Final = "free some space"
_ALLOW: Final = "make the folder writable for this user"
_RAISE_FILES: Final = "raise the limit on open files (ulimit -n)"
_CURES: Final = {
    errno.ENOSPC: _MAKE_SPACE,
    errno.EDQUOT: _MAKE_SPACE,
    errno.EIO: "see whether the disk is full or fails",  # LMDB's word for a write cut short
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EACCES: _ALLOW,
    errno.EPERM: _ALLOW,
    errno.EMFILE: _RAISE_FILES,
    errno.ENFILE: _RAISE_FILES,
    errno.ENOMEM: "allow the process more memory (ulimit -v)",
}


def make_database(folder: Path, *, map_size: int) -> None:
    """Make an empty quarantine in a folder, and the folder, unless there is a database.

    It is there whole or not at all, also where several processes make it at once. What an earlier
    attempt on a full disk has left, which holds no record, is begun anew.

    Raises:
        OSError: It cannot be made.
        lmdb.Error: It cannot be made, says LMDB.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data.mdb"
    if _is_left_over(data):
        data.unlink()
    if not data.exists():
        (folder / MARK).open("ab").close()
        with _draft_of(data) as draft, _opened_anew(draft, map_size=map_size) as environment:
            environment.sync(True)
    lock = folder / "lock.mdb"
    if not lock.exists():
        # LMDB maps it: where the disk is full, touching a page of it that is not there kills the
        # process with SIGBUS. Opened here only where the process has it nowhere else: closing one
        # descriptor of a file releases every lock that the process has on it.
        with _draft_of(lock) as draft, draft.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, LOCK_FILE_BYTES)


def check_regular(folder: Path) -> None:
    """Refuse a quarantine whose files are links, pipes or anything else but regular files.

    Raises:
        QuarantineError: It is.
        OSError: It cannot be looked at.
    """
    path = find_irregular(folder / name for name in ("data.mdb", "lock.mdb", MARK))
    if path is not None:
        raise QuarantineError(
            str(folder), f"{path.name} in it is no regular file", cure="move it away"
        )


def check_whole(folder: Path) -> None:
    """Refuse a quarantine that would end the process: LMDB does not look at what it builds on.

    Raises:
        QuarantineError: Its database is cut or damaged, or none.
    """
    try:
        with closing(DatabaseFile(folder)) as file:
            check_sound(file)
    except SourceError as error:
        reason = str(error).removeprefix(f"{error.path}: ").partition("; ")[0]
        raise QuarantineError(
            str(folder), f"its database {reason}", cure="move that file away"
        ) from error


def why_not_a_quarantine(folder: Path) -> str | None:
    """Return why the database in a folder is not to be written to; None if there is no reason.

    A file that is no sound LMDB database is left to `check_whole`.
    """
    mark = folder / MARK
    if mark.exists():
        return None
    try:
        file = DatabaseFile(folder)
    except SourceError:
        return None
    try:
        newest = file.newest()
    except SourceError:
        return None
    finally:
        file.close()
    if _is_written_like_one(newest):
        return None
    return (
        f"it is a database of {counted(newest.entries, 'record')} that was not made as a "
        f"quarantine; if it is one, say so by an empty file {mark}"
    )


def cure_of(error: lmdb.Error | OSError) -> tuple[str, str | None]:
    """Return what the system said, and what helps, where anything does but another folder."""
    if isinstance(error, lmdb.InvalidError | lmdb.VersionMismatchError | lmdb.CorruptedError):
        return f"its data.mdb is none that LMDB reads ({error})", "move that file away"
    reason = str(error) if isinstance(error, lmdb.Error) else _said(error)
    for code, cure in _CURES.items():
        if reason.endswith(os.strerror(code)):
            return reason, cure
    return reason, None


def _said(error: OSError) -> str:
    named = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    return f"{named}{error.strerror or error}"


def _is_left_over(data: Path) -> bool:
    """Return whether a file is the beginning of a database that never held a record."""
    try:
        with data.open("rb") as file:
            head = file.read(2 * mmap.PAGESIZE)
    except FileNotFoundError:
        return False
    # Two pages are written before anything else; a shorter file has no second.
    return len(head) < 2 * mmap.PAGESIZE and (head[_MAGIC_AT] == _MAGIC or not any(head))


def _is_written_like_one(meta: Meta) -> bool:
    """Return whether a database is empty, or was written as a quarantine is.

    Its map begins at 1 MiB, and grows to twice itself and twice the record that did not fit.
    """
    least = max(_LEAST_MAP_BYTES, 4 * meta.size_bytes + _LEAST_MAP_BYTES)
    return meta.entries == 0 or (meta.txn_id >= meta.entries and meta.map_bytes <= least)


def _opened_anew(path: Path, *, map_size: int) -> lmdb.Environment:
    return lmdb.open(
        os.fsencode(path),
        subdir=False,
        lock=False,
        map_size=map_size,
        mode=0o666,  # less umask, as for every other file; py-lmdb's default is 0644
    )


@contextmanager
def _draft_of(path: Path) -> Iterator[Path]:
    """Give a name to make a file under, which then gets its own, unless another has got that."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        yield draft
        _link(draft, path)
    finally:
        with suppress(OSError):
            draft.unlink()


def _link(draft: Path, path: Path) -> None:
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        draft.rename(path)  # a file system without links
