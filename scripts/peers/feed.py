"""This project's own feed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import prefetch
from peers.works import PREFETCH
from prefetch._kernels import selection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from peers.works import Arrays, Settings, Work


def candidates(work: Work, *, num_cores: int) -> list[Settings]:  # noqa: ARG001 - as all modules
    """Return the default; the roster names a number of threads instead."""
    return [{"threads": "auto"}]


@contextmanager
def open_stream(
    work: Work, database: Path, settings: Settings
) -> Iterator[Iterator[prefetch.Batch]]:
    """Open a feed; see `peers.works.OpenStream`. Its batches become `arrays` later."""
    transform: dict[str, Any] = {"dtype": work.dtype}
    if work.crop:
        transform["crop_size"] = work.crop
    if work.mirror:
        transform["mirror"] = True
    if work.dtype != "uint8":
        transform |= {"mean_value": list(work.mean), "scale": work.scale}
    config = {
        "source": database,
        "batch_size": work.batch_size,
        "prefetch": PREFETCH,
        "device": "cpu",
        "epochs": None,
        "transform": transform,
    }
    with prefetch.open(config, **settings) as feed:
        yield _batches(feed)


def arrays(batch: prefetch.Batch) -> Arrays:
    """Return a batch's data and labels; every other module's stream has them made already."""
    return batch.data.numpy(writable=False), batch.label.numpy(writable=False)


def describe() -> dict[str, Any]:
    """Return which kernels run; only this module's report has it."""
    return {"kernels": "C" if selection.kernels_available else "NumPy"}


def _batches(feed: prefetch.Feed) -> Iterator[prefetch.Batch]:
    while True:
        yield from feed
