"""Which images there are, in the order in which they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Entry(NamedTuple):
    """One image.

    Attributes:
        name: As listed, relative to the root; bytes that are no UTF-8 as ``os.fsdecode`` has them.
        label: An int32.
    """

    name: str
    label: int


@dataclass(frozen=True, slots=True)
class Listing:
    """Images in the order in which they are stored.

    Attributes:
        root: Absolute path of the folder that the names are relative to; ends in a slash.
        entries: The images.
        classes: (name, label) of each class folder, by label; empty for a list file.
        notes: What is hardly meant, or easily taken for something else, one sentence each.
    """

    root: str
    entries: tuple[Entry, ...]
    classes: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()


def suffix(name: str) -> str:
    """Return what follows the last dot of a name, in lower case; empty without one."""
    _, dot, ending = name.rpartition("/")[2].rpartition(".")
    return ending.lower() if dot else ""


def folder_text(root: Path) -> str:
    """Return the absolute path of a folder, with a slash at its end."""
    return f"{str(root.absolute()).rstrip('/')}/"
