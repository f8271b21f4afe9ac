"""What a feed gives to several kinds of loop: measured in turns, as a table and as JSON."""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
from typing import TYPE_CHECKING, Any

import numpy as np

from prefetch._feed.endless import endless
from prefetch._process.resource_limits import num_cores
from prefetch.cli.benchmark import consumers
from prefetch.cli.benchmark.measurement import Case, measure_in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console
    from rich.table import Table

    from prefetch._feed.feed import Feed
    from prefetch.cli.benchmark.measurement import Effort, Round

    OpenFeed = Callable[..., Feed]


def measure_throughput(
    open_feed: OpenFeed, effort: Effort, *, consumer_s: float, console: Console
) -> list[Case]:
    """Measure what each kind of loop gets.

    Args:
        open_feed: Opens a feed with the options given as keywords.
        effort: How much is measured.
        consumer_s: What a batch takes the loops that do something with it, in seconds.
        console: Shows what is going on.
    """
    kinds = (
        consumers.drain(),
        consumers.read(),
        consumers.wait(consumer_s),
        consumers.python(consumer_s),
    )
    with contextlib.ExitStack() as stack:
        cases = [Case(kind, stack.enter_context(open_feed())) for kind in kinds]
        measure_in_turns(cases, effort, console)
    return cases


def describe(open_feed: OpenFeed, source: str) -> dict[str, Any]:
    """Return what is measured, and on what, for the JSON report."""
    with open_feed() as feed:
        batch = next(endless(feed))
        stats = feed.stats()
        return {
            "machine": {
                "python": platform.python_version(),
                "numpy": np.__version__,
                "platform": platform.platform(),
                "cpus": num_cores(),
                "load": os.getloadavg()[0],
            },
            "feed": {
                "source": source,
                "batch_size": feed.config.batch_size,
                "sample_shape": list(batch.data.shape[1:]),
                "dtype": str(batch.data.dtype),
                "bytes_per_batch": batch.data.nbytes,
                "threads": stats.threads,
                "device": stats.device,
            },
        }


def throughput_table(cases: Sequence[Case]) -> Table:
    """Return the table of what each kind of loop got: the fastest round, and the median."""
    from rich.table import Table  # noqa: PLC0415 - 0.1 s, and --json does not need it

    table = Table("loop", box=None, padding=(0, 2, 0, 0))
    for heading in (
        "images/s",
        "median",
        "MB/s",
        "CPU ms/image",
        "waited",
        "not ready",
        "ready, mean",
    ):
        table.add_column(heading, justify="right")
    for case in cases:
        best = max(case.rounds, key=lambda measured: measured.images_per_s)

        def mid(value: Callable[[Round], float], case: Case = case) -> float:
            return statistics.median(value(measured) for measured in case.rounds)

        table.add_row(
            case.consumer.name,
            f"{best.images_per_s:,.0f}",
            f"{mid(lambda r: r.images_per_s):,.0f}",
            f"{mid(lambda r: r.bytes / r.elapsed_s / 1e6):,.0f}",
            f"{mid(lambda r: 1000 * r.cpu_s / r.images):.4f}",
            f"{mid(lambda r: r.waited_s / r.elapsed_s):.0%}",
            f"{mid(lambda r: r.waits / r.batches):.0%}",
            f"{mid(lambda r: r.mean_ready):.1f} of {case.feed.config.prefetch}",
        )
    return table
