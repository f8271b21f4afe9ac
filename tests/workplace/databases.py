"""What is in a database and in a folder, as LMDB and the system tell it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import lmdb

from prefetch.testing import fingerprinted_images

if TYPE_CHECKING:
    from pathlib import Path


def records_of(folder: Path) -> dict[bytes, bytes]:
    """Return all records of a database, in the order of their keys."""
    with (
        lmdb.open(os.fsencode(folder), readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        return dict(transaction.cursor())


def write_short(folder: Path, *, num_kept: int) -> Path:
    """Write a sound database whose file ends before the last page that its head counts.

    Its last transaction replaces all records and deletes most of the new ones: pages allocated and
    freed within one transaction are never written.
    """
    images = list(fingerprinted_images(32, (1, 40, 40)))
    old, new = images[:16], images[16:]
    with lmdb.open(os.fsencode(folder), map_size=2**26, lock=False) as environment:
        for part in range(4):
            with environment.begin(write=True) as transaction:
                for key, value in old[part::4]:
                    transaction.put(key, value)
        with environment.begin(write=True) as transaction:
            for (gone, _), (key, value) in zip(old, new, strict=True):
                transaction.delete(gone)
                transaction.put(key, value)
            for key, _ in reversed(new[num_kept:]):
                transaction.delete(key)
        counted = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    assert (folder / "data.mdb").stat().st_size < counted
    return folder


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())
