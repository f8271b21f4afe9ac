"""The lock file of a database, in which LMDB's readers and writers know of each other.

LMDB derives its name from the path that a database is opened by, not from where links lead:
``lock.mdb`` in the folder, or ``NAME-lock`` beside a single file.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prefetch._errors.classes import SourceError
from prefetch._errors.os_errors import describe_os_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lmdb

    from prefetch._source.lmdb.file import DatabaseFile

_MOST_LINKS: Final = 40  # as many as Linux follows
LOCK_FILE_BYTES: Final = 8192  # for 126 readers, as many as LMDB has by default
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class LockFile:
    """A lock file that there is, or that LMDB would make.

    Attributes:
        path: Its absolute path; the folder's part of it leads through no link.
        opened_by: The path of the database that leads LMDB to it.
        is_folder: Whether that is a folder.
    """

    path: str
    opened_by: str
    is_folder: bool


def lock_file_of(file: DatabaseFile) -> LockFile:
    """Return the lock file that belongs to a database by the name that it was given.

    A ``data.mdb`` and its folder are one name. Of its two lock files the one that is there counts,
    or ``lock.mdb``, which nearly every writer uses.

    Raises:
        SourceError: Another one is there as well, or it is no regular file.
    """
    names = list(_names(file.data_path))
    own = list(_lock_files(names[0]))
    there = [one for name in names for one in _lock_files(name) if os.path.lexists(one.path)]
    used = there[0] if there and there[0] in own else own[0]
    # A reader pins pages only for writers that use the same lock file. Where there is another, of a
    # writer that names the database otherwise, it is not known which counts.
    others = [one.path for one in there if one != used]
    if others:
        raise SourceError(
            file.path,
            f"lock: true cannot tell the lock file of its writers: by this name it is {used.path}, "
            f"and by another {others[0]}, which is there as well; name the database as its writers "
            f"do and remove the lock file that none of them uses, or set lock: false",
        )
    if os.path.lexists(used.path) and not stat.S_ISREG(os.lstat(used.path).st_mode):
        raise SourceError(
            file.path,
            f"lock: true writes {used.path}, which is a link or no regular file, and is not "
            f"followed; remove it, or set lock: false",
        )
    return used


def make_whole(file: DatabaseFile, lock: LockFile) -> None:
    """Make a lock file that is not there, with room on the disk: LMDB maps it and does not ask.

    One that is there is left alone: to open and close it would drop the locks that other code of
    this process has on it. Where none can be made, LMDB says why.

    Raises:
        SourceError: The disk is full.
    """
    try:
        descriptor = os.open(lock.path, _NEW, 0o666)
    except OSError:
        return
    try:
        os.posix_fallocate(descriptor, 0, LOCK_FILE_BYTES)
    except OSError as error:
        os.unlink(lock.path)  # noqa: PTH108 - plain strings here
        raise SourceError(
            file.path,
            f"lock: true writes {lock.path}, for which there is no room: "
            f"{describe_os_error(error)}",
        ) from error
    finally:
        os.close(descriptor)


def lock_path_of(environment: lmdb.Environment) -> str | None:
    """Return the path of an open environment's lock file; None where it has none."""
    flags = environment.flags()
    if not flags["lock"]:
        return None
    path = os.path.abspath(os.fsdecode(environment.path()))  # noqa: PTH100 - a plain string
    if flags["subdir"]:
        return os.path.join(os.path.realpath(path), "lock.mdb")  # noqa: PTH118 - as above
    return f"{_resolve(path)}-lock"


def _names(data_path: str) -> Iterator[str]:
    """Yield the data file's path, and each that it leads to as a link."""
    name = _resolve(data_path)
    for _ in range(_MOST_LINKS):
        yield name
        if not os.path.islink(name):  # noqa: PTH114 - plain strings here
            return
        name = _resolve(os.path.join(os.path.dirname(name), os.readlink(name)))  # noqa: PTH115, PTH118, PTH120


def _resolve(path: str) -> str:
    """Return a path without links on the way to its last part."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)  # noqa: PTH118 - plain strings here


def _lock_files(name: str) -> Iterator[LockFile]:
    folder, base = os.path.split(name)
    if base == "data.mdb":
        yield LockFile(f"{folder}/lock.mdb", folder, is_folder=True)
    yield LockFile(f"{name}-lock", name, is_folder=False)
