"""What a conversion writes beside a database: names of its classes, order of its channels."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prefetch._errors.printable import printable_path

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger("prefetch")

CLASSES_FILE: Final = "classes.tsv"
"""A line a class: label, tab, name; in names ``\\t``, ``\\n``, ``\\r`` and ``\\\\`` are escapes."""

CHANNELS_FILE: Final = "channels.txt"
"""One word, ``rgb`` or ``bgr``: the order in which raw records hold three channels."""

_MOST_BYTES: Final = 1 << 24
_MOST_CLASSES: Final = 1_000_000
_ESCAPES: Final = {r"\\": "\\", r"\t": "\t", r"\n": "\n", r"\r": "\r"}
_ESCAPE: Final = re.compile(r"\\[\\tnr]")


def class_names(databases: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a source's classes by label; none where no database has any.

    A label that has no name between others is named by its number. A list that cannot be used is
    warned of, and left out.

    Args:
        databases: Paths of the databases, which have the same classes or say nothing of them.
    """
    named = {path: names for path in databases if (names := _names_beside(path))}
    if len(set(named.values())) > 1:
        first, other = list(named)[:2]
        logger.warning(
            "the databases do not agree on the names of their classes, as %s and %s: there are no "
            "class_names",
            printable_path(first),
            printable_path(other),
        )
        return ()
    return next(iter(named.values()), ())


def raw_channel_order(database: str) -> str | None:
    """Return ``rgb`` or ``bgr`` where it is known beside a database, else None."""
    text = _read(_folder(database) / CHANNELS_FILE)
    word = "" if text is None else text.strip()
    return word if word in {"rgb", "bgr"} else None


def _names_beside(database: str) -> tuple[str, ...]:
    path = _folder(database) / CLASSES_FILE
    text = _read(path)
    if text is None:
        return ()
    names: dict[int, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        label, tab, name = line.partition("\t")
        is_label = label.isascii() and label.isdigit() and len(label) < 8
        if not (tab and is_label and int(label) < _MOST_CLASSES):
            logger.warning(
                "%s, line %d: expected a label from 0 to %d, a tab and a name; there are no "
                "class_names",
                printable_path(str(path)),
                number,
                _MOST_CLASSES - 1,
            )
            return ()
        names[int(label)] = _ESCAPE.sub(lambda found: _ESCAPES[found[0]], name)
    return tuple(names.get(label, str(label)) for label in range(max(names, default=-1) + 1))


def _read(path: Path) -> str | None:
    """Return a small text; None where there is none that can be read."""
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        # As the conversion writes them: a name may be of bytes that are no UTF-8.
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None


def _folder(database: str) -> Path:
    path = Path(database)
    return path if path.is_dir() else path.parent
