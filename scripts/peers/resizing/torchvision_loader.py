"""PyTorch's DataLoader with torchvision's transforms (v2) on Pillow images, as their guides do.

A sample is decoded, cut, resized, mirrored and normalised by itself; the DataLoader's own collation
makes the batch, in a worker straight into shared memory.
"""

from __future__ import annotations

import functools
import importlib.util
import io
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from peers.records import Records
from peers.resizing import crops
from peers.works import PREFETCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peers.works import Settings, Stream, Work


def candidates(work: Work, *, num_cores: int) -> list[Settings]:  # noqa: ARG001 - as all modules
    """Return no worker, and as many as cores; the roster fixes the number."""
    return [{"num_workers": workers} for workers in sorted({0, num_cores})]


@contextmanager
def open_stream(work: Work, database: Path, settings: Settings) -> Iterator[Stream]:
    """Open a DataLoader; see `peers.works.OpenStream`."""
    torch.set_num_threads(1)  # a worker is one thread already
    workers: int = settings["num_workers"]
    ahead = {"prefetch_factor": max(1, PREFETCH // workers)} if workers else {}
    with Records(database, work) as records:
        num_records = records.num_records
    loader = DataLoader(
        _Samples(work, database, num_records),
        batch_size=work.batch_size,
        sampler=_InTurns(num_records),
        num_workers=workers,
        **ahead,
    )
    iterator = iter(loader)
    try:
        yield ((data.numpy(), labels.numpy()) for data, labels in iterator)
    finally:
        del iterator


class _InTurns:
    """The numbers of all samples, again and again, so that there is no pause between epochs."""

    def __init__(self, num_records: int) -> None:
        self._num_records = num_records

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from range(self._num_records)


class _Samples(Dataset[Any]):  # type: ignore[misc] # untyped where torch is not installed
    def __init__(self, work: Work, database: Path, num_records: int) -> None:
        self._work = work
        self._database = database
        self._num_records = num_records
        self._records: Records | None = None
        self._transform = _transform(work)

    def __len__(self) -> int:
        return self._num_records

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        # Opened in the worker, since an LMDB must not be taken across a fork.
        records = self._records = self._records or Records(self._database, self._work)
        (file,), (label,) = records.take(number, 1)
        return self._transform(Image.open(io.BytesIO(file)).convert("RGB")), label


def _transform(work: Work) -> Any:
    _declare_missing_operators()
    from torchvision.transforms import v2  # noqa: PLC0415 - only now can it be imported

    return v2.Compose(
        [
            v2.RandomResizedCrop(
                work.resized_crop,
                scale=crops.AREA,
                ratio=crops.RATIO,
                antialias=True,
            ),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(list(work.mean), list(work.std), inplace=True),
        ]
    )


@functools.cache  # once in a process, and what was declared lives as long as its library
def _declare_missing_operators() -> torch.library.Library | None:
    """Let torchvision built for CUDA be imported beside PyTorch built for the CPU.

    Its compiled operators then do not load, and its import fails on two that it only wants to
    describe. The transforms of images use none of them.
    """
    found = importlib.util.find_spec("torchvision")
    assert found is not None, "the roster asks for it"
    assert found.origin is not None
    try:
        torch.ops.load_library(str(Path(found.origin).with_name("_C.so")))
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return library
    return None
