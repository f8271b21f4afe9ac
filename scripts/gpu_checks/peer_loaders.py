"""Other loaders beside the feed, on the same database and the same GPU: PyTorch's and DALI's."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Final

import lmdb
import numpy as np

from gpu_checks.bench import BATCH, RECORDS, NotHereError, Outcome
from prefetch.caffe import Datum

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from gpu_checks.bench import Bench


class Datums:
    """The records of a database one by one, as a data set for PyTorch's DataLoader.

    It is as long as many epochs, since the loader's workers pause between two.

    Args:
        source: Folder of the LMDB.
    """

    def __init__(self, source: Path) -> None:
        self._source = source
        self._transaction: lmdb.Transaction | None = None

    def __len__(self) -> int:
        return 1000 * RECORDS

    def __getitem__(self, record: int) -> tuple[NDArray[np.uint8], int]:
        """Return a record's pixels, uint8 (C, H, W), and its label."""
        if self._transaction is None:  # in the worker: an LMDB must not be taken across a fork
            environment = lmdb.open(str(self._source), readonly=True, lock=False)
            self._transaction = environment.begin(buffers=True)
        value = self._transaction.get(b"%08d" % (record % RECORDS))
        assert value is not None
        datum = Datum.FromString(bytes(value))
        shape = datum.channels, datum.height, datum.width
        return np.frombuffer(datum.data, np.uint8).reshape(shape).copy(), datum.label


def _loader_s(bench: Bench, torch: Any, workers: int) -> float:
    """Return the seconds that PyTorch's DataLoader takes for a batch on the GPU."""
    there = f"cuda:{bench.device.ordinal}"
    loader = iter(
        torch.utils.data.DataLoader(
            Datums(bench.source), batch_size=BATCH, num_workers=workers, pin_memory=True
        )
    )

    def load(count: int) -> None:
        for _ in range(count):
            data, labels = next(loader)
            data.to(there, non_blocking=True)
            labels.to(there, non_blocking=True)
        torch.cuda.synchronize()

    return bench.seconds_each(load)


def check_torch_loader(bench: Bench) -> Outcome:
    """Compare the feed with PyTorch's DataLoader, pinned and non-blocking, on the same database."""
    bench.on_gpu_only()
    torch = bench.torch()
    workers = min(8, len(os.sched_getaffinity(0)))
    loader_s = _loader_s(bench, torch, workers)
    with bench.open() as feed:
        feed.to_stream(torch.cuda.current_stream())
        batches = iter(feed)

        def take(count: int) -> None:
            for _ in range(count):
                batch = next(batches)
                torch.from_dlpack(batch.data)
                torch.from_dlpack(batch.label)
                del batch
            torch.cuda.synchronize()

        feed_s = bench.seconds_each(take)
    return Outcome(
        "torch DataLoader",
        "measured",
        f"feed {BATCH / feed_s:.0f} images/s, DataLoader with {workers} workers "
        f"{BATCH / loader_s:.0f} images/s",
        {"feed_images_per_s": BATCH / feed_s, "loader_images_per_s": BATCH / loader_s},
    )


def check_dali(bench: Bench) -> Outcome:
    """Compare the feed with DALI's reader of Caffe's LMDBs, both with pixels as they are stored."""
    bench.on_gpu_only()
    try:
        dali: Any = importlib.import_module("nvidia.dali")
    except (ImportError, OSError) as error:
        raise NotHereError("DALI is not installed") from error
    threads = min(8, len(os.sched_getaffinity(0)))
    pipeline = dali.pipeline_def(_dali_graph)(
        dali.fn,
        bench,
        batch_size=BATCH,
        num_threads=threads,
        device_id=bench.device.ordinal,
        prefetch_queue_depth=4,
    )
    pipeline.build()

    def load(count: int) -> None:
        for _ in range(count):
            pipeline.run()
        _wait_for_all()

    dali_s = bench.seconds_each(load)
    with bench.open() as feed:
        batches = iter(feed)

        def take(count: int) -> None:
            for _ in range(count):
                batch = next(batches)
                batch.data.gpu_data()
                batch.label.gpu_data()
                del batch
            _wait_for_all()

        feed_s = bench.seconds_each(take)
    return Outcome(
        "DALI",
        "measured",
        f"feed {BATCH / feed_s:.0f} images/s, DALI with {threads} threads "
        f"{BATCH / dali_s:.0f} images/s",
        {"feed_images_per_s": BATCH / feed_s, "dali_images_per_s": BATCH / dali_s},
    )


def _dali_graph(fn: Any, bench: Bench) -> tuple[Any, Any]:
    record, label = fn.readers.caffe(path=str(bench.source), prefetch_queue_depth=4)
    return fn.reshape(record, shape=list(bench.shape), layout="CHW").gpu(), label.gpu()


def _wait_for_all() -> None:
    # DALI's streams are its own, and nobody is told of them.
    import cupy  # noqa: PLC0415 - of the checks on a GPU alone

    cupy.cuda.runtime.deviceSynchronize()


PEERS: Final[dict[str, Callable[[Bench], Outcome]]] = {
    "torch DataLoader": check_torch_loader,
    "DALI": check_dali,
}
