"""What options of other loaders are called here, for those who write them out of habit.

Only names that mean one thing: where a name is merely misspelt, the nearest option is the answer.
"""

from __future__ import annotations

from typing import Final

_READERS: Final = "readers are threads of this process; write threads: N, or leave it out for auto"
_PINNED: Final = "leave it out: on a GPU batches are always in pinned memory"
_ORDER: Final = "write shuffle: true for a random order, or subset and shard for a part"
_AHEAD: Final = "write prefetch: N, the number of batches kept ready"
_SHUFFLED: Final = (
    "leave it out: with shuffle: true all records are shuffled, in no buffer, and write seed: N "
    "for the order"
)
_SOURCE: Final = "write source: the folder of the database"
_SHARD: Final = "write shard: {rank: R, world_size: W}"
_DEVICE: Final = "write device: cuda:N, or leave it out for auto"
FUNCTIONS: Final = (
    "write per_record: a function of (image, label, rng), or per_batch: one of "
    "(images, labels, rng)"
)
"""What functions are called here."""
_NETWORK: Final = "leave it out: only a network's file (.prototxt) has it"
_MEAN: Final = "write transform.mean_value and transform.scale: (pixel - mean_value) * scale"
_RESIZED: Final = (
    "a feed does not resize; do it when the database is made: ringfeed convert with "
    "--resize-width and --resize-height, or cut out a part with transform.crop_size"
)

CALLED_HERE: Final = {
    # PyTorch's DataLoader, its datasets and samplers
    "batch_sampler": f"{_ORDER}; batch_size and last_batch are options too",
    "collate_fn": FUNCTIONS,
    "dataset": _SOURCE,
    "drop_last": "write last_batch: drop",
    "generator": "write seed: N; order, crops and mirrors follow from it",
    "in_order": "leave it out: batches always come in order",
    "multiprocessing_context": _READERS,
    "num_replicas": _SHARD,
    "num_workers": _READERS,
    "persistent_workers": "leave it out: the readers live as long as the feed",
    "pin_memory": _PINNED,
    "pin_memory_device": _PINNED,
    "prefetch_factor": _AHEAD,
    "root": _SOURCE,
    "sampler": _ORDER,
    "set_epoch": "call feed.set_epoch(n) between epochs; without it they count up by themselves",
    "target_transform": FUNCTIONS,
    "timeout": "write stall_warning_s: SECONDS, after which the log says what is waited for",
    "transforms": "write transform",
    "worker_init_fn": "leave it out: readers are threads that draw nothing; write seed: N",
    # DALI
    "device_id": _DEVICE,
    "initial_fill": _SHUFFLED,
    "last_batch_policy": "write last_batch: partial, drop or wrap",
    "max_batch_size": "write batch_size",
    "num_shards": _SHARD,
    "num_threads": "write threads: N",
    "prefetch_queue_depth": _AHEAD,
    "py_num_workers": _READERS,
    "random_shuffle": "write shuffle: true",
    "shard_id": _SHARD,
    # tf.data
    "buffer_size": "write prefetch: N, the batches kept ready; shuffle: true needs no buffer",
    "drop_remainder": "write last_batch: drop",
    "map_func": FUNCTIONS,
    "num_parallel_calls": _READERS,
    "reshuffle_each_iteration": "leave it out: with shuffle: true every epoch has its own order",
    "shuffle_buffer_size": _SHUFFLED,
    # WebDataset, FFCV and others
    "augment": "write transform.mirror and transform.crop_size, or per_record: a function of yours",
    "data_dir": _SOURCE,
    "database": _SOURCE,
    "distributed": _SHARD,
    "flip": "write transform.mirror: true",
    "fname": _SOURCE,
    "hflip": "write transform.mirror: true",
    "horizontal_flip": "write transform.mirror: true",
    "image_size": _RESIZED,
    "mean": _MEAN,
    "normalize": _MEAN,
    "num_epochs": "write epochs: N",
    "order": _ORDER,
    "path": _SOURCE,
    "pipelines": FUNCTIONS,
    "random_crop": "write transform.crop_size: N; the place is random in phase train",
    "resampled": _ORDER,
    "resize": _RESIZED,
    "shardshuffle": _SHUFFLED,
    "shuffle_buffer": _SHUFFLED,
    "split": "write source: the database of that split, or subset: {fraction: 0.9, seed: 1}",
    "std": "write transform.scale, a factor: 1 / std",
    "urls": _SOURCE,
    "workers": _READERS,
    # Caffe's data_param, and arguments for its networks
    "backend": "leave it out: a source is an LMDB",
    "layer": _NETWORK,
    "rand_skip": "not read here; write subset: {start: N} to leave records out",
    "stages": _NETWORK,
}
"""What to do instead, by the name that was given."""
