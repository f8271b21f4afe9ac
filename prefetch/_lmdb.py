"""LMDB environments, shared by the whole process.

LMDB forbids a process to open a file twice, and py-lmdb refuses it, whatever the path. So there is
one environment a file (device and inode) in this process, counted by those who hold it. A program
that has the file open itself passes its own ``lmdb.Environment``.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import lmdb

from prefetch._errors import CorruptDatabaseError, DatabaseInUseError, SourceError
from prefetch._refusals import told_text

if TYPE_CHECKING:
    from prefetch._database_file import DatabaseFile

logger = logging.getLogger(__name__)

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
        num_holds: How many hold it.
        writing: Held by whoever writes to it or resizes its map; None where it is only read.
    """

    environment: lmdb.Environment
    identity: tuple[int, int]
    owned: bool
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
                    shared = SharedEnvironment(foreign, file.identity, owned=False)
            elif shared.writing is not None:
                raise DatabaseInUseError(
                    file.path, "is the quarantine of an open feed of this process; close that first"
                )
            elif foreign is not None and shared.environment is not foreign:
                raise DatabaseInUseError(
                    file.path, "is open through another environment than the one passed"
                )
            if lock and not shared.environment.flags()["lock"]:
                raise DatabaseInUseError(
                    file.path,
                    "is open without a lock in this process; open it with one there, "
                    "or set lock: false",
                )
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
    """Give one hold back; the last one closes the environment, if it was opened here.

    Waits for no lock, so that a finalizer may call it on any thread. Where another thread is
    opening a database at the moment, that thread closes the environment instead.
    """
    _released.put(shared)
    _settle()


def _settle() -> None:
    """Drop what was released, unless another thread is about to."""
    # Whoever holds the lock comes here after letting go of it, so nothing stays in the queue.
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
    if isinstance(error, lmdb.CorruptedError | lmdb.PageNotFoundError):
        return CorruptDatabaseError(path, f"is damaged, says LMDB: {error}")
    return SourceError(path, f"LMDB cannot read it: {told_text(str(error))}")


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


def _open(file: DatabaseFile, *, lock: bool) -> SharedEnvironment:
    path, is_folder = _locked_path(file.data_path) if lock else (file.data_path, False)
    try:
        environment = lmdb.open(
            os.fsencode(path),  # of a str, LMDB's binding takes no bytes that are no UTF-8
            subdir=is_folder,
            lock=lock,
            readonly=True,
            create=False,
            mode=0o666,  # of a lock file made here, less umask: a writer of the group needs it too
            readahead=True,  # without it, a cold walk is 20 times as slow
            # No more address space than the file's pages, whatever map its writer had.
            map_size=file.newest().size_bytes,
        )
    except lmdb.Error as error:
        if lock and isinstance(error, lmdb.ReadonlyError):
            raise unlockable(file.path, path) from error
        if "already open" in str(error):
            raise DatabaseInUseError(
                file.path,
                "other code of this process has it open through lmdb; "
                "pass that lmdb.Environment as the source, or close it",
            ) from error
        raise source_error(file.path, error) from error
    return SharedEnvironment(environment, file.identity, owned=True)


def _locked_path(data_path: str) -> tuple[str, bool]:
    """Return the path that leads LMDB to a file's own lock file, and whether it is a folder.

    A writer's lock file is ``lock.mdb`` beside ``data.mdb``, or ``NAME-lock`` beside a single file,
    in the folder where the file itself is.
    """
    real = os.path.realpath(data_path)
    folder, name = os.path.split(real)
    if name == "data.mdb" and not os.path.exists(f"{real}-lock"):  # noqa: PTH110 - a plain string
        return folder, True
    return real, False
