"""Databases for tests: fixtures that write them, and what LMDB and the system say is in them."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import lmdb
import pytest

from prefetch._source.lmdb.database import LmdbDatabase
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from prefetch._source.source import RecordSource


def records_fixture(
    make_records: Callable[[], Iterable[tuple[bytes, bytes]]],
    *,
    scope: Literal["function", "module"] = "function",
) -> Any:
    """Return a fixture for a new database of these records: its folder."""

    @pytest.fixture(scope=scope)
    def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
        return write_database(tmp_path_factory.mktemp("database") / "db", make_records())

    return database


def images_fixture(
    num_records: int,
    shape: tuple[int, int, int] = (3, 8, 8),
    *,
    scope: Literal["function", "module"] = "function",
) -> Any:
    """Return a fixture for a new database of images: every pixel of record i is i modulo 251.

    A test module names what it wants of one: ``source = images_fixture(40)``.
    """
    return records_fixture(partial(fingerprinted_images, num_records, shape), scope=scope)


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


def lmdb_of(source: RecordSource) -> LmdbDatabase:
    """Return the first database of a source, which is one of LMDB's."""
    database = source._databases[0]
    assert isinstance(database, LmdbDatabase)
    return database


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())
