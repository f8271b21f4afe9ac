"""Measuring all loaders at one work, in turns."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from peers.contestant import Contestant, ContestantError
from peers.databases import label_of
from peers.verification import Verdict, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peers.roster import Entry
    from peers.works import Settings, Work

CONSUMERS = ("touch", "read")
"""What the loop does with a batch: looks at one value of each image, or reads every byte."""

_TRIALS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: How often each loader is measured with each consumer.
        seconds: What a round takes, about; it is always a whole number of epochs.
    """

    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A work on a database.

    Attributes:
        work: What is done.
        database: Folder of the LMDB.
        num_records: How many it has, a multiple of the batch size.
        marked: Folder of the same LMDB with restart markers, for entries that want them.
    """

    work: Work
    database: Path
    num_records: int
    marked: Path | None = None

    @property
    def batches_per_epoch(self) -> int:
        """Batches in which every record comes once."""
        return self.num_records // self.work.batch_size

    @property
    def label_sum(self) -> int:
        """Sum of an epoch's labels."""
        return sum(map(label_of, range(self.num_records)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One measurement.

    Attributes:
        images: Images delivered.
        label_sum: Sum of their labels.
        elapsed_s: Wall time in seconds.
        cpu_s: CPU time of the loader's process and its children, the consumer's work included.
        ready_next_s: What next() took for a batch that stood ready, in seconds.
        ready_arrays_s: What next() took with the batch's arrays. Only the feed makes them apart.
        anonymous_bytes: Memory that only these processes can use, after the round.
        shared_bytes: Shared memory, in which workers leave batches.
    """

    images: int
    label_sum: int
    elapsed_s: float
    cpu_s: float
    ready_next_s: float
    ready_arrays_s: float
    anonymous_bytes: int
    shared_bytes: int

    @property
    def images_per_s(self) -> float:
        """Images delivered per second of wall time."""
        return self.images / self.elapsed_s

    @property
    def cpu_ms(self) -> float:
        """CPU time of an image in milliseconds."""
        return 1000 * self.cpu_s / self.images


@dataclass(slots=True, kw_only=True)
class Result:
    """What a loader did at a work.

    Attributes:
        entry: Which loader.
        settings: How it was set up.
        tried: Images/s of all settings among which these were the fastest, in short trials.
        start_bytes: What its process held before the loader was opened: imports.
        description: What the loader says of itself.
        rounds: What was measured, for each consumer.
        delivered: Whether every round had the right number of images and sum of labels.
        verdict: How near its images are to the records; None for loops that make no batches.
    """

    entry: Entry
    settings: Settings
    tried: list[dict[str, Any]] = field(default_factory=list)
    start_bytes: int = 0
    description: dict[str, Any] = field(default_factory=dict)
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    delivered: bool = True
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A loader that broke down at a work; the names are the report's."""

    name: str
    work: str
    problem: str
    output: str


def hold(
    task: Task, entries: Sequence[Entry], effort: Effort, say: Callable[[str], None]
) -> tuple[list[Result], list[Failure]]:
    """Measure loaders at a work.

    Args:
        task: The work.
        entries: The loaders that take part.
        effort: How much is measured.
        say: Is told what is going on.

    Returns:
        What each did, in their order, and those that broke down.
    """
    failures: list[Failure] = []
    racing: list[tuple[Contestant, Result, int]] = []
    with contextlib.ExitStack() as stack:

        @contextlib.contextmanager
        def excused() -> Any:
            try:
                yield
            except ContestantError as error:
                failures.append(
                    Failure(
                        name=error.name,
                        work=task.work.name,
                        problem=str(error),
                        output=error.output,
                    )
                )
                racing[:] = [one for one in racing if one[1].entry.name != error.name]

        for entry in entries:
            with excused():
                say(f"{entry.name}: choosing settings")
                result = _choose(task, entry, effort)
                say(f"{entry.name}: warming up")
                contestant = stack.enter_context(Contestant(entry))
                _open(task, contestant, result)
                racing.append((contestant, result, _num_epochs(task, contestant, effort)))
        for number in range(effort.rounds):
            for consumer in CONSUMERS:
                for contestant, result, epochs in tuple(racing):
                    with excused():
                        say(
                            f"round {number + 1} of {effort.rounds}, {consumer}: "
                            f"{result.entry.name}"
                        )
                        measured = _measure(task, contestant, consumer, epochs)
                        result.rounds.setdefault(consumer, []).append(measured)
                        result.delivered &= (
                            measured.images == epochs * task.num_records
                            and measured.label_sum == epochs * task.label_sum
                        )
        for contestant, result, _ in tuple(racing):
            if result.entry.is_loader:
                with excused():
                    result.verdict = _verify(task, contestant)
    return [result for _, result, _ in racing], failures


def _choose(task: Task, entry: Entry, effort: Effort) -> Result:
    """Return a result with the entry's settings, or with the fastest of its module's candidates."""
    if entry.settings is not None:
        return Result(entry=entry, settings=entry.settings)
    with Contestant(entry) as contestant:
        candidates: list[Settings] = contestant.ask("candidates", work=task.work.name)
    short = Effort(rounds=1, seconds=effort.seconds / 2)
    tried: list[dict[str, Any]] = []
    for settings in candidates:
        with Contestant(entry) as contestant:
            _open(task, contestant, Result(entry=entry, settings=settings))
            epochs = _num_epochs(task, contestant, short)
            fastest = max(
                _measure(task, contestant, CONSUMERS[0], epochs).images_per_s
                for _ in range(_TRIALS)
            )
        tried.append({"settings": settings, "images_per_s": fastest})
    best = max(tried, key=lambda one: one["images_per_s"])
    return Result(entry=entry, settings=best["settings"], tried=tried)


def _open(task: Task, contestant: Contestant, result: Result) -> None:
    answer = contestant.ask(
        "open",
        work=task.work.name,
        database=str(task.marked if result.entry.wants_markers else task.database),
        settings=result.settings,
        num_records=task.num_records,
    )
    result.start_bytes = sum(answer["memory"].values())
    result.description = answer["description"]


def _num_epochs(task: Task, contestant: Contestant, effort: Effort) -> int:
    """Return the epochs of a round, judged by one that warms up and does not count."""
    warm = _measure(task, contestant, CONSUMERS[0], 1)
    return max(1, round(effort.seconds / warm.elapsed_s))


def _measure(task: Task, contestant: Contestant, consumer: str, epochs: int) -> Round:
    num_batches = epochs * task.batches_per_epoch
    answer = contestant.ask("measure", consumer=consumer, num_batches=num_batches)
    return Round(**answer)


def _verify(task: Task, contestant: Contestant) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="ringfeed-sample-") as folder:
        file = Path(folder) / "images.npy"
        records = contestant.ask("sample", file=str(file))
        return verify(task.work, task.database, np.load(file), records)
