"""The folder of a draft: who may write there, what it is of, and whether its files are sound."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from prefetch._errors.classes import SourceError
from prefetch._source.lmdb.before_writing import check_sound, find_irregular
from prefetch._source.lmdb.file import DatabaseFile
from prefetch._source.sidecar_files import CHANNELS_FILE, CLASSES_FILE
from prefetch._tools.convert.errors import ConversionError

if TYPE_CHECKING:
    from pathlib import Path

OPEN_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_DATABASE_FILES: Final = frozenset(
    ("data.mdb", "lock.mdb", CLASSES_FILE, CHANNELS_FILE, "conversion.json")
)


def check_free(final: Path, *, force: bool = False) -> None:
    """Refuse a place for a database where something is.

    Args:
        final: The place.
        force: Whether another database may be there, to be replaced.

    Raises:
        ConversionError: There is.
    """
    if not os.path.lexists(final):
        return
    # Where DB is forgotten, the last of the inputs is in its place, which must not be removed.
    may_go = final.is_dir() and {path.name for path in final.iterdir()} <= _DATABASE_FILES
    if force and may_go and not final.is_symlink():
        return
    cure = (
        "remove it, or choose another name; --force replaces it"
        if may_go
        else "and is no database; name another"
    )
    raise ConversionError(f"{final.absolute()}: is there already{';' if may_go else ''} {cure}")


def lock_description(path: Path) -> int:
    """Open the file that describes a draft, and return its descriptor, locked.

    Raises:
        ConversionError: Another process has it locked, or has just removed it.
        OSError: It cannot be opened.
    """
    descriptor = os.open(path, OPEN_FLAGS, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConversionError(
            f"{path.parent}: another conversion is writing it; wait for its end, or choose "
            f"another name"
        ) from None
    if os.fstat(descriptor).st_nlink == 0:
        os.close(descriptor)
        raise ConversionError(f"{path.parent}: another conversion has just ended; begin again")
    return descriptor


def agree_on_description(
    descriptor: int,
    folder: Path,
    description: dict[str, Any],
    *,
    resume: bool,
    force: bool | None = None,
) -> None:
    """Write the description of a new draft, or compare it with that of an old one.

    Args:
        descriptor: The file that describes the draft, locked.
        folder: The draft's folder.
        description: What is to be converted.
        resume: Whether an old draft is continued.
        force: Whether an old draft is removed otherwise; None where the caller has no such option.

    Raises:
        ConversionError: There is an old one that is not to be resumed, or of something else.
    """
    content = os.pread(descriptor, 1 << 20, 0)
    if not content:
        others = sorted(path.name for path in folder.iterdir() if path.name != "conversion.json")
        if others:
            (folder / "conversion.json").unlink()
            raise ConversionError(
                f"{folder}: is there already, and holds {others[0]}, which is of no conversion; "
                f"the folder is needed while the database is made: move it, or choose another name"
            )
        _describe(descriptor, json.dumps(description, indent=2).encode())
        return
    if force and not resume:
        _empty(folder)
        os.ftruncate(descriptor, 0)  # last: until then the draft can be resumed, from its start
        _describe(descriptor, json.dumps(description, indent=2).encode())
        return
    anew = "remove the folder to begin anew" if force is None else "begin anew with --force"
    if not resume:
        raise ConversionError(
            f"{folder}: an earlier conversion has not finished; continue it with --resume, or "
            f"{anew}"
        )
    try:
        before = dict(json.loads(content))
    except (TypeError, ValueError):
        before = {}
    if before.get("format") != description.get("format"):
        raise ConversionError(
            f"{folder}: cannot be resumed: it is of another version of this program, or damaged; "
            f"{anew}, without --resume"
        )
    other = sorted(
        name for name in {*before, *description} if before.get(name) != description.get(name)
    )
    if other:
        raise ConversionError(
            f"{folder}: cannot be resumed, since what is converted has changed "
            f"({', '.join(other)}); repeat the same command, or {anew}, without --resume"
        )


def _empty(folder: Path) -> None:
    """Remove what an earlier conversion has left in a draft's folder, but for its description.

    Raises:
        ConversionError: Something else is there too; nothing is removed then.
    """
    # Not "replaced": after a crash that may be the only copy of the database that was there.
    database, compact, notes = (folder / name for name in ("database", "compact", "notes"))
    for path in folder.iterdir():
        inside = set()
        if path in {database, compact} and path.is_dir() and not path.is_symlink():
            inside = {one.name for one in path.iterdir()} - _DATABASE_FILES
        elif path not in {notes, folder / "conversion.json"}:
            inside = {""}
        if inside:
            raise ConversionError(
                f"{path / min(inside)}: --force does not remove it; move it, or choose another name"
            )
    for made in (database, compact):
        if made.exists():
            shutil.rmtree(made)
    notes.unlink(missing_ok=True)


def _describe(descriptor: int, content: bytes) -> None:
    """Write the description of a draft, all of it or nothing."""
    written = 0
    try:
        written = os.pwrite(descriptor, content, 0)
        os.fsync(descriptor)
    finally:
        if written < len(content):
            os.ftruncate(descriptor, 0)
    if written < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def check_whole(folder: Path) -> None:
    """Refuse a database that was cut or damaged: LMDB would map it, and end the process.

    One that was not even begun whole, as on a full disk, is removed.

    Raises:
        ConversionError: It was.
    """
    data = folder / "data.mdb"
    if folder.is_symlink() or find_irregular(folder.glob("*")) is not None:
        raise ConversionError(
            f"{folder}: holds a link, or what is no file, and is not written to; remove "
            f"{folder.parent} to begin anew, without --resume"
        )
    if not data.exists():
        return
    if data.stat().st_size < 2 * os.sysconf("SC_PAGE_SIZE"):
        shutil.rmtree(folder)
    else:
        try:
            with closing(DatabaseFile(folder)) as file:
                check_sound(file)
        except SourceError as error:
            raise ConversionError(
                f"{error}; remove {folder.parent} to begin anew, without --resume"
            ) from None


def sync(path: Path) -> None:
    """Wait until a file or a folder's entries are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
