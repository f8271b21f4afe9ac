"""Keys of images, as Caffe's convert_imageset makes them."""

from __future__ import annotations

import hashlib
from typing import Final

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
    while end and key[end] & 0xC0 == 0x80:  # a byte that continues a character
        end -= 1
    return key[:end] + b"~" + digest


def is_shortened(index: int, name: bytes) -> bool:
    """Return whether the key of an image does not hold its whole name."""
    return len(b"%08d_" % index) + len(name) > MAX_BYTES
