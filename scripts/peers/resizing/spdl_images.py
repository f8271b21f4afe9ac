"""SPDL's pipeline of threads with FFmpeg's decoder and filters, as SPDL offers them for images.

A filter graph an image cuts, resizes, mirrors and converts to RGB; SPDL gathers the frames of a
batch, and its floats are made with OpenCV, since SPDL makes none on the CPU. A stage makes a whole
batch, whose memory is used again; batches are handed out in order.
"""

from __future__ import annotations

import itertools
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder

from peers.filling import Slots
from peers.records import Records
from peers.resizing import crops
from peers.works import PREFETCH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from peers.works import Arrays, Settings, Stream, Work


def candidates(work: Work, *, num_cores: int) -> list[Settings]:  # noqa: ARG001 - as all modules
    """Return one thread and as many as cores; the roster fixes the number."""
    return [{"concurrency": threads} for threads in sorted({1, num_cores})]


@contextmanager
def open_stream(work: Work, database: Path, settings: Settings) -> Iterator[Stream]:
    """Open a pipeline; see `peers.works.OpenStream`."""
    cv2.setNumThreads(1)
    concurrency: int = settings["concurrency"]
    slots = Slots(work, PREFETCH + 2 * concurrency + 5)  # as `spdl_pipeline` has it
    filler = _Filler(work, database)

    def fill(number: int) -> Arrays:
        data, labels = slots[number]
        filler.fill(number, data, labels)
        return data, labels

    pipeline = (
        PipelineBuilder()
        .add_source(itertools.count())
        .pipe(fill, concurrency=concurrency, output_order="input")
        .add_sink(PREFETCH)
        .build(num_threads=concurrency, max_failures=0, use_thread_output_queue=True)
    )
    with pipeline.auto_stop():
        yield iter(pipeline)


class _Filler:
    """Fills batches of the endless stream, each by its number. Thread-safe."""

    def __init__(self, work: Work, database: Path) -> None:
        self._work = work
        self._records = Records(database, work)
        self._local = threading.local()

    def fill(self, number: int, data: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> None:
        size = self._work.batch_size
        files, labels[:] = self._records.take(number * size % self._records.num_records, size)
        rng = np.random.default_rng(number)
        frames = [self._frame(file, rng) for file in files]
        images = spdl.io.to_numpy(spdl.io.convert_frames(frames))
        for image, row in zip(images, data, strict=True):
            self._normaliser().write(image, row, mirrored=False)

    def _frame(self, file: memoryview, rng: np.random.Generator) -> Any:
        _, height, width = self._work.shape
        top, left, rows, columns = crops.draw(rng, height, width)
        side = self._work.resized_crop
        mirror = ",hflip" if rng.integers(2) else ""
        packets = spdl.io.demux_image(bytes(file))
        return spdl.io.decode_packets(
            packets,
            filter_desc=f"crop={columns}:{rows}:{left}:{top},"
            f"scale={side}:{side}:flags=bilinear{mirror},format=pix_fmts=rgb24",
        )

    def _normaliser(self) -> crops.Normaliser:
        normaliser: crops.Normaliser | None = getattr(self._local, "normaliser", None)
        if normaliser is None:
            normaliser = self._local.normaliser = crops.Normaliser(self._work)
        return normaliser
