r"""Tab-separated tables, one line a row, for any text.

In a field ``\t``, ``\n``, ``\r`` and ``\\`` mean a tab, a line feed, a carriage return and a
backslash. The bytes of a name are those of the file system.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ESCAPES: Final = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}
_CHARACTERS: Final = {escape: character for character, escape in _ESCAPES.items()}
_ESCAPED: Final = re.compile(r"\\[\\tnr]")
_TO_ESCAPES: Final = str.maketrans(_ESCAPES)


def format_table(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as lines of fields with tabs between them."""
    return "".join(
        "\t".join(str(field).translate(_TO_ESCAPES) for field in row) + "\n" for row in rows
    )


def unescape_field(field: str) -> str:
    """Return what a field of a table means."""
    return _ESCAPED.sub(lambda found: _CHARACTERS[found[0]], field)
