"""This project's own feed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import prefetch
from measurement import endless
from peers.works import PREFETCH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from peers.works import Settings, Stream, Work


def candidates(work: Work, *, num_cores: int) -> list[Settings]:  # noqa: ARG001 - as all modules
    """Return what ``threads: auto`` would be chosen from; the roster fixes the number instead."""
    return [{"threads": "auto"}]


@contextmanager
def open_stream(work: Work, database: Path, settings: Settings) -> Iterator[Stream]:
    """Open a feed; see `peers.works.OpenStream`."""
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
        yield (
            (batch.data.numpy(writable=False), batch.label.numpy(writable=False))
            for batch in endless(feed)
        )
