"""Writing a file that a user has named: all of it is there afterwards, or what was there before.

The content goes into a file beside it, which takes the name when it is whole and on the disk. What
is no regular file, such as ``/dev/null`` or a shell's ``>(command)``, is written into as it is.
"""

from __future__ import annotations

import errno
import os
import resource
import secrets
import shutil
import stat
from pathlib import Path
from typing import Final

from prefetch._errors.classes import PrefetchError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class OutputError(PrefetchError, OSError):
    """Raised for a file that cannot be written; what had its name before is as it was.

    Attributes:
        path: The file, as the caller named it.
        reason: What the system said.
    """

    def __init__(self, path: str, error: OSError) -> None:
        self.path = path
        self.reason = error.strerror or str(error)
        super().__init__(f"{path}: cannot be written: {self.reason}; {cure(error, Path(path))}")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, or leave what is there as it is; blocks until it is on the disk.

    A symbolic link stays one, and what it leads to is written.

    Raises:
        OutputError: It cannot be written.
    """
    try:
        mode = path.stat().st_mode if path.exists() else None
        if mode is None or stat.S_ISREG(mode):
            _replace(Path(os.path.realpath(path)), content, mode)
        else:
            _write_into(path, content)  # a shell's /dev/fd/63 leads to no path
    except OSError as error:
        raise OutputError(os.fspath(path), error) from error


def is_written_into(path: Path) -> bool:
    """Return whether a device or a pipe is there, whose name's ending means nothing."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before there is anything to write; leaves no trace.

    What only shows when bytes come, such as a full disk, is not found so.

    Raises:
        OutputError: It cannot be written.
    """
    try:
        mode = path.stat().st_mode if path.exists() else None
        if mode is None or stat.S_ISREG(mode):
            draft, descriptor = _open_draft(Path(os.path.realpath(path)), mode)
            os.close(descriptor)
            draft.unlink()
        elif not os.access(path, os.W_OK):  # to open a pipe would be an end to its reader
            raise _forbidden(path)
    except OSError as error:
        raise OutputError(os.fspath(path), error) from error


def cure(error: OSError, path: Path) -> str:
    """Say what helps against an error of writing at a path."""
    if error.errno in _FULL:
        return f"{room(path)}; make room, or name another place"
    if error.errno in _FORBIDDEN:
        return "name a place where you may write, or have it permitted"
    if error.errno == errno.ENAMETOOLONG:
        return "choose a shorter name"
    return "name another place"


def free_bytes(path: Path) -> int:
    """Return how many bytes are free on the disk where a path is, or is to be."""
    where = path.absolute()
    while not where.exists():
        where = where.parent
    return shutil.disk_usage(where).free


def room(path: Path) -> str:
    """Say how many bytes can be written where a path is, or is to be."""
    free = free_bytes(path)
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    limited = 0 <= limit < free  # a process without a limit has -1
    largest = f", in files of {limit} bytes at the most (ulimit -f)" if limited else ""
    return f"{free} bytes are free there{largest}"


def _replace(target: Path, content: bytes, mode: int | None) -> None:
    draft, descriptor = _open_draft(target, mode)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            if mode is not None:
                os.fchmod(descriptor, stat.S_IMODE(mode))
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _open_draft(target: Path, mode: int | None) -> tuple[Path, int]:
    """Return a new file beside a target, and its descriptor.

    Args:
        target: What it is to replace.
        mode: The mode of what is there; None where nothing is.
    """
    if mode is not None and not os.access(target, os.W_OK):
        raise _forbidden(target)
    draft = target.with_name(f".ringfeed-{os.getpid()}-{secrets.token_hex(4)}")
    return draft, os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _forbidden(target: Path) -> PermissionError:
    return PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(target))


def _write_into(target: Path, content: bytes) -> None:
    # A pipe without a reader is an error so, and no endless wait.
    descriptor = os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(descriptor, True)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(content)
