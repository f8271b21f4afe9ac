"""This project's own feed."""

from __future__ import annotations

import contextlib
import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import prefetch
from peers.records import Records
from peers.works import PREFETCH
from prefetch._kernels import selection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peers.works import Arrays, Settings, Work


def candidates(work: Work, *, num_cores: int) -> list[Settings]:  # noqa: ARG001 - as all modules
    """Return the default; the roster names a number of threads instead."""
    return [{"threads": "auto"}]


@contextlib.contextmanager
def open_stream(
    work: Work, database: Path, settings: Settings
) -> Iterator[Iterator[prefetch.Batch]]:
    """Open a feed; see `peers.works.OpenStream`. Its batches become `arrays` later.

    With the setting ``decoded_cache`` it keeps decoded images in a file that is gone afterwards.
    """
    options = dict(settings)
    transform: dict[str, Any] = {"dtype": work.dtype}
    if work.resized_crop:
        transform = {"preset": "imagenet-train"}
    if work.crop:
        transform["crop_size"] = work.crop
    if work.mirror:
        transform["mirror"] = True
    if work.dtype != "uint8" and not work.std:
        transform |= {"mean_value": list(work.mean), "scale": work.scale}
    config = {
        "source": database,
        "batch_size": work.batch_size,
        "prefetch": PREFETCH,
        "device": "cpu",
        "epochs": None,
        "transform": transform,
    }
    with contextlib.ExitStack() as stack:
        if options.pop("decoded_cache", False):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ringfeed-decoded-"))
            config["cache"] = _cache(work, database, Path(folder))
        yield _batches(stack.enter_context(prefetch.open(config, **options)))


def _cache(work: Work, database: Path, folder: Path) -> dict[str, Any]:
    """Return the option of a cache that holds the images of a whole database."""
    with Records(database, work) as records:
        pixels = records.num_records * math.prod(work.shape)
    beside_pixels = 1.1  # room for what a cache says of each image
    return {"decoded": {"path": folder / "decoded", "bytes": int(beside_pixels * pixels)}}


def arrays(batch: prefetch.Batch) -> Arrays:
    """Return a batch's data and labels; every other module's stream has them made already."""
    return batch.data.numpy(writable=False), batch.label.numpy(writable=False)


def describe() -> dict[str, Any]:
    """Return which kernels run; only this module's report has it."""
    return {"kernels": "C" if selection.kernels_available else "NumPy"}


def _batches(feed: prefetch.Feed) -> Iterator[prefetch.Batch]:
    while True:
        yield from feed
