"""A survey of a database: what is in it, judged by a sample, or by all of its records.

Of a sampled raw record no pixel is read, of a JPEG its header; up to a hundred images are decoded.
Looking ends after half a second, however slow the disk is, and the survey says how many records it
has seen.

The full survey walks all records in key order and decodes every image, on all cores; in
float records it looks for values that are no finite numbers.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from prefetch._process.resource_limits import num_cores
from prefetch._source.open_backend import open_database
from prefetch._source.records import Records, Walker
from prefetch._source.sequence import RecordSequence
from prefetch._tools.database_problems import Problem, find_problems
from prefetch._tools.examine_record import Examiner
from prefetch._tools.record_counts import RecordCounts
from prefetch._tools.step_thread import run_steps, step_on_thread

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Sequence

    from numpy.typing import NDArray

    from prefetch._source.backend import Database
    from prefetch._tools.examine_record import Shape

MOST_SAMPLED: Final = 10_000
MOST_DECODED: Final = 100
SAMPLING_S: Final = 0.5
"""What looking at the sample may take, in seconds; after half of it no image is decoded."""

_CHUNK: Final = 256
_KEYS_SHOWN: Final = 6
_RECORDS_A_LOOK: Final = 32  # between two looks at the clock


class SurveyProgress(Protocol):
    """Called with the progress of a survey."""

    def __call__(self, what: str, done: int, total: int, /) -> None:
        """Show it; what this raises ends the survey."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What a database takes, in bytes.

    Attributes:
        file_bytes: Size of the data file.
        disk_bytes: What is allocated for it on the disk; less where the file is sparse.
        used_bytes: Pages that its records and its tree take.
        content_bytes: Keys and values; an estimate where not all records were examined.
    """

    file_bytes: int
    disk_bytes: int
    used_bytes: int
    content_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found in a database. Counts are of the records examined, not of all.

    Attributes:
        path: Absolute path of the database.
        num_records: Records in it.
        num_examined: Records that were looked at.
        num_decoded: Images among them that were decoded.
        num_with_restarts: JPEGs among these of which a feed decodes only what a crop needs, by
            their restart markers.
        num_without_restarts: The other JPEGs among them.
        kinds: How many records of each kind, the most frequent first: ``raw``, ``float``, an image
            format, ``encoded`` for an image of an unknown format, ``damaged``.
        shapes: How many of each (channels, height, width), the most frequent first. Images of other
            formats than JPEG count where they were decoded.
        labels: How many of each label, in the order of the labels.
        keys: The first key, some from between, and the last, in the order of the database.
        smallest_bytes: Of the values, as the two below.
        problems: What is wrong or remarkable, errors first.
    """

    path: str
    num_records: int
    num_examined: int
    num_decoded: int
    num_with_restarts: int
    num_without_restarts: int
    kinds: dict[str, int]
    shapes: dict[Shape, int]
    labels: dict[int, int]
    keys: tuple[bytes, ...]
    smallest_bytes: int
    mean_bytes: float
    largest_bytes: int
    storage: Storage
    problems: tuple[Problem, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every record was examined."""
        return self.num_examined == self.num_records

    @property
    def is_sound(self) -> bool:
        """Whether no error was found."""
        return all(problem.severity != "error" for problem in self.problems)


def survey_database(
    path: str | os.PathLike[str],
    *,
    full: bool = False,
    progress: SurveyProgress | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Survey:
    """Look at a database; blocks while it is read.

    Args:
        path: Its folder, or its data file.
        full: Look at every record and decode every image; otherwise look at a sample.
        progress: Called now and then.
        clock: Returns the time in seconds.

    Raises:
        SourceError: The database cannot be read. Bad records are no error but problems.

    Example:
        >>> import prefetch.testing
        >>> with prefetch.testing.example_database(5) as path:
        ...     survey = survey_database(path)
        ...     print(survey.kinds, survey.shapes, survey.is_complete)
        {'raw': 5} {(3, 8, 8): 5} True
    """
    with closing(open_database(path)) as database:
        counts, sample = _sample(database, clock)
        if full:
            counts = _examine_all(database, progress)
        storage = _storage(database, counts)
        database.check()
        return Survey(
            path=database.path,
            num_records=database.num_records,
            num_examined=counts.num_examined,
            num_decoded=counts.num_decoded,
            num_with_restarts=counts.with_restarts[True],
            num_without_restarts=counts.with_restarts[False],
            kinds=dict(counts.kinds.most_common()),
            shapes=dict(counts.shapes.most_common()),
            labels=dict(sorted(counts.labels.items())),
            keys=_some_keys(database, sample.keys),
            smallest_bytes=counts.smallest,
            mean_bytes=counts.value_bytes / counts.num_examined,
            largest_bytes=counts.largest,
            storage=storage,
            problems=find_problems(
                counts,
                sampled_keys=sample.keys,
                sampled_labels=sample.labels,
                file_bytes=storage.file_bytes,
                used_bytes=storage.used_bytes,
            ),
        )


@dataclass(frozen=True, slots=True)
class _Sample:
    """Keys and labels of the sample, in the order of the database."""

    keys: list[bytes]
    labels: NDArray[np.int64]


def _sample(database: Database, clock: Callable[[], float]) -> tuple[RecordCounts, _Sample]:
    """Look at a random sample, until the time is up."""
    counts, examiner = RecordCounts(), Examiner()
    seen: list[tuple[tuple[int, ...], bytes, int | None]] = []
    began = clock()
    decode = True
    with closing(database.sample(MOST_SAMPLED)) as records:
        for order, key, value in records:
            if len(seen) % _RECORDS_A_LOOK == 0 or decode:
                spent_s = clock() - began
                if seen and spent_s > SAMPLING_S:
                    break
                decode = counts.num_decoded < MOST_DECODED and spent_s < SAMPLING_S / 2
            finding = examiner.examine(value, decode=decode)
            counts.count(key, value, finding)
            seen.append((order, key, finding.label))
    seen.sort(key=lambda one: one[0])
    labels = [label for _, _, label in seen if label is not None]
    return counts, _Sample([key for _, key, _ in seen], np.array(labels, np.int64))


def _some_keys(database: Database, sampled: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the first key, some of a sample, and the last."""
    first, last = database.end_keys()
    between = [key for key in sampled if first < key < last]
    num = min(_KEYS_SHOWN - 2, len(between))
    chosen = [between[(2 * place + 1) * len(between) // (2 * num)] for place in range(num)]
    return tuple(dict.fromkeys((first, *chosen, last)))


def _examine_all(database: Database, progress: SurveyProgress | None) -> RecordCounts:
    """Look at every record, on all cores."""
    total = database.num_records

    def report(num_examined: int) -> None:
        if progress is not None:
            progress("reading", num_examined, total)

    return run_steps(step_on_thread(lambda: _examine_in_steps(database)), report)


def _examine_in_steps(database: Database) -> Generator[int, None, RecordCounts]:
    """Look at every record, and yield now and then how many were looked at."""
    total = database.num_records
    counts = RecordCounts()
    num_threads = num_cores()
    pending: deque[tuple[Records, Future[RecordCounts]]] = deque()
    walker = Walker([database], RecordSequence((total,), 0, total))
    with ThreadPoolExecutor(num_threads, "inspect") as pool:
        try:
            for start in range(0, total, _CHUNK):
                records = walker.take(start, min(_CHUNK, total - start))
                pending.append((records, pool.submit(_examine_part, records)))
                if len(pending) > 2 * num_threads:
                    _add_first(pending, counts)
                    yield counts.num_examined
            while pending:
                _add_first(pending, counts)
        finally:
            pool.shutdown(cancel_futures=True)  # after an error; the views are in use until then
            for records, _ in pending:
                records.release()
    return counts


def _add_first(pending: deque[tuple[Records, Future[RecordCounts]]], counts: RecordCounts) -> None:
    counts.add(pending[0][1].result())
    records, _ = pending.popleft()
    records.release()


def _examine_part(records: Records) -> RecordCounts:
    counts, examiner = RecordCounts(), Examiner()
    for key, value in zip(records.keys, records.values, strict=True):
        counts.count(key, value, examiner.examine(value, decode=True, read_floats=True))
    return counts


def _storage(database: Database, counts: RecordCounts) -> Storage:
    content = counts.key_bytes + counts.value_bytes
    return Storage(
        **database.stored_bytes()._asdict(),
        content_bytes=round(content * database.num_records / counts.num_examined),
    )
