"""Which name a mistyped one was meant to be, for the ``did you mean`` of errors."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(word: object, choices: Iterable[str]) -> str | None:
    """Return the choice that a word was most likely meant to be; None where none is near.

    Example:
        >>> nearest("batchsize", ["batch_size", "seed"]), nearest("crop", ["crop_size"])
        ('batch_size', 'crop_size')
    """
    if not isinstance(word, str):
        return None
    by_lower = {choice.lower(): choice for choice in choices}
    begun = [name for name in by_lower if word and name.startswith(f"{word.lower()}_")]
    found = begun or difflib.get_close_matches(word.lower(), by_lower, n=1)
    if found:
        return by_lower[found[0]]
    # One of the words of a longer name, as crop and croop are of crop_size.
    by_part = {part: choice for name, choice in by_lower.items() for part in name.split("_")}
    parts = difflib.get_close_matches(word.lower(), by_part, n=1, cutoff=0.75)
    return by_part[parts[0]] if parts else None
