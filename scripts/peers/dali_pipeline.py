"""NVIDIA DALI's pipeline on the CPU, which reads Caffe's LMDBs by itself.

Its reader gives the bytes of a record; DALI decodes, crops, mirrors and normalises them in its own
threads. Nothing of it is Python while it runs. The executor is the one that DALI itself takes where
there is no GPU; the dynamic one was tried, without a clear gain.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types

from peers.resizing import crops
from peers.works import PREFETCH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from peers.works import Settings, Stream, Work


def candidates(work: Work, *, num_cores: int) -> list[Settings]:
    """Return one thread and as many as cores, decoding all of a file or only the crop."""
    return [
        {"num_threads": threads, "exec_dynamic": False, **decoder}
        for threads in sorted({1, num_cores})
        for decoder in ([{"decoder": "image"}, {"decoder": "image_crop"}] if work.encoded else [{}])
    ]


@contextmanager
def open_stream(work: Work, database: Path, settings: Settings) -> Iterator[Stream]:
    """Open a pipeline; see `peers.works.OpenStream`."""
    options = dict(settings)
    decoder = options.pop("decoder", None)
    graph = _resizing_graph if work.resized_crop else _graph
    pipeline = pipeline_def(graph)(
        work,
        database,
        decoder,
        batch_size=work.batch_size,
        device_id=None,
        prefetch_queue_depth=PREFETCH,
        seed=0,
        **options,
    )
    pipeline.build()
    yield _batches(pipeline)


def _graph(work: Work, database: Path, decoder: str | None) -> tuple[Any, Any]:
    """Return the pipeline's outputs: images and labels."""
    record, label = fn.readers.caffe(path=str(database), prefetch_queue_depth=PREFETCH)
    if not work.encoded:
        record = fn.reshape(record, shape=list(work.shape), layout="CHW")
    if work.dtype == "uint8":
        return record, label
    place: dict[str, Any] = {}
    if work.crop:
        place = {
            "crop": (work.crop, work.crop),
            "crop_pos_x": fn.random.uniform(range=(0.0, 1.0)),
            "crop_pos_y": fn.random.uniform(range=(0.0, 1.0)),
        }
    if decoder == "image_crop":
        record = fn.decoders.image_crop(record, output_type=types.BGR, **place)
        place = {}
    elif decoder == "image":
        record = fn.decoders.image(record, output_type=types.BGR)
    channels = work.shape[0]
    image = fn.crop_mirror_normalize(
        record,
        mirror=fn.random.coin_flip() if work.mirror else 0,
        mean=list(work.mean or (0.0,) * channels),
        std=[1.0] * channels,
        scale=work.scale,
        dtype=types.FLOAT,
        output_layout="CHW",
        **place,
    )
    return image, label


def _resizing_graph(work: Work, database: Path, decoder: str) -> tuple[Any, Any]:
    """Return images of rectangles drawn at random, decoded alone or with the rest, and labels."""
    record, label = fn.readers.caffe(path=str(database), prefetch_queue_depth=PREFETCH)
    draws = {
        "random_area": list(crops.AREA),
        "random_aspect_ratio": list(crops.RATIO),
        "num_attempts": crops.NUM_TRIES,
    }
    size = {"size": [work.resized_crop] * 2, "interp_type": types.INTERP_LINEAR, "antialias": True}
    if decoder == "image_random_crop":
        image = fn.decoders.image_random_crop(record, output_type=types.RGB, **draws)
        image = fn.resize(image, **size)
    else:
        image = fn.decoders.image(record, output_type=types.RGB)
        image = fn.random_resized_crop(image, **size, **draws)
    image = fn.crop_mirror_normalize(
        image,
        mirror=fn.random.coin_flip(),
        mean=[255 * mean for mean in work.mean],
        std=[255 * std for std in work.std],
        dtype=types.FLOAT,
        output_layout="CHW",
    )
    return image, label


def _batches(pipeline: Any) -> Stream:
    while True:
        images, labels = pipeline.run()
        yield np.asarray(images.as_tensor()), np.asarray(labels.as_tensor()).reshape(-1)
