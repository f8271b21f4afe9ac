"""Which bytes a list's lines are of: its line ends, and encodings that are not read byte by byte.

Names are compared byte by byte with those of the file system, where no byte is zero. So a zero byte
in a list is no part of a name: the list is of an encoding of two or four bytes a character.
"""

from __future__ import annotations

from typing import Final

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_MARKED: Final = (
    (b"\xff\xfe\0\0", "UTF-32", "utf-32"),
    (b"\0\0\xfe\xff", "UTF-32", "utf-32"),
    (b"\xff\xfe", "UTF-16", "utf-16"),
    (b"\xfe\xff", "UTF-16", "utf-16"),
)
_UNMARKED: Final = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")


def lines_of(content: bytes) -> list[bytes]:
    r"""Return the lines of a list, without their ends.

    Lines end in ``\n`` or ``\r\n``, or all of them in ``\r``. Empty lines at the end, and a byte
    order mark of UTF-8, are left out.
    """
    content = content.removeprefix(_BYTE_ORDER_MARK).rstrip(b"\r\n")
    if b"\n" not in content:
        return content.split(b"\r")
    return [line.removesuffix(b"\r") for line in content.split(b"\n")]


def wide_encoding(content: bytes) -> str | None:
    """Return which encoding of several bytes a character a list is of, as iconv calls it.

    None where it is of none, which is so wherever there is no zero byte.
    """
    if b"\0" not in content:
        return None
    for mark, name, codec in _MARKED:
        if content.startswith(mark) and _is_list(content, codec):
            return name
    return next((name for name in _UNMARKED if _is_list(content, name)), None)


def _is_list(content: bytes, codec: str) -> bool:
    """Return whether a content, decoded, begins with a name, a space and what may be a label."""
    try:
        text = content.decode(codec)
    except UnicodeDecodeError:
        return False
    before, space, after = text.partition("\n")[0].rstrip("\r").rpartition(" ")
    return "\0" not in text and bool(before and space) and after.isascii()
