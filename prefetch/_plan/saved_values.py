"""What the entries of a saved state may be: plain values, compared and shown whatever they are.

A state comes out of a file, perhaps somebody else's. Python's own ``==`` and ``repr`` are not for
what may be in it: an array's comparison is an array, an integer of 5000 digits has no ``repr``, and
lists nested deeply enough end in a RecursionError.
"""

from __future__ import annotations

from typing import Final, TypeGuard

_MOST_SHOWN_CHARS: Final = 80
_MOST_SHOWN_ITEMS: Final = 16
_MOST_SHOWN_BITS: Final = 64


def is_whole(value: object, *, least: int = 0, most: int) -> TypeGuard[int]:
    """Return whether a value is an integer of Python's own, no bool, and within bounds."""
    return type(value) is int and least <= value <= most


def is_same(saved: object, present: object) -> bool:
    """Return whether a saved value is one of this feed's: a number, text, bool, None or list.

    JSON may write 1.0 as 1, so that numbers are compared by value; a bool is no number.
    """
    if isinstance(present, list):
        return (
            type(saved) is list and len(saved) == len(present) and all(map(is_same, saved, present))
        )
    if type(present) in (int, float):
        return type(saved) in (int, float) and saved == present
    return type(saved) is type(present) and saved == present


def printable_value(value: object) -> str:
    """Return a value as it stands in an error: short, and by its type where it is none of JSON's.

    Example:
        >>> printable_value([1, 2.5, "a"]), printable_value(10**5000), printable_value({1: 2})
        ("[1, 2.5, 'a']", 'an integer of 16610 bits', 'a dict')
    """
    if type(value) is list and len(value) <= _MOST_SHOWN_ITEMS:
        if any(isinstance(item, list | dict) for item in value):
            return "a list of lists"
        return f"[{', '.join(map(printable_value, value))}]"
    if type(value) is int and value.bit_length() > _MOST_SHOWN_BITS:
        return f"an integer of {value.bit_length()} bits"
    if type(value) is str and len(value) > _MOST_SHOWN_CHARS:
        return f"{value[:_MOST_SHOWN_CHARS]!r}..."
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    kind = type(value).__name__
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"
