"""Whether what an earlier process has stored is still what the input holds.

Each record's source left a stamp in the draft. Where it is another now, the source is read again,
and its record compared with the stored one: what was only copied or touched is still the same.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from prefetch._convert._draft import NOTE_BYTES
from prefetch._convert._errors import ChangedInputError, UnreadableError
from prefetch._convert._stamps import STAMP_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from numpy.typing import NDArray

    from prefetch._convert._draft import Draft
    from prefetch._convert._examples import Examples

_NOTE: Final = struct.Struct(f"<Q{STAMP_BYTES}s")
assert _NOTE.size == NOTE_BYTES


def note_of(index: int, stamp: bytes) -> bytes:
    """Return the note that a draft keeps of a record; of one without a stamp, none."""
    return _NOTE.pack(index, stamp) if stamp else b""


def check_unchanged(
    draft: Draft,
    examples: Examples,
    stored: Collection[bytes],
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Compare the input with what a draft holds of it; blocks while sources are looked at.

    Args:
        draft: What an earlier process has stored.
        examples: The input.
        stored: The keys that the draft holds.
        progress: Called now and then with the examples looked at and those that there are.

    Raises:
        ChangedInputError: Some of it has changed; names what.
    """
    stamps = _stamps(draft.notes(), len(examples))
    changed = []
    for index in range(len(examples)):
        key = examples.key(index)
        if key not in stored:
            continue
        reason = _difference(draft, examples, index, key, stamps[index].tobytes())
        if reason:
            changed.append(f"{examples.name(index)}: {reason}")
        if progress is not None and index % 1024 == 0:
            progress(index, len(examples))
    if changed:
        raise ChangedInputError(str(draft.folder), changed, len(stored))


def _stamps(notes: bytes, num: int) -> NDArray[np.uint8]:
    """Return the stamp of each example, uint8 (num, STAMP_BYTES); zeros where there is no note."""
    kept = np.frombuffer(notes, [("index", "<u8"), ("stamp", "u1", STAMP_BYTES)])
    kept = kept[kept["index"] < num]
    # Of several notes of one the last counts: those before it are of commits that failed.
    _, from_the_end = np.unique(kept["index"][::-1], return_index=True)
    last = kept[::-1][from_the_end]
    stamps = np.zeros((num, STAMP_BYTES), np.uint8)
    stamps[last["index"].astype(np.int64)] = last["stamp"]
    return stamps


def _difference(draft: Draft, examples: Examples, index: int, key: bytes, stamp: bytes) -> str:
    """Return how an example differs from what is stored of it; empty where it does not."""
    try:
        if examples.stamp(index) == stamp:
            return ""
        if examples.read(index).value == draft.value(key):
            return ""
    except UnreadableError as error:
        return f"cannot be read any more: {error}"
    return "is another now than the one that was converted"
