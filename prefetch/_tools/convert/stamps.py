"""Stamps of files: where the stamp is the same, the content is taken to be."""

from __future__ import annotations

import hashlib
import os
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIELDS: Final = struct.Struct("<qqq")
STAMP_BYTES: Final = _FIELDS.size


def stamp_of(status: os.stat_result) -> bytes:
    """Return the stamp of a file: its size, and when content and entry were last changed.

    The entry's time differs for two files that exchanged their names.
    """
    return _FIELDS.pack(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def stamp_of_all(paths: Sequence[str | os.PathLike[str]]) -> bytes:
    """Return one stamp for several files.

    Raises:
        OSError: One of them is not there.
    """
    stamps = b"".join(stamp_of(os.stat(path)) for path in paths)  # noqa: PTH116 - plain strings
    return stamps if len(paths) == 1 else hashlib.sha256(stamps).digest()[:STAMP_BYTES]
