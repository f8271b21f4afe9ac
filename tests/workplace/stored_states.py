"""Saved states and a quarantine, as files that a later version has to take up.

Run as a program it writes them, with whichever version of the library is installed; by public names
only, so that old versions run it too. See tests/stored/README.md.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import prefetch
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NUM_RECORDS: Final = 31
NUM_BAD: Final = 3
NUM_TAKEN: Final = 5  # of batches of four: into the middle of the first epoch
_MOST_REMAINING: Final = 20  # of an endless stream

_DRAWN: Final = {"crop_size": 5, "mirror": True, "mean_value": [104.0], "scale": 0.5}
CASES: Final[Mapping[str, Mapping[str, Any]]] = {
    "sequential": {"epochs": 2},
    "shuffled": {"epochs": 2, "shuffle": True, "transform": _DRAWN},
    "sharded": {"epochs": 3, "shuffle": True, "shard": {"rank": 1, "world_size": 3}},
    "wrap": {"last_batch": "wrap", "shuffle": True, "transform": _DRAWN},
    "drop": {"epochs": 2, "last_batch": "drop", "shuffle": True},
    "caffe": {
        "rng": "caffe",
        "last_batch": "wrap",
        "shard": {"rank": 1, "world_size": 2, "policy": "caffe"},
        "transform": _DRAWN,
        "label_dtype": "float32",
    },
    "caffe_shuffled": {"epochs": 2, "rng": "caffe", "shuffle": True, "transform": _DRAWN},
    "subset": {"epochs": 2, "shuffle": True, "subset": {"start": 3, "stop": 27}},
}
"""Options by the name of a case, beside the source."""


def write_source(folder: Path) -> Path:
    """Write the database that all states are of; the same bytes of records everywhere."""
    images = np.arange(NUM_RECORDS * 3 * 9 * 9, dtype=np.uint64).reshape(-1, 3, 9, 9)
    pixels = (images * images * 2654435761 >> 7).astype(np.uint8)
    return write_database(
        folder,
        [(b"%08d" % i, encode_image(image, label=i)) for i, image in enumerate(pixels)],
    )


def write_bad_source(folder: Path, num_bad: int = NUM_BAD) -> Path:
    """Write a database whose first records are bad."""
    image = np.zeros((1, 4, 4), np.uint8)
    return write_database(
        folder,
        [
            (b"%08d" % i, b"\xff no Datum %d" % i if i < num_bad else encode_image(image, label=i))
            for i in range(10)
        ],
    )


def open_case(case: str, source: Path, **more: Any) -> prefetch.Feed:
    """Open the feed of a case."""
    return prefetch.open({"source": source, "batch_size": 4, "seed": 7, **CASES[case], **more})


def digest(batches: Iterator[prefetch.Batch]) -> dict[str, Any]:
    """Return how many batches there are, up to those that are compared, and their digest."""
    sha, num_batches = hashlib.sha256(), 0
    for batch in itertools.islice(batches, _MOST_REMAINING):
        sha.update(f"{batch.epoch} {batch.number} {batch.indices.tolist()}\n".encode())
        sha.update(batch.data.numpy().tobytes())
        sha.update(batch.label.numpy().tobytes())
        num_batches += 1
    return {"num_batches": num_batches, "sha256": sha.hexdigest()}


def all_batches(feed: prefetch.Feed) -> Iterator[prefetch.Batch]:
    """Yield the batches of every epoch that is left."""
    while True:
        try:
            yield from feed
        except prefetch.EpochsExhaustedError:
            return


def _write(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = write_source(Path(folder, "db"))
        for case in CASES:
            with open_case(case, source) as feed:
                batches = all_batches(feed)
                for _ in itertools.islice(batches, NUM_TAKEN):
                    pass
                state = feed.state_dict()
                remaining = digest(batches)
            text = json.dumps({"state": state, "remaining": remaining}, indent=1)
            (target / f"{case}.json").write_text(f"{text}\n", encoding="utf-8")
        options = {"on_bad_record": "quarantine", "quarantine": target / "quarantine"}
        with prefetch.open({"source": write_bad_source(Path(folder, "bad")), **options}) as feed:
            for _ in feed:
                pass


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
