"""Whether reading and a loop of the same cost run at the same time.

The readers' cost of a batch is set by the batch size, and measured by a loop that only takes
batches. The loop's cost is set by what it does with a batch, and measured with every feed at rest.
Then both run together, and the time per batch is compared with the longer of the two.
"""

from __future__ import annotations

import contextlib
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from prefetch.cli.benchmark import consumers
from prefetch.cli.benchmark.measurement import Case, measure_in_turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from prefetch.cli.benchmark.measurement import Effort
    from prefetch.cli.benchmark.throughput import OpenFeed


LIMIT = 1.15  # with equal costs, 2.0 is no overlap at all
DEPTHS = (1, 2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How near the time per batch comes to the longer of its two costs; fields as in the JSON."""

    consumer: str
    prefetch: int
    reader_s: float
    consumer_s: float
    batch_s: float
    ratio: float
    ratio_best: float
    limit: float | None
    passed: bool | None


def measure_overlap(
    open_feed: OpenFeed,
    effort: Effort,
    *,
    reader_s: float,
    consumer_s: float,
    threads: int,
    console: Console,
) -> tuple[list[Case], list[Overlap]]:
    """Measure loops of several kinds, at several depths of prefetch.

    Args:
        open_feed: Opens a feed with the options given as keywords.
        effort: How much is measured.
        reader_s: What a batch shall take the readers, in seconds.
        consumer_s: What it shall take the loop.
        threads: Reader threads.
        console: Shows what is going on.

    Returns:
        All cases, the readers alone first, and what they show.
    """
    settings: dict[str, Any] = {"threads": threads, "last_batch": "wrap"}
    with console.status("choosing a batch size"):
        settings["batch_size"] = _batch_size_for(open_feed, reader_s, settings)
    kinds = (
        consumers.wait(consumer_s),
        consumers.compute(consumer_s),
        consumers.python(consumer_s),
    )
    with contextlib.ExitStack() as stack:

        def case(kind: consumers.Consumer, depth: int) -> Case:
            return Case(kind, stack.enter_context(open_feed(**settings, prefetch=depth)))

        reader = case(consumers.drain(), max(DEPTHS))
        cases = [case(kind, depth) for kind in kinds for depth in DEPTHS]
        alone_s = measure_in_turns([reader, *cases], effort, console)
    overlaps = [_overlap(one, reader, alone_s[one.consumer.name]) for one in cases]
    return [reader, *cases], overlaps


def _batch_size_for(open_feed: OpenFeed, reader_s: float, settings: dict[str, Any]) -> int:
    """Return the batch size for which the readers take ``reader_s`` a batch."""
    batch_size = 32
    for _ in range(3):
        with open_feed(**settings, batch_size=batch_size) as feed:
            case = Case(consumers.drain(), feed)
            fastest_s = min(case.measure(20).batch_s for _ in range(3))
        batch_size = max(1, round(batch_size * reader_s / fastest_s))
    return batch_size


def _overlap(case: Case, reader: Case, alone_s: Sequence[float]) -> Overlap:
    together_s = [measured.batch_s for measured in case.rounds]
    readers_s = [measured.batch_s for measured in reader.rounds]
    median = statistics.median
    ratio = median(together_s) / max(median(readers_s), median(alone_s))
    # Nothing is demanded of a loop that holds the GIL, which the readers need too.
    limit = LIMIT if case.feed.config.prefetch > 1 and case.consumer.frees_gil else None
    return Overlap(
        consumer=case.consumer.name,
        prefetch=case.feed.config.prefetch,
        reader_s=median(readers_s),
        consumer_s=median(alone_s),
        batch_s=median(together_s),
        ratio=ratio,
        ratio_best=min(together_s) / max(min(readers_s), min(alone_s)),
        limit=limit,
        passed=None if limit is None else ratio <= limit,
    )


def overlap_table(overlaps: Sequence[Overlap]) -> Table:
    """Return the table of the times per batch: of the readers alone, the loop alone, and both."""
    table = Table("loop", box=None, padding=(0, 2, 0, 0))
    for heading in ("prefetch", "readers ms", "loop ms", "both ms", "ratio", "best", ""):
        table.add_column(heading, justify="right")
    verdicts = {None: "", True: f"<= {LIMIT}", False: f"ABOVE {LIMIT}"}
    for one in overlaps:
        table.add_row(
            one.consumer,
            str(one.prefetch),
            f"{1000 * one.reader_s:.2f}",
            f"{1000 * one.consumer_s:.2f}",
            f"{1000 * one.batch_s:.2f}",
            f"{one.ratio:.3f}",
            f"{one.ratio_best:.3f}",
            verdicts[one.passed],
        )
    return table
