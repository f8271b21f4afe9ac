"""Measuring a feed in rounds: what one round shows, and a feed with a consumer to measure."""

from __future__ import annotations

import dataclasses
import resource
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prefetch._feed.endless import endless

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    import prefetch
    from prefetch.cli.benchmark.consumers import Consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One measurement.

    Attributes:
        batches: Batches delivered.
        images: Images in them.
        bytes: Bytes of their data.
        elapsed_s: Wall time in seconds.
        cpu_s: CPU time of the process with all of its threads and ended children, in seconds. The
            consumer's own work is in it.
        waited_s: Time that the loop waited in next(), in seconds.
        waits: How many of the batches were not ready when they were asked for.
        mean_ready: How many stood ready then, on average.
    """

    batches: int
    images: int
    bytes: int
    elapsed_s: float
    cpu_s: float
    waited_s: float
    waits: int
    mean_ready: float

    @property
    def batch_s(self) -> float:
        """Wall time per batch in seconds."""
        return self.elapsed_s / self.batches

    @property
    def images_per_s(self) -> float:
        """Images delivered per second."""
        return self.images / self.elapsed_s


class Case:
    """A feed with a consumer, measured again and again.

    The feed stays open between the rounds; at rest, with its ring full, it takes no CPU time.

    Attributes:
        consumer: What is done with the batches.
        feed: Where they come from.
        rounds: What was measured so far.
    """

    def __init__(self, consumer: Consumer, feed: prefetch.Feed) -> None:
        self.consumer = consumer
        self.feed = feed
        self.rounds: list[Round] = []
        self._batches = endless(feed)

    def measure(self, num_batches: int) -> Round:
        """Add a round and return it; it begins after as many batches as were ready at rest."""
        for _ in range(self.feed.stats().prefetch + 2):
            self.consumer.consume(next(self._batches))
        images = nbytes = 0
        before = self.feed.stats()
        cpu_s, began = _cpu_time(), time.perf_counter()
        for _ in range(num_batches):
            batch = next(self._batches)
            self.consumer.consume(batch)
            images += len(batch)
            nbytes += batch.data.nbytes
        elapsed_s, cpu_s = time.perf_counter() - began, _cpu_time() - cpu_s
        after = self.feed.stats()
        ready = after.mean_ready * after.batches - before.mean_ready * before.batches
        measured = Round(
            batches=num_batches,
            images=images,
            bytes=nbytes,
            elapsed_s=elapsed_s,
            cpu_s=cpu_s,
            waited_s=after.wait_s - before.wait_s,
            waits=after.waits - before.waits,
            mean_ready=ready / num_batches,
        )
        self.rounds.append(measured)
        return measured

    def as_json(self) -> dict[str, Any]:
        """Return its part of the JSON report."""
        return {
            "consumer": self.consumer.name,
            "description": self.consumer.description,
            "prefetch": self.feed.config.prefetch,
            "rounds": [dataclasses.asdict(measured) for measured in self.rounds],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: How often every case is measured.
        batches: Batches in a round; None for as many as take about `seconds`.
        seconds: What a round takes.
    """

    rounds: int
    batches: int | None
    seconds: float

    def batches_for(self, case: Case) -> int:
        """Return the batches of a case's rounds, judged by a round that does not count."""
        if self.batches is not None:
            return self.batches
        case.measure(5)
        return max(10, round(self.seconds / case.rounds.pop().batch_s))


def measure_in_turns(
    cases: Sequence[Case], effort: Effort, console: Console
) -> dict[str, list[float]]:
    """Measure all cases, round after round.

    Returns:
        For each consumer's name, what a batch takes it alone, in seconds, once a round.
    """
    alone_s: dict[str, list[float]] = {case.consumer.name: [] for case in cases}
    spare = next(endless(cases[0].feed))
    numbers = [effort.batches_for(case) for case in cases]
    with console.status("measuring") as status:
        for number in range(1, effort.rounds + 1):
            for kind in {case.consumer.name: case.consumer for case in cases}.values():
                alone_s[kind.name].append(kind.time_alone(spare))
            for case, num_batches in zip(cases, numbers, strict=True):
                status.update(
                    f"round {number} of {effort.rounds}: {case.consumer.name}, "
                    f"prefetch {case.feed.config.prefetch}"
                )
                case.measure(num_batches)
    return alone_s


def _cpu_time() -> float:
    """Return the CPU time of this process so far in seconds, ended children included."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
