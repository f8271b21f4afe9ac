"""Whether what an earlier process has stored is still what the input holds.

Each record left a note in the draft: the stamp of its source, and its shape. Where the stamp is
another now, the source is read again, and its record compared with the stored one: what was only
copied or touched is still the same. So it is done with records whose notes were lost.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from prefetch._tools.convert.draft import NOTE_BYTES
from prefetch._tools.convert.errors import ChangedInputError, UnreadableError
from prefetch._tools.convert.stamps import STAMP_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import TypeAlias

    from numpy.typing import NDArray

    from prefetch._tools.convert.draft import Draft
    from prefetch._tools.convert.examples import Example, Examples

    Shape: TypeAlias = tuple[int, int, int]

_NOTE: Final = struct.Struct(f"<Q{STAMP_BYTES}s3I?3x")
_FIELDS: Final = np.dtype(
    [
        ("index", "<u8"),
        ("stamp", "u1", STAMP_BYTES),
        ("shape", "<u4", 3),
        ("unchanged", "?"),
        ("padding", "u1", 3),
    ]
)
assert _NOTE.size == _FIELDS.itemsize == NOTE_BYTES


@dataclass(slots=True)
class Stored:
    """What an earlier process has stored.

    Attributes:
        num_records: How many records.
        num_unchanged: How many of them hold an image file as it was.
        shapes: How many of which shape.
        first: The first example of each shape, by its place in the input.
    """

    num_records: int = 0
    num_unchanged: int = 0
    shapes: Counter[Shape] = field(default_factory=Counter)
    first: dict[Shape, int] = field(default_factory=dict)

    def count(self, index: int, shape: Shape, *, unchanged: bool) -> None:
        """Count a record."""
        self.num_records += 1
        self.num_unchanged += unchanged
        self.shapes[shape] += 1
        self.first.setdefault(shape, index)


def note_of(index: int, example: Example) -> bytes:
    """Return the note that a draft keeps of a record."""
    return _NOTE.pack(index, example.stamp, *example.shape, example.unchanged)


def check_unchanged(
    draft: Draft,
    examples: Examples,
    stored: Collection[bytes],
    progress: Callable[[int, int], None] | None = None,
) -> Stored:
    """Compare the input with what a draft holds of it; blocks while sources are looked at.

    Args:
        draft: What an earlier process has stored.
        examples: The input.
        stored: The keys that the draft holds.
        progress: Called now and then with the examples looked at and those that there are.

    Raises:
        ChangedInputError: Some of it has changed; names what.
    """
    notes = _notes(draft.notes(), len(examples))
    found = Stored()
    changed = []
    for index in range(len(examples)):
        key = examples.key(index)
        if key not in stored:
            continue
        note = notes[index]
        now = _as_it_is_now(draft, examples, index, key, note["stamp"].tobytes())
        if isinstance(now, str):
            changed.append(f"{examples.name(index)}: {now}")
        elif now is None:
            channels, height, width = note["shape"].tolist()
            found.count(index, (channels, height, width), unchanged=bool(note["unchanged"]))
        else:
            found.count(index, now.shape, unchanged=now.unchanged)
        if progress is not None and index % 1024 == 0:
            progress(index, len(examples))
    if changed:
        raise ChangedInputError(str(draft.folder), changed, len(stored))
    return found


def _notes(content: bytes, num: int) -> NDArray[np.void]:
    """Return the note of each example, (num,) of `_FIELDS`; zeros where there is none."""
    kept = np.frombuffer(content, _FIELDS)
    kept = kept[kept["index"] < num]
    # Of several notes of one the last counts: those before it are of commits that failed.
    _, from_the_end = np.unique(kept["index"][::-1], return_index=True)
    last = kept[::-1][from_the_end]
    notes = np.zeros(num, _FIELDS)
    notes[last["index"].astype(np.int64)] = last
    return notes


def _as_it_is_now(
    draft: Draft, examples: Examples, index: int, key: bytes, stamp: bytes
) -> Example | str | None:
    """Return an example that had to be read and is the same, or how it differs.

    None where nothing has happened to its source.
    """
    try:
        if examples.stamp(index) == stamp:
            return None
        example = examples.read(index)
    except UnreadableError as error:
        return f"cannot be read any more: {error}"
    if example.value == draft.value(key):
        return example
    return "is another now than the one that was converted"
