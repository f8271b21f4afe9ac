r"""Names, keys, values and counts as a message shows them: short, and safe to print.

Bytes that are no UTF-8 become ``\xf6``, what would steer a terminal or break the line its escape,
such as ``\t``, and a backslash two of them, so that no two keys are shown alike; letters of all
scripts stay. What is printable already, and messages that it stands in, stay as they are.
"""

from __future__ import annotations

import encodings.unicode_escape  # noqa: F401 - else imported by the first escape, on any thread
import os
import reprlib
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

# Linux opens nothing of more.
_LONGEST_PATH: Final = 4096
_LONGEST_SHOWN: Final = 80
_LONGEST_MESSAGE: Final = 2000
_MOST_SHOWN_BITS: Final = 4096  # Python refuses to write out 4300 digits
# More of each than an error shows: a value may hold any number of them.
_REPR: Final = reprlib.Repr()
_REPR.maxlist = _REPR.maxtuple = _REPR.maxset = _REPR.maxdict = _LONGEST_SHOWN
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 2 * _LONGEST_SHOWN


def printable_key(key: bytes) -> str:
    r"""Return a key as text; another key is another text.

    Example:
        >>> print(printable_key(b"caf\xe9\t1"), printable_key(rb"caf\xe9"))
        caf\xe9\t1 caf\\xe9
    """
    return _escaped(key.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace"))


def printable_name(name: str | os.PathLike[str]) -> str:
    """Return a file's name as text; bytes that are no UTF-8 may be as `os.fsdecode` has them."""
    return printable_key(os.fsencode(name))


def printable_short_key(key: bytes) -> str:
    """Return a key as it stands in an error: of a long one, how it begins and ends."""
    if len(key) <= _LONGEST_SHOWN:
        return printable_key(key)
    return f"{printable_key(key[:50])}...{printable_key(key[-20:])} ({len(key)} bytes)"


def printable_path(path: str) -> str:
    """Return a path as it stands in an error; of one too long for any file, how it begins."""
    return printable_line(path if len(path) <= _LONGEST_PATH else _begun(path, _LONGEST_SHOWN))


def printable_option(name: str) -> str:
    """Return the name of an option as it stands in an error, whatever a file calls one."""
    return printable_line(_begun(name, _LONGEST_SHOWN))


def printable_fault(message: str) -> str:
    """Return what is wrong with one option; what a file quotes in it may have any length."""
    return printable_message(_begun(message, _LONGEST_MESSAGE))


def printable_value(value: object) -> str:
    """Return a value as JSON and YAML write it, whatever it is; of a long one, how it begins.

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
            return _begun(str(value), _LONGEST_SHOWN), ""
        case str() | bytes() | bytearray():
            kind = "text" if isinstance(value, str) else "bytes"
            return _begun(repr(value), _LONGEST_SHOWN), kind
        case Mapping():
            kind = "a mapping"
        case Sequence():
            kind, value = "a list", list(islice(value, _LONGEST_SHOWN))
        case _:
            kind = f"an object of type {type(value).__name__}"
    try:
        return _begun(" ".join(_REPR.repr(value).split()), _LONGEST_SHOWN), kind
    except (ValueError, RecursionError):  # of an integer of thousands of digits, or of depth
        return "", kind


def _begun(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def printable_message(message: str) -> str:
    """Return a message that names may stand in, with its line ends."""
    return "\n".join(_escaped(_text(line)) for line in message.split("\n"))


def printable_line(text: str) -> str:
    """Return a text that names may stand in, as one line."""
    return printable_message(text).replace("\n", "\\n")


def _text(line: str) -> str:
    if line.isprintable():
        return line
    try:
        return line.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a surrogate that stands for no byte, as from YAML's escapes
        return line.encode("utf-8", "backslashreplace").decode()


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 image``, ``2 images``.

    Args:
        number: How many.
        noun: One of them.
        plural: Several of them; None for the noun with an s.

    Example:
        >>> counted(1, "image"), counted(0, "image"), counted(3, "batch", "batches")
        ('1 image', '0 images', '3 batches')
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
