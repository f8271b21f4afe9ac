"""Reading files that a user has named: only what is a file is opened as one.

Opening a pipe without a writer waits for ever, on a thread that Ctrl-C does not reach, and a device
may have no end. So pixels and arrays come from regular files. Lists, configurations and networks
may also come through a pipe, as from a shell's ``<(command)``, whose bytes have an end.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

SILENCE_S: Final = 60.0
"""A pipe from which nothing comes for so many seconds is given up."""

LARGEST_TEXT_BYTES: Final = 1 << 26
"""More than this is no network that somebody has written, nor any other text."""

_CHUNK_BYTES: Final = 1 << 20
_KINDS: Final = (
    (stat.S_ISFIFO, "a pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading; anything else is refused without being touched.

    Raises:
        OSError: It is none, with what it is; or it cannot be opened.
        ValueError: No path can be like this.
    """
    check_regular(path)
    file = open(path, "rb", opener=_open_without_waiting)  # noqa: SIM115 - the caller's
    try:
        _require_regular(path, os.fstat(file.fileno()).st_mode)
    except BaseException:
        file.close()
        raise
    return file


def _open_without_waiting(path: str, flags: int) -> int:
    """Do as `os.open`; a file may have been exchanged for a pipe since it was looked at.

    As an opener: so the file object owns the descriptor, whenever Ctrl-C comes. Who closes a
    descriptor that may be closed closes another thread's.
    """
    return os.open(path, flags | os.O_NONBLOCK)


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse what is no regular file.

    Raises:
        OSError: It is none, with what it is; or it is not there.
        ValueError: No path can be like this.
    """
    _require_regular(path, os.stat(path).st_mode)  # noqa: PTH116 - paths may be plain strings


def read_regular(path: str | os.PathLike[str], *, most_bytes: int | None = None) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        OSError: It is none, it cannot be read, or has more bytes than that.
        ValueError: No path can be like this.
    """
    with open_regular(path) as file:
        content = file.read(-1 if most_bytes is None else most_bytes + 1)
    _require_size(len(content), most_bytes, path)
    return content


def read_file_or_pipe(path: Path, *, most_bytes: int | None = None) -> bytes:
    """Return the bytes of a regular file, or all that comes through a pipe; blocks for it.

    Raises:
        OSError: It is neither, it cannot be read, it has more bytes than that, or nothing comes
            for `SILENCE_S` seconds.
        ValueError: No path can be like this.
    """
    mode = path.stat().st_mode
    if not stat.S_ISFIFO(mode):
        return read_regular(path, most_bytes=most_bytes)
    with io.FileIO(path, opener=_open_without_waiting) as pipe:
        if not stat.S_ISFIFO(os.fstat(pipe.fileno()).st_mode):
            raise OSError(errno.EAGAIN, "was exchanged while it was opened", os.fspath(path))
        return b"".join(_chunks(pipe.fileno(), path, most_bytes))


def read_text(
    path: Path, *, encoding: str, errors: str = "strict", most_bytes: int = LARGEST_TEXT_BYTES
) -> str:
    """Return the text of a file or a pipe, its line ends all alike.

    Raises:
        OSError: As `read_file_or_pipe`; or it has more bytes than that.
        ValueError: As `read_file_or_pipe`; or it is no text of the encoding.
    """
    content = io.BytesIO(read_file_or_pipe(path, most_bytes=most_bytes))
    with io.TextIOWrapper(content, encoding=encoding, errors=errors) as text:
        return text.read()


def _require_size(num_bytes: int, most_bytes: int | None, path: str | os.PathLike[str]) -> None:
    if most_bytes is not None and num_bytes > most_bytes:
        raise OSError(
            errno.EFBIG, f"has more than {most_bytes} bytes: is it the right file?", os.fspath(path)
        )


def _chunks(descriptor: int, path: Path, most_bytes: int | None) -> list[bytes]:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    chunks: list[bytes] = []
    num_bytes = 0
    while True:
        if not poll.poll(SILENCE_S * 1000):
            raise OSError(
                errno.ETIMEDOUT,
                f"is a pipe from which nothing came for {SILENCE_S:g} s",
                os.fspath(path),
            )
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            return chunks
        chunks.append(chunk)
        num_bytes += len(chunk)
        _require_size(num_bytes, most_bytes, path)


def _require_regular(path: str | os.PathLike[str], mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        found = next((name for is_kind, name in _KINDS if is_kind(mode)), "no file")
        raise OSError(errno.EINVAL, f"is {found}, and a regular file is expected", os.fspath(path))
