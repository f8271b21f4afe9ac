"""PyTorch's DataLoader.

A worker fills a whole batch (``__getitems__``) straight into the shared memory in which it goes to
the loop: no tensor an image, no collation, no copy. Sampling never ends, so that there is no pause
between epochs. Nothing is pinned, since nothing goes to a GPU.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from peers.filling import Filler
from peers.works import PREFETCH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from peers.works import Settings, Stream, Work


def candidates(work: Work, *, num_cores: int) -> list[Settings]:  # noqa: ARG001 - as all modules
    """Return no worker, which has no overlap and no transfer, and as many as may be worth it."""
    return [
        {"num_workers": 0},
        *(
            {
                "num_workers": workers,
                "prefetch_factor": max(1, PREFETCH // workers),  # batches a worker
                "persistent_workers": True,
            }
            for workers in sorted({1, num_cores})
        ),
    ]


class _Batches(Dataset[Any]):  # type: ignore[misc] # untyped where torch is not installed
    """Batches as a data set, whose index is the batch's number."""

    def __init__(self, work: Work, database: Path) -> None:
        self._work = work
        self._database = database
        self._filler: Filler | None = None
        self._own: tuple[torch.Tensor, torch.Tensor] | None = None

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        # Opened in the worker, since an LMDB must not be taken across a fork.
        filler = self._filler = self._filler or Filler(self._work, self._database)
        data, labels = self._allocate(filler.shape)
        rng = np.random.default_rng((torch.initial_seed(), number))
        filler.fill(number, rng, data.numpy(), labels.numpy())
        return data, labels

    def _allocate(self, shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        if get_worker_info() is None:
            if self._own is None:
                self._own = (
                    torch.zeros(shape, dtype=getattr(torch, self._work.dtype)),
                    torch.zeros(shape[0], dtype=torch.int64),
                )
            return self._own
        return (
            _shared(shape, getattr(torch, self._work.dtype)),
            _shared(shape[:1], torch.int64),
        )


def _shared(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor in new shared memory, as PyTorch's own collation makes it in a worker."""
    size = torch.Size(shape)
    storage = torch.UntypedStorage._new_shared(  # noqa: SLF001 - it has no public name
        size.numel() * dtype.itemsize
    )
    return torch.empty(0, dtype=dtype).set_(storage, 0, size)


@contextmanager
def open_stream(work: Work, database: Path, settings: Settings) -> Iterator[Stream]:
    """Open a DataLoader; see `peers.works.OpenStream`."""
    torch.set_num_threads(1)  # NumPy does the work; idle OpenMP threads would only spin
    loader = DataLoader(
        _Batches(work, database),
        batch_size=None,  # an item is a batch already
        sampler=itertools.count(),
        **settings,
    )
    iterator = iter(loader)
    try:
        yield ((data.numpy(), labels.numpy()) for data, labels in iterator)
    finally:
        del iterator
