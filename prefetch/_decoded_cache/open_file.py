"""Opening a file of decoded images: made where there is none, made anew where it is of no use.

Processes that open it at the same time take turns, by a lock on the file itself that the system
lifts when its owner is killed. A file is never changed into another one: one that is of no use is
removed and a new one made, so that processes which still read the old one may.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from prefetch._decoded_cache.file_format import (
    HEAD_BYTES,
    MAGIC,
    Head,
    choose_num_slots,
    pack_head,
    slot_offset,
    unpack_head,
)
from prefetch._errors.classes import PrefetchError
from prefetch._errors.printable import printable_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from prefetch._decoded_cache.belonging import Belonging

logger = logging.getLogger("prefetch")

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

# Making a file takes milliseconds; a process that was stopped meanwhile never finishes.
_WAIT_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.01


class OpenFile(NamedTuple):
    """A file of decoded images, open.

    Attributes:
        descriptor: For reading, and for writing in places.
        appending: The same file; what is written goes behind its end, wherever that is by then, in
            one step of the system. (Writing in places is not possible by such a one, on Linux.)
        num_slots: Slots of its table.
    """

    descriptor: int
    appending: int
    num_slots: int


class ForeignCacheError(PrefetchError, ValueError):
    """Raised for a file that is no cache, or another feed's; it is left as it is."""


def open_file(path: Path, belonging: Belonging, *, num_records: int, most_bytes: int) -> OpenFile:
    """Open a file of decoded images, or make one.

    Args:
        path: Where it is; the folder is made where it is missing.
        belonging: What its images are to belong to.
        num_records: Records of the databases.
        most_bytes: What the file may take.

    Raises:
        ForeignCacheError: The file is no cache of ours, or that of another feed.
        OSError: It cannot be opened or written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # What a symbolic link leads to is what is removed, and not the link.
    real = os.path.realpath(path)
    while True:
        with _locked(real) as descriptor:
            if descriptor is None:
                continue  # another process has removed it meanwhile
            found = _read_head(descriptor, path)
            if found is None:
                num_slots = choose_num_slots(num_records, most_bytes)
                _make(descriptor, belonging, num_slots)
                return _hold(descriptor, real, num_slots)
            useless = found if isinstance(found, str) else found.belonging.why_outdated(belonging)
            if useless is None:
                assert isinstance(found, Head)
                foreign = found.belonging.why_foreign(belonging)
                if foreign is not None:
                    raise ForeignCacheError(
                        f"{printable_path(str(path))} {foreign}; name another path, or remove the "
                        "file if nothing uses it"
                    )
                return _hold(descriptor, real, found.num_slots)
            logger.warning("%s is made anew: %s", printable_path(str(path)), useless)
            os.unlink(real)  # noqa: PTH108 - with the descriptor that is locked


def _hold(descriptor: int, path: str, num_slots: int) -> OpenFile:
    """Return a file open for longer than it is locked; while it is, its path cannot change."""
    appending = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        return OpenFile(os.dup(descriptor), appending, num_slots)
    except OSError:
        os.close(appending)
        raise


@contextmanager
def _locked(path: str) -> Iterator[int | None]:
    """Give the descriptor of a file, made if need be, while no other process has it locked.

    None where the file is not at the path any more.

    Raises:
        TimeoutError: Another process has kept it locked for 10 s.
        OSError: It cannot be opened.
    """
    # No wait for whoever reads a pipe, which then is refused.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o666)
    try:
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"another process has been opening it for {_WAIT_S:g} s; end that process"
                    ) from None
                time.sleep(_LOOK_EVERY_S)
        try:
            yield descriptor if _is_at(descriptor, path) else None
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a copy of the descriptor would keep it
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))  # noqa: PTH116
    except FileNotFoundError:
        return False


def _read_head(descriptor: int, path: Path) -> Head | str | None:
    """Return what the head says, or why the file is of no use; None where it is empty.

    Raises:
        ForeignCacheError: It is no cache.
    """
    status = os.fstat(descriptor)
    head = os.pread(descriptor, HEAD_BYTES, 0) if stat.S_ISREG(status.st_mode) else b"?"
    if not head:
        return None
    if not head.startswith(MAGIC) and not MAGIC.startswith(head):
        raise ForeignCacheError(
            f"{printable_path(str(path))} is no cache of decoded images, and is left as it is; "
            "name a file that does not exist yet"
        )
    return unpack_head(head, status.st_size)


def _make(descriptor: int, belonging: Belonging, num_slots: int) -> None:
    """Make an empty file a cache.

    Raises:
        OSError: There is no room for its table, say; the file is empty again.
    """
    head = pack_head(belonging, num_slots)
    try:
        # Of each write the first bytes come first: whoever is killed here leaves a file that is
        # recognised as ours, and made anew.
        write_at(descriptor, MAGIC, 0)
        # A hole in the table would be filled when it is read through a mapping, and a full disk
        # would then be a SIGBUS.
        os.posix_fallocate(descriptor, 0, slot_offset(num_slots))
        write_at(descriptor, head, 0)
    except OSError:
        os.ftruncate(descriptor, 0)
        raise


def is_full(error: OSError) -> bool:
    """Return whether an error says that there is no more room."""
    return error.errno in _FULL


def write_at(descriptor: int, content: bytes, offset: int) -> None:
    """Write some bytes over what is there.

    Raises:
        OSError: They cannot be written, or not all of them.
    """
    if os.pwrite(descriptor, content, offset) < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
