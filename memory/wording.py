"""Words that errors of both packages need: a value as text, the name that was probably meant."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

CHECKOUT: Final = "/path/to/checkout"
INDEXED: Final = "ringfeed"

DISTRIBUTION: Final = CHECKOUT
"""What pip installs this library from: INDEXED, once an index has it. Then run gen_install.py."""

_LONGEST_SHOWN: Final = 80
_MOST_SHOWN_BITS: Final = 4096  # Python refuses to write out 4300 digits
# More of each than an error shows: a value may hold any number of them.
_REPR: Final = reprlib.Repr()
_REPR.maxlist = _REPR.maxtuple = _REPR.maxset = _REPR.maxdict = _LONGEST_SHOWN
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 2 * _LONGEST_SHOWN


def pip_install(extra: str) -> str:
    """Return the command that installs this library; with an extra, unless that is empty.

    Example:
        >>> pip_install("cuda13")
        "pip install '/path/to/checkout[cuda13]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {DISTRIBUTION}"


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


def printable_value(value: object) -> str:
    """Return any value as JSON and YAML write it; of a long one, how it begins.

    Example:
        >>> printable_value([1, 2.5, "a"]), printable_value(None), printable_value(10**5000)
        ("[1, 2.5, 'a']", 'null', 'an integer of 16610 bits')
    """
    shown, kind = _shown_and_kind(value)
    return shown or kind


def printable_with_kind(value: object) -> str:
    """Return a value as `printable_value` does, with its kind where the look alone would mislead.

    Example:
        >>> printable_with_kind(64), printable_with_kind("64"), printable_with_kind(True)
        ('64', "'64' (text)", 'true (a boolean)')
    """
    shown, kind = _shown_and_kind(value)
    return f"{shown} ({kind})" if shown and kind else shown or kind


def _shown_and_kind(value: object) -> tuple[str, str]:  # noqa: PLR0911 - one a kind
    """Return a value as text, and its kind; empty where the other says all there is."""
    match value:
        case None:
            return "null", ""
        case bool():
            return str(value).lower(), "a boolean"
        case int() if value.bit_length() > _MOST_SHOWN_BITS:
            return "", f"an integer of {value.bit_length()} bits"
        case int() | float():
            return shorten(str(value)), ""
        case str() | bytes() | bytearray():
            kind = "text" if isinstance(value, str) else "bytes"
            return shorten(repr(value)), kind
        case Mapping():
            kind = "a mapping"
        case Sequence():
            kind, value = "a list", list(islice(value, _LONGEST_SHOWN))
        case _:
            kind = f"an object of type {type(value).__name__}"
    try:
        return shorten(" ".join(_REPR.repr(value).split())), kind
    except (ValueError, RecursionError):  # of an integer of thousands of digits, or of depth
        return "", kind


def shorten(text: str, most: int = _LONGEST_SHOWN) -> str:
    """Return a text, or how a longer one than ``most`` characters begins, and its length."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
