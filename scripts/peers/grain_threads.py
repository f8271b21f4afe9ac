"""Grain's dataset pipeline, read ahead by threads.

Grain brings no reader of LMDBs and no image operations; an element of the data set is a whole
batch, filled with NumPy, with the random numbers that Grain hands to a ``random_map``. Batches come
in order and their memory is used again.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import grain

from peers.filling import Filler, Slots
from peers.works import PREFETCH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np

    from peers.works import Arrays, Settings, Stream, Work

_ENDLESS = 1 << 40


def candidates(work: Work, *, num_cores: int) -> list[Settings]:  # noqa: ARG001 - as all modules
    """Return one thread and as many as cores, up to one a batch ahead."""
    return [
        {"num_threads": threads, "prefetch_buffer_size": PREFETCH}
        for threads in sorted({1, min(num_cores, PREFETCH)})
    ]


@contextmanager
def open_stream(work: Work, database: Path, settings: Settings) -> Iterator[Stream]:
    """Open a data set's iterator; see `peers.works.OpenStream`."""
    filler = Filler(work, database)
    slots = Slots(work, settings["prefetch_buffer_size"] + 2)

    def fill(number: int, rng: np.random.Generator) -> Arrays:
        data, labels = slots[number]
        filler.fill(number, rng, data, labels)
        return data, labels

    dataset = (
        grain.MapDataset.range(_ENDLESS)
        .seed(0)
        .random_map(fill)
        .to_iter_dataset(grain.ReadOptions(**settings))
    )
    iterator = iter(dataset)
    try:
        yield iterator
    finally:
        iterator.close()
