"""What the entries of a saved state may be: plain values, and how any two are compared.

A state comes from a file, perhaps of another origin. Python's own ``==`` does not do for what it
may hold: an array's comparison is an array.
"""

from __future__ import annotations

from typing import TypeGuard


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
