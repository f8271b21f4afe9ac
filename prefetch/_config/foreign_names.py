"""What options of other loaders are called here, for those who write them out of habit.

Only names that mean one thing: where a name is merely misspelt, the nearest option is the answer.
"""

from __future__ import annotations

from typing import Final

_READERS: Final = "readers are threads of this process; write threads: N, or leave it out for auto"
_PINNED: Final = "leave it out: on a GPU batches are always in pinned memory"
_ORDER: Final = "write shuffle: true for a random order, or subset and shard for a part"
_FUNCTIONS: Final = "records go through no function of yours; apply it to the batch in the loop"
_MEAN: Final = "write transform.mean_value and transform.scale: (pixel - mean_value) * scale"
_RESIZED: Final = (
    "a feed does not resize; do it when the database is made: ringfeed convert with "
    "--resize-width and --resize-height, or cut out a part with transform.crop_size"
)

CALLED_HERE: Final = {
    # PyTorch's DataLoader
    "batch_sampler": _ORDER,
    "collate_fn": _FUNCTIONS,
    "dataset": "write source: the folder of the database",
    "drop_last": "write last_batch: drop",
    "generator": "write seed: N",
    "num_workers": _READERS,
    "persistent_workers": "leave it out: the readers live as long as the feed",
    "pin_memory": _PINNED,
    "pin_memory_device": _PINNED,
    "prefetch_factor": "write prefetch: N, the number of batches kept ready",
    "sampler": _ORDER,
    "worker_init_fn": _READERS,
    # Others
    "augment": "write transform.mirror and transform.crop_size, or apply your own to the batch",
    "cache": "leave it out: the system keeps in memory what it has read",
    "data_dir": "write source: the folder of the database",
    "database": "write source: the folder of the database",
    "flip": "write transform.mirror: true",
    "hflip": "write transform.mirror: true",
    "horizontal_flip": "write transform.mirror: true",
    "image_size": _RESIZED,
    "mean": _MEAN,
    "normalize": _MEAN,
    "num_epochs": "write epochs: N",
    "num_threads": "write threads: N",
    "path": "write source: the folder of the database",
    "random_crop": "write transform.crop_size: N; the place is random in phase train",
    "resize": _RESIZED,
    "root": "write source: the folder of the database",
    "split": "write source: the database of that split, or subset: {start: 0, stop: N}",
    "std": "write transform.scale, a factor: 1 / std",
    "transforms": "write transform",
    "workers": _READERS,
    # Caffe's data_param
    "backend": "leave it out: a source is an LMDB",
    "rand_skip": "not read here; write subset: {start: N} to leave records out",
}
"""What to do instead, by the name that was given."""
