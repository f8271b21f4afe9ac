"""The backends there are, and which of them a source is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from prefetch._source.lmdb.database import LmdbDatabase

if TYPE_CHECKING:
    from prefetch._source.backend import Database, IndexProgress, Source


class Opener(Protocol):
    """How a backend opens one database."""

    def __call__(
        self, source: Source, /, *, lock: bool, index_progress: IndexProgress | None
    ) -> Database | None:
        """Open a database; None where the source is not for this backend.

        Args:
            source: What the user named.
            lock: Whether to keep writers from what is read.
            index_progress: Called now and then while an index is built.

        Raises:
            SourceError: It is for this backend, and cannot be read; the subclass says why.
        """
        ...


# Asked in this order. LMDB is last: it takes all that is left, and its errors say what was found
# in the place of a database.
OPENERS: Final[list[Opener]] = [LmdbDatabase.open]


def open_database(
    source: Source, *, lock: bool = False, index_progress: IndexProgress | None = None
) -> Database:
    """Open one database by the backend that it is for; creates nothing but a missing lock file.

    Args:
        source: The folder of an LMDB database, its data file, or an ``lmdb.Environment`` that
            stays open for as long.
        lock: Whether to register as a reader, which pins what is read while others write.
        index_progress: Called now and then while an index is built, on the thread that needs it.

    Raises:
        SourceError: The database cannot be read; the subclass says why.
    """
    for open_by in OPENERS:
        database = open_by(source, lock=lock, index_progress=index_progress)
        if database is not None:
            return database
    raise AssertionError("the last opener opens, or raises")
