"""What is in a database and in a folder, as LMDB and the system tell it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import lmdb

if TYPE_CHECKING:
    from pathlib import Path


def records_of(folder: Path) -> dict[bytes, bytes]:
    """Return all records of a database, in the order of their keys."""
    with (
        lmdb.open(os.fsencode(folder), readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        return dict(transaction.cursor())


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())
