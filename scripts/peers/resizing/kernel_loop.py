"""This project's decoder and kernels on one thread, without its feed.

What a random-resized crop costs with them at least: a window of each file is decoded, where it has
restart markers, and resized, mirrored and normalised into its row of the batch. Nothing is planned,
read ahead, counted or leased.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from peers.filling import Slots
from peers.records import Records
from prefetch import FeedConfig
from prefetch._feed.build import build_transform
from prefetch._kernels import boxes, selection
from prefetch._plan.random_words import Word
from prefetch._record.decode import ImageDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from peers.works import Settings, Stream, Work

READS_AHEAD = False
"""Nothing is made while the loop that takes the batches rests."""


def candidates(work: Work, *, num_cores: int) -> list[Settings]:  # noqa: ARG001 - as all modules
    """Return the only setting: one thread."""
    return [{"threads": 1}]


@contextmanager
def open_stream(work: Work, database: Path, settings: Settings) -> Iterator[Stream]:  # noqa: ARG001
    """Open the loop; see `peers.works.OpenStream`."""
    transform = build_transform(
        FeedConfig(
            source=str(database),
            batch_size=work.batch_size,
            transform={"preset": "imagenet-train"},
        )
    )
    recipe, kernels = transform.recipe, selection.kernels
    num_words = len(Word) + 4 * len(transform.drawn_blocks)
    decoder = ImageDecoder(
        force_color=transform.decoding.force_color,
        splice=getattr(kernels, "splice_jpeg", None),  # the NumPy twin has none
    )

    def batches(records: Records) -> Stream:
        data, labels = Slots(work, 1)[0]
        rng = np.random.default_rng(0)
        for first in itertools.count(0, work.batch_size):
            files, labels[:] = records.take(first % records.num_records, work.batch_size)
            words = rng.integers(0, 2**32, (len(files), num_words), np.uint32)
            for file, drawn, row in zip(files, words, data, strict=True):
                numbers = drawn.tolist()
                window = decoder.decode_window(
                    file,
                    lambda height, width, numbers=numbers: boxes.needed_box(
                        numbers, height, width, recipe
                    ),
                )
                bad = kernels.fill_image(window.pixels, drawn, row, recipe, window[1:])
                assert bad is None, "the records are good"
            yield data, labels

    yield batches(Records(database, work))
