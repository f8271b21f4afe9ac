"""The benchmark's consumers: what a training loop does with a batch, as far as a feed notices.

The readers share the machine with the loop, so it matters what the loop does meanwhile. One that
waits for a GPU leaves them both the cores and the interpreter's lock; one that computes in NumPy
takes a core; one that runs in pure Python takes the lock as well.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import prefetch


_FASTEST_HASH_BYTES_PER_S = 8e9  # more than any core does, with instructions for it about 2e9


@dataclass(frozen=True, slots=True)
class Consumer:
    """One kind of training loop.

    Attributes:
        name: What the report calls it.
        description: What it does with a batch.
        consume: Does it.
        frees_gil: Whether the readers have the interpreter's lock to themselves meanwhile.
    """

    name: str
    description: str
    consume: Callable[[prefetch.Batch], None]
    frees_gil: bool = True

    def time_alone(self, batch: prefetch.Batch, *, num_times: int = 10) -> float:
        """Return what it takes for a batch in seconds, with nothing else running."""
        began = time.perf_counter()
        for _ in range(num_times):
            self.consume(batch)
        return (time.perf_counter() - began) / num_times


def drain() -> Consumer:
    """Return a consumer that takes batches as fast as they come."""
    return Consumer("drain", "takes batches and does nothing", lambda _: None)


def read() -> Consumer:
    """Return a consumer that reads every byte of every batch once, with the GIL released."""

    def consume(batch: prefetch.Batch) -> None:
        with np.errstate(invalid="ignore", over="ignore"):  # the sum is of no interest
            np.add.reduce(batch.data.numpy(writable=False).reshape(-1))

    return Consumer("read", "adds up every value", consume)


def wait(cost_s: float) -> Consumer:
    """Return a consumer that sleeps, as a loop does that waits for a GPU."""
    return Consumer("wait", "waits as for a GPU, GIL released", lambda _: time.sleep(cost_s))


def compute(cost_s: float) -> Consumer:
    """Return a consumer that keeps a core busy in one call that releases the GIL.

    Hashing is one thread's work on any machine, and needs little memory bandwidth. One call,
    because every return to Python has to get the GIL back from a reader first.
    """
    unit_bytes = 1 << 14
    content = memoryview(bytes(unit_bytes + int(_FASTEST_HASH_BYTES_PER_S * cost_s)))

    def work(units: int) -> None:
        hashlib.sha256(content[: units * unit_bytes])

    units = _calibrate(work, cost_s)
    return Consumer("compute", "computes, GIL released", lambda _: work(units))


def python(cost_s: float) -> Consumer:
    """Return a consumer that holds the GIL all the time, in pure Python."""

    def work(repeats: int) -> None:
        total = 0
        for number in range(repeats):
            total ^= number

    repeats = _calibrate(work, cost_s)
    return Consumer(
        "python", "computes in pure Python, GIL held", lambda _: work(repeats), frees_gil=False
    )


def _calibrate(work: Callable[[int], None], cost_s: float) -> int:
    """Return how many repeats of the work take ``cost_s``, judged by the fastest of some tries."""
    repeats = 16
    while True:
        fastest_s = min(_time(work, repeats) for _ in range(5))
        if fastest_s > cost_s / 4:
            return max(1, round(repeats * cost_s / fastest_s))
        repeats *= 2


def _time(work: Callable[[int], None], repeats: int) -> float:
    began = time.perf_counter()
    work(repeats)
    return time.perf_counter() - began
