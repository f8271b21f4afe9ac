"""SPDL's pipeline of threads, with its own decoder or another.

SPDL brings no reader of LMDBs and no crop or mirror into a batch of one's own, so a stage of the
pipeline fills a whole batch with NumPy; batches are handed out in order and their memory is used
again. Of JPEG files either SPDL's decoder makes BGR, where the system has FFmpeg's libraries, or
simplejpeg.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING

import cv2
import numpy as np
from spdl.pipeline import PipelineBuilder

from peers.filling import Filler, Slots, decode_simplejpeg
from peers.works import PREFETCH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from peers.works import Arrays, Settings, Stream, Work


def candidates(work: Work, *, num_cores: int) -> list[Settings]:
    """Return one thread and as many as cores, with each decoder that works here."""
    decoders: list[Settings] = [{}]
    if work.encoded:
        decoders = [{"decoder": "simplejpeg"}]
        if _finds_ffmpeg():
            decoders.append({"decoder": "spdl.io"})
    return [
        {"concurrency": threads, **decoder}
        for threads in sorted({1, num_cores})
        for decoder in decoders
    ]


@contextmanager
def open_stream(work: Work, database: Path, settings: Settings) -> Iterator[Stream]:
    """Open a pipeline; see `peers.works.OpenStream`."""
    concurrency: int = settings["concurrency"]
    decode = _decode_spdl if settings.get("decoder") == "spdl.io" else decode_simplejpeg
    filler = Filler(work, database, decode=decode)
    # Ready, being filled, waiting between the stages, and with the loop: 10, 12 and 14 were seen
    # with 1, 2 and 4 threads.
    slots = Slots(work, PREFETCH + 2 * concurrency + 5)

    def fill(number: int) -> Arrays:
        data, labels = slots[number]
        filler.fill(number, np.random.default_rng(number), data, labels)
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


def _finds_ffmpeg() -> bool:
    """Return whether SPDL's decoder finds FFmpeg's libraries, which come with the system."""
    import spdl.io  # noqa: PLC0415 - as below

    try:
        spdl.io.demux_config()
    except RuntimeError:
        return False
    return True


def _decode_spdl(file: memoryview, buffer: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    import spdl.io  # noqa: PLC0415 - loads FFmpeg, which is not wanted where it is not used

    packets = spdl.io.demux_image(bytes(file))
    frames = spdl.io.decode_packets(packets, filter_desc="format=pix_fmts=rgb24")
    pixels = spdl.io.to_numpy(spdl.io.convert_frames(frames))
    cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR, dst=buffer)  # SPDL refuses to convert to BGR itself
    return buffer
