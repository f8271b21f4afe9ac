"""What the operating system says when it refuses something, and what to do about it.

A limit of the process, such as that of open files, may strike anywhere: in the import of a module
as well as at a database. Python's own error for it names some file, and no cure.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from memory import SyncedMemoryError

_PERMIT: Final = "have reading it permitted to this user, and looking into the folders above it"
_CURES: Final = {
    # Before EMFILE, with whose words these begin.
    errno.ENFILE: "close what other processes have open, or allow the machine more open files",
    errno.EMFILE: "close what the process has open, or allow it more open files (ulimit -n)",
    errno.ENOMEM: "allow the process more memory or address space (ulimit -v)",
    errno.EACCES: _PERMIT,
    errno.EPERM: _PERMIT,
    errno.ENAMETOOLONG: "no file system has so long a name; see what it was put together from",
    errno.EIO: "see to its disk, or to the network that it is reached by",
    errno.ENOLCK: "its file system has no locks, as NFS without its lock daemon; set lock: false",
}
_LIMITS: Final = (errno.ENFILE, errno.EMFILE, errno.ENOMEM)


def describe_os_error(error: OSError) -> str:
    """Return what the system says, and the cure where one is known."""
    what = error.strerror or str(error)
    cure = _CURES.get(error.errno or 0)
    return what if cure is None else f"{what}; {cure}"


def describe_text(text: str) -> str:
    """Return what a library says that the system said to it, and the cure where one is known."""
    number = next((number for number in _CURES if os.strerror(number) in text), None)
    return text if number is None else f"{text}; {_CURES[number]}"


def find_cure(text: str) -> str | None:
    """Return what to do about the limit of the process that a text names; None for no limit."""
    return next((_CURES[number] for number in _LIMITS if os.strerror(number) in text), None)


def describe_limit(error: BaseException) -> str | None:
    """Return what to say of a limit of the process that was met; None for any other error.

    An error of this project says it already.
    """
    if isinstance(error, SyncedMemoryError):
        return None
    if isinstance(error, OSError) and error.errno in _LIMITS:
        where = f" at {error.filename}" if error.filename else ""
        return f"{error.strerror}{where}; {_CURES[error.errno]}"
    if isinstance(error, ImportError):  # of a library that has others loaded
        cure = find_cure(str(error))
        return None if cure is None else f"{error}; {cure}"
    return None
