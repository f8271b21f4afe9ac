"""What a conversion asks of its input."""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Example:
    """One record, ready to be stored.

    Attributes:
        value: The bytes of a Datum.
        shape: (channels, height, width) of its pixels, decoded as they are stored.
        unchanged: Whether it holds the bytes of an image file as they are.
        is_turned: Whether these are of a JPEG that EXIF asks to turn.
        remark: What libjpeg says of the file and leaves its pixels as they are.
        stamp: That of the file when it was read; see `Examples.stamp`.
    """

    value: bytes
    shape: tuple[int, int, int]
    unchanged: bool = False
    is_turned: bool = False
    remark: str = ""
    stamp: bytes = b""


class Examples(Protocol):
    """Examples in the order of their keys. Any number of threads may read."""

    @property
    def chunk(self) -> int:
        """How many are worth a thread's waking."""

    def __len__(self) -> int: ...

    def key(self, index: int) -> bytes:
        """Return the key of one, different from all others."""

    def name(self, index: int) -> str:
        """Return what one is called in messages, such as the path of its file."""

    def read(self, index: int) -> Example:
        """Read one.

        Raises:
            UnreadableError: It cannot be read; says why.
        """

    def stamp(self, index: int) -> bytes:
        """Return what tells whether one is still as it was read, without reading it.

        Where it differs, the content may have changed, and need not have.

        Raises:
            UnreadableError: There is nothing to read any more.
        """

    def fingerprint(self) -> dict[str, str]:
        """Return what tells which examples these are, and how they are stored, from any others.

        What they hold is not in it. Names say what a value is of.
        """


_FIELDS: Final = struct.Struct("<qqq")
STAMP_BYTES: Final = _FIELDS.size


def stamp_of(status: os.stat_result) -> bytes:
    """Return the stamp of a file: its size, and when content and entry were last changed.

    The entry's time tells two files apart that exchanged their names.
    """
    return _FIELDS.pack(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def stamp_of_all(paths: Sequence[str | os.PathLike[str]]) -> bytes:
    """Return one stamp for several files.

    Raises:
        OSError: One of them is not there.
    """
    stamps = b"".join(stamp_of(os.stat(path)) for path in paths)  # noqa: PTH116 - plain strings
    return stamps if len(paths) == 1 else hashlib.sha256(stamps).digest()[:STAMP_BYTES]


MAX_BYTES: Final = 511
"""LMDB takes no longer key."""

_DIGITS: Final = 16


def image_key(index: int, name: bytes) -> bytes:
    """Return the key of an image: eight digits, an underscore and its name, as Caffe makes it.

    No two images have the same key, since none have the same index. A key that LMDB would refuse
    keeps as much of the beginning of the name as fits, at a character's boundary, then ``~`` and
    the first 16 hexadecimal digits of the name's SHA-256.

    Args:
        index: Place in the list, counted from 0.
        name: As it stands in the list.
    """
    key = b"%08d_%b" % (index, name)
    if len(key) <= MAX_BYTES:
        return key
    digest = hashlib.sha256(name).hexdigest()[:_DIGITS].encode()
    end = MAX_BYTES - 1 - len(digest)
    while end and key[end] & 0xC0 == 0x80:  # the byte behind the cut goes on with a character
        end -= 1
    return key[:end] + b"~" + digest


def is_shortened(index: int, name: bytes) -> bool:
    """Return whether the key of an image does not hold its whole name."""
    return len(b"%08d_" % index) + len(name) > MAX_BYTES
