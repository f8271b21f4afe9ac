"""What the measurements say: ratios within one run, and the figures that the feed is to reach.

Ratios are taken round by round, of loaders that were measured next to each other, and their median
is given: what slows the machine for a while slows both.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from peers.works import PREFETCH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peers.contest import Result, Round
    from peers.works import Work

OURS = "ringfeed, 1 thread"
OURS_2 = "ringfeed, 2 threads"
MEMCPY = "memcpy alone"
NORMALISE = "crop and normalise alone"
DECODE = "decode alone, 1 thread"
DECODE_2 = "decode alone, 2 threads"
MARKED = "ringfeed, restart markers, 1 thread"
MARKED_2 = "ringfeed, restart markers, 2 threads"
CACHED = "ringfeed, decoded cache, 1 thread"
SPLICED = "decode and resize of the crop alone"
DALI = ("DALI, the crop, 1 thread", "DALI, the whole, 1 thread")
DALI_2 = ("DALI, the crop, 2 threads", "DALI, the whole, 2 threads")

# What Caffe's own data layer delivers, C++ with -O3 and one thread, in images/s, and what memcpy
# alone does with 3x256x256 on that machine; measured elsewhere, and scaled to this one by memcpy.
CAFFE = {"float": 4800.0, "1x28x28": 839_000.0, "3x32x32": 381_000.0}
CAFFES_MEMCPY = 49_600.0

# Levels of 0 to 255: decoders differ in how they enlarge the colour planes, by less than this on
# average; another image, or another place in it, by some tens.
_SAME_IMAGE_LEVELS = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A figure that the feed is to reach.

    Attributes:
        work: At which work.
        what: What is compared.
        value: What it is in this run, the median over the rounds; a ratio unless `what` has a unit.
        at_least: The lowest value that reaches the goal, or None.
        at_most: The highest, or None.
        spread: The lowest and the highest value of a round, where that was looked at.
        reached: Whether it does.
    """

    work: str
    what: str
    value: float
    at_least: float | None = None
    at_most: float | None = None
    spread: tuple[float, float] | None = None

    @property
    def reached(self) -> bool:
        """Whether the value is on the right side of the limit."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return self.at_most is None or self.value <= self.at_most


def is_same_work(result: Result) -> bool:
    """Return whether a loader delivered the right images, as far as decoders agree."""
    verdict = result.verdict
    return verdict is None or verdict.mean_levels <= _SAME_IMAGE_LEVELS


def _speed(measured: Round) -> float:
    return measured.images_per_s


def _cpu(measured: Round) -> float:
    return measured.cpu_ms


def ratio(
    upper: Result, lower: Result, value: Callable[[Round], float], consumer: str = "touch"
) -> float:
    """Return the median over the rounds of a value's ratio between two loaders."""
    return statistics.median(_in_rounds(upper, lower, value, consumer))


def spread(
    upper: Result, lower: Result, value: Callable[[Round], float], consumer: str = "touch"
) -> tuple[float, float]:
    """Return the lowest and the highest ratio of a round."""
    found = _in_rounds(upper, lower, value, consumer)
    return min(found), max(found)


def _in_rounds(
    upper: Result, lower: Result, value: Callable[[Round], float], consumer: str
) -> list[float]:
    pairs = zip(upper.rounds[consumer], lower.rounds[consumer], strict=True)
    return [value(above) / value(below) for above, below in pairs]


def ratios(results: Sequence[Result], consumer: str) -> list[dict[str, Any]]:
    """Return how each loader stands to the feed with one thread.

    Each is {name, images_per_s, cpu, images_per_s_spread, cpu_spread}.
    """
    ours = _by_name(results).get(OURS)
    if ours is None:
        return []
    return [
        {
            "name": result.entry.name,
            "images_per_s": ratio(ours, result, _speed, consumer),
            "cpu": ratio(ours, result, _cpu, consumer),
            "images_per_s_spread": spread(ours, result, _speed, consumer),
            "cpu_spread": spread(ours, result, _cpu, consumer),
        }
        for result in results
    ]


def goals(work: Work, results: Sequence[Result]) -> list[Goal]:
    """Return the goals that can be judged by what was measured at a work."""
    by_name = _by_name(results)
    found = _own_goals(work, by_name[OURS]) if OURS in by_name else []

    def add(
        what: str,
        upper: str,
        lower: str | None,
        value: Callable[[Round], float],
        **limit: float,
    ) -> None:
        if upper in by_name and lower in by_name:
            pair = (by_name[upper], by_name[lower])
            found.append(
                Goal(
                    work=work.name,
                    what=what,
                    value=ratio(*pair, value),
                    spread=spread(*pair, value),
                    **limit,
                )
            )

    if work.name == "uint8":
        add("images/s, to memcpy's", OURS, MEMCPY, _speed, at_least=0.95)
        add("CPU time, to memcpy's", OURS, MEMCPY, _cpu, at_most=1.1)
    elif work.name == "float":
        add("CPU time, to a bare loop's", OURS, NORMALISE, _cpu, at_most=1.5)
        add("images/s, to DALI's", OURS, "DALI", _speed, at_least=3.5)
        add("images/s, to SPDL's", OURS, "SPDL", _speed, at_least=2.5)
        add("images/s, to DALI's with 1 thread", OURS, "DALI, 1 thread", _speed, at_least=3.5)
        add("images/s, to SPDL's with 1 thread", OURS, "SPDL, 1 thread", _speed, at_least=2.5)
    elif work.name == "jpeg":
        add("CPU time, to decoding's", OURS, DECODE, _cpu, at_most=1.3)
        add("CPU time, to decoding's, 2 threads", OURS_2, DECODE_2, _cpu, at_most=1.3)
        add("images/s of 2 threads, to DALI's", OURS_2, "DALI", _speed, at_least=1.5)
        if {OURS, OURS_2, DECODE, DECODE_2} <= by_name.keys():
            scaling = ratio(by_name[OURS_2], by_name[OURS], _speed)
            bare = ratio(by_name[DECODE_2], by_name[DECODE], _speed)
            what = "2 threads over 1, to decoding's"
            found.append(Goal(work=work.name, what=what, value=scaling / bare, at_least=0.92))
    elif work.name == "rrc":
        dali, dali_2 = (_fastest(by_name, names) for names in (DALI, DALI_2))
        frugal = _fastest(by_name, DALI, lambda measured: 1 / _cpu(measured))
        add("images/s with markers, to DALI's best", MARKED, dali, _speed, at_least=2.0)
        add("CPU time with markers, to DALI's least", MARKED, frugal, _cpu, at_most=0.5)
        add("images/s with markers, 2 threads", MARKED_2, dali_2, _speed, at_least=1.8)
        torchvision = "torchvision, 1 worker"
        add("images/s with markers, to torchvision's", MARKED, torchvision, _speed, at_least=3.5)
        add("CPU time with markers, to a bare loop's", MARKED, SPLICED, _cpu, at_most=1.1)
        add("images/s, to DALI's best", OURS, dali, _speed, at_least=1.4)
    if work.encoded:
        add("images/s from the cache, to the first epoch's", CACHED, OURS, _speed, at_least=3.0)
    return found


def _fastest(
    by_name: dict[str, Result], names: Sequence[str], value: Callable[[Round], float] = _speed
) -> str | None:
    """Return the name of whichever has the highest median of a value, or None."""
    present = [name for name in names if name in by_name]
    return max(
        present,
        key=lambda name: statistics.median(map(value, by_name[name].rounds["touch"])),
        default=None,
    )


def caffe_goals(results: Sequence[tuple[Work, Sequence[Result]]]) -> list[Goal]:
    """Return how the feed stands to Caffe, scaled by memcpy; none where that was not measured.

    Args:
        results: What was measured at each work of a run, uint8 among them for memcpy's sake.
    """
    memcpy = next(
        (_by_name(found)[MEMCPY] for _, found in results if MEMCPY in _by_name(found)), None
    )
    if memcpy is None:
        return []
    scale = statistics.median(map(_speed, memcpy.rounds["touch"])) / CAFFES_MEMCPY
    least = {"float": 3.0, "1x28x28": 2.0, "3x32x32": 2.0}
    return [
        Goal(
            work=work.name,
            what="images/s, to Caffe's as memcpy scales it",
            value=statistics.median(map(_speed, ours.rounds["touch"])) / (CAFFE[work.name] * scale),
            at_least=least[work.name],
        )
        for work, found in results
        if work.name in least and (ours := _by_name(found).get(OURS)) is not None
    ]


def _own_goals(work: Work, ours: Result) -> list[Goal]:
    """Return the goals that no other loader is needed for."""
    rounds = ours.rounds["touch"]
    ready_us = statistics.median(1e6 * one.ready_next_s for one in rounds)
    rows = math.prod(work.sample_shape) * np.dtype(work.dtype).itemsize
    ring_bytes = PREFETCH * work.batch_size * rows
    beyond_mb = max(one.anonymous_bytes - ring_bytes for one in rounds) / 1e6
    return [
        Goal(work=work.name, what="next() of a ready batch, µs", value=ready_us, at_most=50.0),
        Goal(work=work.name, what="memory beyond the ring, MB", value=beyond_mb, at_most=80.0),
    ]


def table(results: Sequence[Result], consumer: str, *, title: str) -> Table:
    """Return what the loaders did with one consumer."""
    view = Table("", box=None, padding=(0, 2, 0, 0), title=title, title_justify="left")
    headings = (
        "images/s",
        "median",
        "CPU ms",
        "median",
        "ours/it",
        "next µs",
        "arrays too",
        "MB",
        "of it imports",
    )
    for heading in headings:
        view.add_column(heading, justify="right")
    view.add_column("pixels")
    view.add_column("settings", overflow="fold")
    ours = _by_name(results).get(OURS)
    for result in results:
        rounds = result.rounds[consumer]

        def mid(value: Callable[[Round], float], rounds: Sequence[Round] = rounds) -> float:
            return statistics.median(map(value, rounds))

        view.add_row(
            result.entry.name,
            f"{max(map(_speed, rounds)):,.0f}",
            f"{mid(_speed):,.0f}",
            f"{min(map(_cpu, rounds)):.4f}",
            f"{mid(_cpu):.4f}",
            "" if ours is None else _ratio_text(ours, result, consumer),
            f"{mid(lambda measured: 1e6 * measured.ready_next_s):,.0f}",
            f"{mid(lambda measured: 1e6 * measured.ready_arrays_s):,.0f}",
            f"{max(one.anonymous_bytes + one.shared_bytes for one in rounds) / 1e6:,.0f}",
            f"{result.start_bytes / 1e6:,.0f}",
            _pixels(result),
            ", ".join(f"{name} {value}" for name, value in result.settings.items()),
        )
    return view


def goals_table(found: Sequence[Goal]) -> Table:
    """Return the goals with what was reached."""
    view = Table("work", "ratio, or as said", box=None, padding=(0, 2, 0, 0))
    for heading in ("is", "in rounds", "goal", ""):
        view.add_column(heading, justify="right")
    for goal in found:
        limit = f">= {goal.at_least}" if goal.at_least is not None else f"<= {goal.at_most}"
        view.add_row(
            goal.work,
            goal.what,
            f"{goal.value:.2f}",
            "" if goal.spread is None else f"{goal.spread[0]:.2f} to {goal.spread[1]:.2f}",
            limit,
            "" if goal.reached else "MISSED",
        )
    return view


def _ratio_text(ours: Result, result: Result, consumer: str) -> str:
    if ours is result:
        return "1"
    low, high = spread(ours, result, _speed, consumer)
    return f"{ratio(ours, result, _speed, consumer):.2f} ({low:.2f} to {high:.2f})"


def _pixels(result: Result) -> str:
    if not result.delivered:
        return "WRONG RECORDS"
    if result.verdict is None:
        return ""
    if not is_same_work(result):
        return "WRONG IMAGES"
    if result.verdict.identical:
        return "identical"
    if result.verdict.max_levels < 0.01:
        return "rounded otherwise"
    return f"within {result.verdict.max_levels:.0f} levels"


def _by_name(results: Sequence[Result]) -> dict[str, Result]:
    return {result.entry.name: result for result in results}
