"""The bytes of a file of decoded images.

=====================  ===========================================================================
bytes                  what
=====================  ===========================================================================
0 to 4095              the head: a magic, the format's version, how many slots there are, what the
                       images belong to as JSON, and in the last 16 bytes a digest of all of that
4096, 64 a slot        a hash table of the entries, open addressing with linear probing
behind                 pixels, one image directly behind the other, in the order of their arrival
=====================  ===========================================================================

A slot of zeros is empty. Any other holds the key, the image's place and sizes, a digest of its
pixels, and a digest of all of these: a slot that was half written, or damaged, shows by it and
counts for nothing. All numbers have their lowest byte first.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from prefetch._decoded_cache.belonging import Belonging
from prefetch._kernels.digest import DIGEST_BYTES, digest

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD_BYTES: Final = 4096
SLOT_BYTES: Final = 64
MAGIC: Final = b"ringfeed decoded"
VERSION: Final = 1

_HEAD: Final = struct.Struct("<16sIIQ")
_SLOT: Final = struct.Struct("<16sQ16sIII4x")
_EMPTY: Final = bytes(SLOT_BYTES)
_LEAST_SLOTS: Final = 64
_PROBES: Final = 128  # at most half of the slots are taken, and a run of so many is rare


class Entry(NamedTuple):
    """Where an image is.

    Attributes:
        key: Digest of the encoded image.
        offset: Where its pixels begin in the file.
        digest: Digest of its pixels.
        height: In pixels, 1 or more.
        width: Likewise.
        channels: 1 or more.
    """

    key: bytes
    offset: int
    digest: bytes
    height: int
    width: int
    channels: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        return self.height, self.width, self.channels

    @property
    def nbytes(self) -> int:
        """What its pixels take, in bytes."""
        return self.height * self.width * self.channels

    def pack(self) -> bytes:
        """Return its slot."""
        packed = _SLOT.pack(*self)
        return packed + digest(packed)[: SLOT_BYTES - _SLOT.size]

    @classmethod
    def unpack(cls, slot: bytes) -> Self | None:
        """Return the entry in a slot; None where it is empty, half written or damaged."""
        packed = slot[: _SLOT.size]
        if slot == _EMPTY or digest(packed)[: SLOT_BYTES - _SLOT.size] != slot[_SLOT.size :]:
            return None
        return cls(*_SLOT.unpack(packed))


def is_empty(slot: bytes) -> bool:
    """Return whether nothing was ever written to a slot."""
    return slot == _EMPTY


def choose_num_slots(num_records: int, most_bytes: int) -> int:
    """Return how many slots a file gets: twice what there will be images, as far as is known.

    Args:
        num_records: Records of the databases.
        most_bytes: What the file may take; at most an eighth of it is for slots.
    """
    return max(_LEAST_SLOTS, min(2 * num_records, most_bytes // (8 * SLOT_BYTES)))


def slots_of(key: bytes, num_slots: int) -> Iterator[int]:
    """Yield the slots in which an entry is sought, one after the other."""
    first = int.from_bytes(key[:8], "little")
    for step in range(min(_PROBES, num_slots)):
        yield (first + step) % num_slots


def slot_offset(slot: int) -> int:
    """Return where a slot is in the file."""
    return HEAD_BYTES + SLOT_BYTES * slot


def pack_head(belonging: Belonging, num_slots: int) -> bytes:
    """Return the head of a file."""
    text = belonging.to_json()
    packed = _HEAD.pack(MAGIC, VERSION, len(text), num_slots) + text
    packed = packed.ljust(HEAD_BYTES - DIGEST_BYTES, b"\0")
    assert len(packed) == HEAD_BYTES - DIGEST_BYTES, "a path is shortened for this"
    return packed + digest(packed)


class Head(NamedTuple):
    """What the head of a file says.

    Attributes:
        belonging: What its images belong to.
        num_slots: Slots of its table, 1 or more.
    """

    belonging: Belonging
    num_slots: int


def unpack_head(head: bytes, file_bytes: int) -> Head | str:
    """Return what a file's head says, or why the file, which is one of ours, cannot be used.

    Args:
        head: Its first `HEAD_BYTES`, or as many as there are; begins with the `MAGIC`, or is its
            beginning.
        file_bytes: Size of the file.
    """
    if len(head) < HEAD_BYTES:
        return "it is cut off"
    _, version, num_text, num_slots = _HEAD.unpack_from(head)
    if version != VERSION:
        return f"it has format {version}, and this is format {VERSION}"
    if digest(head[:-DIGEST_BYTES]) != head[-DIGEST_BYTES:]:
        return "its first page is damaged"
    if file_bytes < slot_offset(num_slots):
        return "it is cut off"
    try:
        belonging = Belonging.from_json(head[_HEAD.size : _HEAD.size + num_text])
    except ValueError as error:
        return str(error)
    return Head(belonging, num_slots)
