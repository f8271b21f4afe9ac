"""Record sources: databases read in turn as one sequence of records, whole or a part of it.

A *walker* serves successive records, and nothing is built first. A *reader* serves any records,
through an index that is built when it is first needed, once for all readers.

Any number of threads may use a source, each with a reader of its own. Closing the source waits for
calls that are under way; later ones raise FeedClosedError.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Self

from prefetch._errors.classes import ConfigError, ConfigFault, EmptyDatabaseError, FeedClosedError
from prefetch._errors.printable import printable_path
from prefetch._process.disk_waits import num_disk_waits
from prefetch._source.open_backend import open_database
from prefetch._source.records import RecordReader, Walker
from prefetch._source.sequence import RecordSequence

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from prefetch._source.backend import Database, Fingerprint, IndexProgress, Source

_MOST_INDEXING_S = 0.1
_MOST_SAMPLED = 4  # databases: each costs some pages of its tree


class RecordSource:
    """Databases read in turn, or a part of that sequence; made by ``open``. Thread-safe.

    Attributes:
        num_records: Records in all, or in the subset.

    >>> import lmdb, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with lmdb.open(folder.name) as environment, environment.begin(write=True) as transaction:
    ...     _ = transaction.put(b"a", b"first"), transaction.put(b"b", b"second")
    >>> with RecordSource.open(folder.name) as source:
    ...     records = source.walker().take(1, 2)
    ...     print([bytes(value) for value in records.values])
    ...     records.release()
    [b'second', b'first']
    >>> folder.cleanup()
    """

    def __init__(self, databases: Sequence[Database], sequence: RecordSequence) -> None:
        self._databases = databases
        self._sequence = sequence
        self.num_records = sequence.num_records
        self._waits_before = num_disk_waits()
        self._closed = False

    @classmethod
    def open(
        cls,
        source: Source | Sequence[Source],
        *,
        subset: tuple[int | None, int | None] | None = None,
        lock: bool = False,
        index_progress: IndexProgress | None = None,
    ) -> RecordSource:
        """Open databases; nothing is created, save for a missing lock file with ``lock``.

        Args:
            source: What `open_database` opens, or several of such, to be read in turn.
            subset: First record, and the one behind the last; None for an end that is not cut.
            lock: As for `open_database`.
            index_progress: Likewise.

        Raises:
            SourceError: One of the databases cannot be read; the subclass says why.
            ConfigError: No database is named, or the subset leaves the records.
        """
        sources: Sequence[Source]
        if isinstance(source, Sequence) and not isinstance(source, str):
            sources = source
        else:
            sources = [source]
        if not sources:
            raise ConfigError("source", (ConfigFault("source", "names no database"),))
        with ExitStack() as undo:
            databases = []
            for one in sources:
                database = open_database(one, lock=lock, index_progress=index_progress)
                undo.callback(database.close)
                databases.append(database)
            sequence = _part(databases, subset or (None, None))
            opened = cls(databases, sequence)
            undo.pop_all()  # last: Ctrl-C before it closes them, and after it the finalizer does
        return opened

    def choose(self, records: npt.NDArray[np.int64]) -> None:
        """Serve only some of the records from now on; before any of them is numbered elsewhere.

        Args:
            records: (n,) their numbers, ascending.

        Raises:
            EmptyDatabaseError: There are none.
        """
        if not len(records):
            message = f"the subset holds no record of {self.num_records}"
            raise EmptyDatabaseError(self._databases[0].path, message)
        self._sequence = self._sequence.choose(records)
        self.num_records = self._sequence.num_records

    @property
    def has_gaps(self) -> bool:
        """Whether records are left out in between, so that nothing is gained by walking."""
        return self._sequence.chosen is not None

    def walker(self) -> Walker:
        """Return a walker, for successive records; one call at a time."""
        return Walker(self._databases, self._sequence)

    def reader(self, *, in_place: bool = True) -> RecordReader:
        """Return a reader, for any records; one a thread.

        Args:
            in_place: Whether the C kernel may use records where they are (`locate_lazily`), which
                takes a layout that it knows.
        """
        return RecordReader(self._databases, self._sequence, in_place=in_place)

    @property
    def paths(self) -> tuple[str, ...]:
        """Absolute paths of the databases; reads nothing."""
        return tuple(database.path for database in self._databases)

    def fingerprints(self) -> list[Fingerprint]:
        """Return what tells the state of each whole database from others; reads nothing."""
        return [database.fingerprint() for database in self._databases]

    def sample(self, num_records: int) -> Generator[tuple[bytes, memoryview], None, None]:
        """Draw about so many records of all that the databases hold, whatever ``subset`` says.

        Of many databases the first few are drawn from. Needs no index.

        Yields:
            Keys, and views of the values, each valid until the next record is asked for.
        """
        drawn_from = self._databases[:_MOST_SAMPLED]
        for database in drawn_from:
            with closing(database.sample(-(-num_records // len(drawn_from)))) as records:
                for _, key, value in records:
                    yield key, value

    @property
    def is_slow_to_index(self) -> bool:
        """Whether building the index takes so long that the first epoch had better be walked."""
        expected_s = sum(database.expected_index_s for database in self._databases)
        return expected_s > _MOST_INDEXING_S

    def can_do_without_walker(self) -> bool:
        """Return whether readers serve successive records faster than a walker does.

        They do where they find them in mappings, since each of them waits for its own pages. This
        call builds the index of every database.

        Raises:
            SourceError: A database is damaged, or was changed or truncated.
        """
        for database in self._databases:
            database.index()
        return all(database.mapping() is not None for database in self._databases)

    def was_cold(self) -> bool:
        """Return whether this thread has waited for the disk since it opened the source."""
        return num_disk_waits() > self._waits_before

    def is_at(self, folder: Path) -> bool:
        """Return whether one of the databases is the one in a folder, by any path."""
        return any(database.is_at(folder) for database in self._databases)

    def path_of(self, record: int) -> str:
        """Return the absolute path of a record's database; reads nothing.

        Raises:
            IndexError: There is no such record.
        """
        number, _, _ = self._sequence.locate(record)
        return self._databases[number].path

    def describe(self, record: int) -> tuple[str, int, bytes | None]:
        """Return a record's database, its place there, and its key where an index knows it.

        Raises:
            IndexError: There is no such record.
        """
        number, place, _ = self._sequence.locate(record)
        database = self._databases[number]
        return database.path, place, database.known_key(place)

    def check(self) -> None:
        """Raise unless all that was read so far is intact; costs about 2 us a database.

        Raises:
            DatabaseTruncatedError: A file has become shorter than what is read of it.
            DatabaseChangedError: A writer may have written over what was read.
            FeedClosedError: The source is closed.
        """
        if self._closed:
            raise FeedClosedError("the record source is closed")
        for database in self._databases:
            database.check()

    def close(self) -> None:
        """Close the databases; idempotent. Waits for the calls of walkers and readers."""
        self._closed = True
        for database in self._databases:
            database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed, " if self._closed else ""
        paths = ", ".join(printable_path(database.path) for database in self._databases)
        return f"<RecordSource of {self.num_records} records, {state}in {paths}>"

    def __del__(self) -> None:
        # Where there is no attribute yet, Ctrl-C came while it was made.
        if not getattr(self, "_closed", True):
            text = f"{self!r} was never closed"
            self.close()
            warnings.warn(text, ResourceWarning, source=self, stacklevel=1)


def _part(databases: Sequence[Database], subset: tuple[int | None, int | None]) -> RecordSequence:
    """Return the sequence of the databases' records, cut to a subset.

    Raises:
        ConfigError: The subset leaves the records.
        EmptyDatabaseError: The subset holds none.
    """
    sizes = tuple(database.num_records for database in databases)
    total = sum(sizes)
    start = 0 if subset[0] is None else subset[0]
    stop = total if subset[1] is None else subset[1]
    path = databases[0].path
    faults = [
        ConfigFault(
            f"subset.{name}",
            f"expected a number from 0 to {total}, which is how many records there are; "
            f"found {value}",
        )
        for name, value in (("start", start), ("stop", stop))
        if not 0 <= value <= total
    ]
    if faults:
        raise ConfigError(path, tuple(faults))
    if start >= stop:
        raise EmptyDatabaseError(path, f"the subset {start} to {stop} holds no record of {total}")
    return RecordSequence(sizes, start, stop)
