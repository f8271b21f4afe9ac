"""A seed decides every byte, however many threads make the batches.

Reported of other loaders: caffe 4189, 3168, pytorch 5059.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

import prefetch
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("rng", ["counter", "caffe"])
def test_the_same_seed_gives_the_same_bytes_for_any_number_of_threads(
    tmp_path: Path, rng: str
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 3, 33, 33), dtype=np.uint8)
    records = [(b"%08d" % i, encode_image(image, label=i)) for i, image in enumerate(images)]
    source = write_database(tmp_path / "db", records)

    def digests(threads: int, seed: int) -> list[str]:
        with prefetch.open(
            {
                "source": source,
                "batch_size": 16,
                "shuffle": True,
                "seed": seed,
                "rng": rng,
                "threads": threads,
                "transform": {"crop_size": 20, "mirror": True},
            }
        ) as feed:
            return [
                hashlib.sha256(b"".join(batch.data.numpy().tobytes() for batch in feed)).hexdigest()
                for _ in range(3)
            ]

    first = digests(1, 7)
    assert digests(2, 7) == first
    assert digests(8, 7) == first
    assert len(set(first)) == 3
    assert digests(1, 8) != first
