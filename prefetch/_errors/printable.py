r"""Names, keys and counts as a message shows them: short, and safe to print.

Bytes that are no UTF-8 become ``\xf6``, what would steer a terminal or break the line its escape,
such as ``\t``, and a backslash two of them, so that no two keys are shown alike; letters of all
scripts stay. What is printable already, and messages that it stands in, stay as they are.
"""

from __future__ import annotations

import encodings.unicode_escape  # noqa: F401 - else imported by the first escape, on any thread
import os
from typing import TYPE_CHECKING, Final

from memory.wording import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable

# Linux opens nothing of more.
_LONGEST_PATH: Final = 4096
_LONGEST_SHOWN: Final = 80
_LONGEST_MESSAGE: Final = 2000


def printable_key(key: bytes) -> str:
    r"""Return a key as text; another key is another text.

    Example:
        >>> print(printable_key(b"caf\xe9\t1"), printable_key(rb"caf\xe9"))
        caf\xe9\t1 caf\\xe9
    """
    return _escape(key.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace"))


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
    return printable_line(path if len(path) <= _LONGEST_PATH else shorten(path, _LONGEST_SHOWN))


def printable_option(name: str) -> str:
    """Return the name of an option, which may be any text of a file, as an error shows it."""
    return printable_line(shorten(name, _LONGEST_SHOWN))


def printable_fault(message: str) -> str:
    """Return what is wrong with one option; what a file quotes in it may have any length."""
    return printable_message(shorten(message, _LONGEST_MESSAGE))


def printable_message(message: str) -> str:
    """Return a message that names may stand in, with its line ends."""
    return "\n".join(_escape(_text(line)) for line in message.split("\n"))


def printable_line(text: str) -> str:
    """Return a text that names may stand in, as one line."""
    return printable_message(text).replace("\n", "\\n")


def _text(line: str) -> str:
    if line.isprintable():
        return line
    try:
        return line.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a surrogate that was no byte, as from YAML's escapes
        return line.encode("utf-8", "backslashreplace").decode()


def _escape(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def printable_shape(shape: Iterable[int]) -> str:
    """Return a shape as it stands in a message: ``3 x 32 x 32``."""
    return " x ".join(map(str, shape))


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
