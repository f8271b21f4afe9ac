"""What a backend offers: the records of one database, by number.

A source reads one or several databases in turn and knows them by this protocol only. How to write
a second backend stands in docs/design/0015-adding-a-backend.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    import lmdb
    import numpy as np
    import numpy.typing as npt

    from prefetch._errors.classes import SourceError
    from prefetch._kernels.contract import IndexedPart, Outcome, Recipe
    from prefetch._source.spans import Spans, Views

    Source: TypeAlias = str | os.PathLike[str] | lmdb.Environment

IndexProgress: TypeAlias = "Callable[[str, int, int], None]"
"""Called with the database's path, how much was read for its index, and how much there is."""

Found: TypeAlias = "tuple[list[memoryview] | Views, list[memoryview] | Views]"
"""The keys and the values of some records."""


class SampledRecord(NamedTuple):
    """One record of a random sample.

    Attributes:
        order: Records compare by it as they lie in the database.
        key: Its key.
        value: View of its value, (n,) uint8, valid until the next record is asked for.
    """

    order: tuple[int, ...]
    key: bytes
    value: memoryview


class StoredBytes(NamedTuple):
    """What a database takes, in bytes.

    Attributes:
        file_bytes: Size of its data.
        disk_bytes: What is allocated for it on the disk; less where a file is sparse.
        used_bytes: What its records take, with all that is needed to find them.
    """

    file_bytes: int
    disk_bytes: int
    used_bytes: int


class Fingerprint(NamedTuple):
    """What tells a state of a database from others, without reading all of it.

    Attributes:
        num_records: How many records it has.
        state: Whatever else there is, such as the number of its last transaction, in words.
    """

    num_records: int
    state: str


class Scan(Protocol):
    """One pass over a database from its first record on. Not thread-safe."""

    def take(self, num: int, /) -> Found:
        """Return the next records, 1 or more and no more than are left; as `find` else."""
        ...


class Mapping(Protocol):
    """Records in memory, which the C kernel finds and uses by itself. Thread-safe.

    The memory stays valid as long as this object, or a view of it, is there.
    """

    def fill(
        self, parts: Sequence[IndexedPart], recipe: Recipe, /
    ) -> Sequence[tuple[list[Outcome], bytes] | IndexError | SourceError]:
        """Find records and fill parts from them, all in one native call without the GIL.

        Returns:
            For each part its outcomes, and the keys, one directly after the other; or its error.
        """
        ...

    def raw_shape(self, place: int, /, *, is_uint8: bool) -> tuple[int, int, int] | None:
        """Return (channels, height, width) of a record if it is raw and sound, else None."""
        ...

    def advise(self, places: npt.NDArray[np.int64], /) -> None:
        """Have records read from the disk before they are needed, as far as that can be asked for.

        Args:
            places: (n,) their places in key order.

        Raises:
            SourceError: Where they are cannot be found out.
        """
        ...

    def spans(self, spans: npt.NDArray[np.int64], /) -> tuple[Spans, Spans]:
        """Return the keys and the values that lie where `fill` has written into a part's spans."""
        ...


class Database(Protocol):
    """The records of one database, numbered by their places in key order. Thread-safe.

    What reads raises FeedClosedError after `close`, and SourceError where the database is damaged,
    was changed or cut; the subclass says which.
    """

    @property
    def path(self) -> str:
        """What errors call the database: its absolute path, as the caller named it."""
        ...

    @property
    def num_records(self) -> int:
        """How many records it has, 1 or more; known without an index."""
        ...

    @property
    def expected_index_s(self) -> float:
        """Seconds that `index` takes, roughly; 0 where there is nothing to build."""
        ...

    def index(self) -> object:
        """Build what `find` needs, if it is not there yet; other threads wait meanwhile."""
        ...

    def find(self, places: npt.NDArray[np.int64], /) -> Found:
        """Return the records at some places, in that order; blocks while they are read.

        Args:
            places: (n,) int64, in any order, repeated or not.

        Raises:
            IndexError: There is no such record.
        """
        ...

    def cover(self, place: int, /) -> bool:
        """Have `find` and `mapping` serve the records up to a place, in less time than `index`.

        Returns:
            Whether that is so; False where there is no mapping.
        """
        ...

    def scan(self) -> Scan | None:
        """Return a pass over the records that needs no index; None where `find` is as good."""
        ...

    def mapping(self) -> Mapping | None:
        """Return the records in memory for the C kernel; None where it cannot read them there."""
        ...

    def known_key(self, place: int, /) -> bytes | None:
        """Return a record's key where that needs no index to be built, else None; never raises."""
        ...

    def check(self) -> None:
        """Raise unless all that was read so far is what was there at opening; takes about 2 us."""
        ...

    def is_at(self, folder: Path, /) -> bool:
        """Return whether this is the database in a folder, by any path; False if unknown."""
        ...

    def sample(self, num_records: int, /) -> Generator[SampledRecord, None, None]:
        """Draw about so many records, each with the same chance and the same ones each time.

        Needs no index. Each of its values is valid until the next record is asked for.
        """
        ...

    def end_keys(self) -> tuple[bytes, bytes]:
        """Return the first key and the last."""
        ...

    def fingerprint(self) -> Fingerprint:
        """Return what tells this state of the database from others."""
        ...

    def stored_bytes(self) -> StoredBytes:
        """Return what the database takes."""
        ...

    def close(self) -> None:
        """Close it; idempotent. Waits for calls that are under way."""
        ...
