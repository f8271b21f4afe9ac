"""LMDB environments, shared by the whole process.

LMDB forbids a process to open a file twice, and py-lmdb refuses it by any path. So there is one
environment a file (device and inode) in this process, with a count of its holders. A program that
has the file open itself passes its own ``lmdb.Environment``.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

import lmdb

from prefetch._errors.classes import CorruptDatabaseError, DatabaseInUseError, SourceError
from prefetch._errors.os_errors import describe_text
from prefetch._source.lmdb.lock_file import lock_file_of, lock_path_of, make_whole

if TYPE_CHECKING:
    from prefetch._source.lmdb.file import DatabaseFile
    from prefetch._source.lmdb.lock_file import LockFile

logger = logging.getLogger(__name__)

# Where a writer has let the file grow past a reader's map, LMDB no longer says which commits heeded
# the lock. Address space costs nothing but where it is limited; Caffe's writers map as much.
_LOCKED_MAP_BYTES: Final = 1 << 40

_lock = threading.Lock()
_environments: dict[tuple[int, int], SharedEnvironment] = {}
_released: SimpleQueue[SharedEnvironment] = SimpleQueue()


@dataclass(slots=True, eq=False)
class SharedEnvironment:
    """The process's environment of one file.

    Attributes:
        environment: The environment itself.
        identity: Device and inode of the file.
        owned: Whether it was opened here, and so is closed here.
        lock_path: Its lock file; None where it has none.
        num_holds: How many hold it.
        writing: Held to write to it or to resize its map; None where it is only read.
    """

    environment: lmdb.Environment
    identity: tuple[int, int]
    owned: bool
    lock_path: str | None = None
    num_holds: int = 0
    writing: threading.Lock | None = None

    @property
    def is_open(self) -> bool:
        """Whether it is usable: its owner may have closed a foreign one."""
        try:
            self.environment.info()
        except lmdb.Error:
            return False
        return True


def hold_file(
    file: DatabaseFile, foreign: lmdb.Environment | None = None, *, lock: bool = False
) -> SharedEnvironment:
    """Open a file's environment, or find it open, and hold it until ``release``.

    Thread-safe. Creates nothing, except for the lock file with ``lock``.

    Args:
        file: The database.
        foreign: The caller's own environment of the file, to be used as it is, never closed.
        lock: Whether to register as a reader in the lock file.

    Raises:
        DatabaseInUseError: The process has the file open otherwise.
        SourceError: LMDB cannot open the file.
    """
    try:
        with _lock:
            _drop_released()
            shared = _environments.get(file.identity)
            if shared is None or not shared.is_open:
                if foreign is None:
                    shared = _open(file, lock=lock)
                else:
                    shared = SharedEnvironment(
                        foreign, file.identity, owned=False, lock_path=lock_path_of(foreign)
                    )
            elif shared.writing is not None:
                raise DatabaseInUseError(
                    file.path, "is the quarantine of an open feed of this process; close that first"
                )
            elif foreign is not None and shared.environment is not foreign:
                raise DatabaseInUseError(
                    file.path, "is open through another environment than the one passed"
                )
            if lock:
                _check_lock(file, shared)
            _environments[file.identity] = shared
            shared.num_holds += 1
            return shared
    finally:
        _settle()


def hold_to_write(folder: str, *, map_size: int) -> SharedEnvironment:
    """Open the environment of a folder for writing, or find it open, and hold it until ``release``.

    Thread-safe. Whoever writes holds its lock ``writing``.

    Args:
        folder: It has a ``data.mdb``.
        map_size: Bytes of the map at first; more where the file is longer.

    Raises:
        OSError: There is no such file.
        DatabaseInUseError: The process has it open otherwise.
        lmdb.Error: LMDB cannot open it.
    """
    try:
        with _lock:
            _drop_released()
            status = os.stat(f"{folder}/data.mdb")  # noqa: PTH116 - a plain string
            identity = status.st_dev, status.st_ino
            shared = _environments.get(identity)
            if shared is None or not shared.is_open:
                try:
                    environment = lmdb.open(
                        os.fsencode(folder), create=False, map_size=map_size, mode=0o666
                    )
                except lmdb.Error as error:
                    if "already open" in str(error):
                        raise DatabaseInUseError(
                            folder, "it is open in other code of this process through lmdb"
                        ) from error
                    raise
                shared = SharedEnvironment(
                    environment, identity, owned=True, writing=threading.Lock()
                )
            elif shared.writing is None:
                raise DatabaseInUseError(folder, "it is the source of an open feed here")
            _environments[identity] = shared
            shared.num_holds += 1
            return shared
    finally:
        _settle()


def release(shared: SharedEnvironment) -> None:
    """Release one hold; the last one closes the environment, if it was opened here.

    Waits for no lock, so that a finalizer may call it on any thread. Where another thread is
    opening a database at the moment, that thread closes the environment instead.
    """
    _released.put(shared)
    _settle()


def _settle() -> None:
    """Drop what was released, unless another thread is about to."""
    # Whoever holds the lock comes here after releasing it, so nothing stays in the queue.
    held = [True]
    while held[0] and not _released.empty():
        held = []
        try:
            # Taken and noted in one call of C: Ctrl-C between the two would leave the lock held
            # for good, and with it the whole process without a way to open a database.
            held.extend(map(_lock.acquire, (False,)))
            if held[0]:
                _drop_released()
        finally:
            if held and held[0]:
                _lock.release()


def _drop_released() -> None:
    """Take the released holds away, with the lock held."""
    while True:
        try:
            shared = _released.get_nowait()
        except Empty:
            return
        shared.num_holds -= 1
        if shared.num_holds == 0:
            if _environments.get(shared.identity) is shared:
                del _environments[shared.identity]
            if shared.owned:
                shared.environment.close()


def source_error(path: str, error: lmdb.Error) -> SourceError:
    """Return this package's error for one of LMDB's."""
    if isinstance(error, lmdb.MapResizedError):
        return DatabaseInUseError(
            path,
            "a writer has let it grow past what this process has mapped of it; "
            "close what reads it here and open it again",
        )
    if isinstance(error, lmdb.ReadersFullError):
        return DatabaseInUseError(
            path,
            "every place for a reader in its lock file is taken; end some of its readers, "
            "or set lock: false",
        )
    if isinstance(error, lmdb.CorruptedError | lmdb.PageNotFoundError):
        return CorruptDatabaseError(path, f"is damaged, says LMDB: {error}")
    return SourceError(path, f"LMDB cannot read it: {describe_text(str(error))}")


def unlockable(path: str, locked_path: str) -> SourceError:
    """Return the error for a database that cannot be locked as it was asked for.

    Args:
        path: Of the database, as the caller named it.
        locked_path: Of what the lock file lies beside.
    """
    folder = locked_path if os.path.isdir(locked_path) else os.path.dirname(locked_path)  # noqa: PTH112, PTH120 - plain strings
    return SourceError(
        path,
        f"lock: true writes a lock file beside the data, and {folder} cannot be written to; make "
        f"it writable, or set lock: false and leave the database to readers meanwhile",
    )


def _check_lock(file: DatabaseFile, shared: SharedEnvironment) -> None:
    """Raise unless an open environment has the lock file that a database's name leads to.

    Raises:
        DatabaseInUseError: It has another, or none.
        SourceError: The name leads to several.
    """
    if shared.lock_path is None:
        raise DatabaseInUseError(
            file.path,
            "is open without a lock in this process; open it with one there, or set lock: false",
        )
    wanted = lock_file_of(file).path
    if wanted != shared.lock_path:
        raise DatabaseInUseError(
            file.path,
            f"is open in this process with the lock file {shared.lock_path}, and by this name "
            f"writers use {wanted}; open it by one name, that of its writers",
        )


def _open(file: DatabaseFile, *, lock: bool) -> SharedEnvironment:
    # No more address space than the file's pages: its writer's map may have been far larger.
    map_bytes = file.newest().size_bytes
    if not lock:
        return SharedEnvironment(
            _open_environment(file, file.data_path, map_bytes), file.identity, owned=True
        )
    used = lock_file_of(file)
    make_whole(file, used)
    try:
        environment = _open_environment(file, used.opened_by, _LOCKED_MAP_BYTES, used)
    except lmdb.MemoryError:
        environment = _open_environment(file, used.opened_by, map_bytes, used)
    return SharedEnvironment(environment, file.identity, owned=True, lock_path=used.path)


def _open_environment(
    file: DatabaseFile, path: str, map_bytes: int, lock: LockFile | None = None
) -> lmdb.Environment:
    """Open an environment that only reads.

    Raises:
        SourceError: LMDB cannot open it.
        lmdb.MemoryError: There is no address space for a map that long, beyond the file.
    """
    try:
        return lmdb.open(
            os.fsencode(path),  # of a str, LMDB's binding takes no bytes that are no UTF-8
            subdir=lock is not None and lock.is_folder,
            lock=lock is not None,
            readonly=True,
            create=False,
            mode=0o666,  # of a lock file made here, less umask: a writer of the group needs it too
            readahead=True,  # without it, a cold walk is 20 times as slow
            map_size=map_bytes,
        )
    except lmdb.Error as error:
        if isinstance(error, lmdb.MemoryError) and map_bytes == _LOCKED_MAP_BYTES:
            raise
        if lock is not None and isinstance(error, lmdb.ReadonlyError):
            raise unlockable(file.path, path) from error
        if "already open" in str(error):
            raise DatabaseInUseError(
                file.path,
                "other code of this process has it open through lmdb; "
                "pass that lmdb.Environment as the source, or close it",
            ) from error
        raise source_error(file.path, error) from error
