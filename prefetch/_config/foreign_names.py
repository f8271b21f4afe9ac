"""What options of other loaders are called here, for those who write them out of habit.

Only names that mean one thing: where a name is merely misspelt, the nearest option is the answer.
Names of classes, such as RandomCrop, are looked up as random_crop.
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
_MEAN: Final = (
    "write transform.normalize: {mean: [...], std: [...]} for pixels from 0 to 1, or "
    "transform.mean_value and transform.scale for (pixel - mean_value) * scale"
)
_PRESET: Final = (
    "write transform.preset: imagenet-train (or cifar-train); options beside it replace its own"
)
_SIZED: Final = (
    "write transform.random_resized_crop: {size: N} to train, and transform.resize: {shorter: M} "
    "with transform.crop_size: N to evaluate"
)
_RESIZED_BOX: Final = (
    "write transform.random_resized_crop: {size: N, scale: [0.08, 1.0], ratio: [0.75, 1.333]}"
)
_RANDOM_CROP: Final = (
    "write transform.crop_size: N, with transform.pad: M before it; the place is random in phase "
    "train"
)
_CENTRE_CROP: Final = "write transform.crop_size: N; the place is the centre in phase test"
_MIRRORED: Final = "write transform.mirror: train, or true for both phases; the chance is one half"
_MIXED: Final = (
    "write transform.mixup: {alpha: 0.2} or transform.cutmix: {alpha: 1.0}, and labels: pairs or "
    "one_hot"
)
_ERASED: Final = (
    "write transform.random_erasing: {probability: 0.25, mode: pixel}; mode is const, rand or pixel"
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
    "augment": _PRESET,
    "data_dir": _SOURCE,
    "database": _SOURCE,
    "distributed": _SHARD,
    "flip": _MIRRORED,
    "fname": _SOURCE,
    "image_size": _SIZED,
    "num_epochs": "write epochs: N",
    "order": _ORDER,
    "path": _SOURCE,
    "pipelines": FUNCTIONS,
    "resampled": _ORDER,
    "shardshuffle": _SHUFFLED,
    "shuffle_buffer": _SHUFFLED,
    "split": "write source: the database of that split, or subset: {fraction: 0.9, seed: 1}",
    "urls": _SOURCE,
    "workers": _READERS,
    # Transformations of torchvision, timm, DALI, Albumentations and Keras
    "antialias": "leave it out: what becomes smaller is antialiased, as Pillow does it",
    "auto_augment": FUNCTIONS,
    "center_crop": _CENTRE_CROP,
    "crop_pct": _SIZED,
    "cut_mix": _MIXED,
    "cutmix_alpha": _MIXED,
    "data_augmentation": _PRESET,
    "hflip": _MIRRORED,
    "horizontal_flip": _MIRRORED,
    "img_size": _SIZED,
    "input_size": _SIZED,
    "mean": _MEAN,
    "mix_up": _MIXED,
    "mixup_alpha": _MIXED,
    "num_attempts": "leave it out: a box is tried for ten times, as everywhere",
    "one_hot": "write labels: one_hot, and num_classes: K",
    "padding": "write transform.pad: N, in zeros on each side",
    "rand_augment": FUNCTIONS,
    "random_area": _RESIZED_BOX,
    "random_aspect_ratio": _RESIZED_BOX,
    "random_crop": _RANDOM_CROP,
    "random_flip": _MIRRORED,
    "random_horizontal_flip": _MIRRORED,
    "random_resized_crop_and_interpolation": _RESIZED_BOX,
    "re_mode": _ERASED,
    "re_prob": _ERASED,
    "remode": _ERASED,
    "reprob": _ERASED,
    "resize_shorter": "write transform.resize: {shorter: N}",
    "smallest_max_size": "write transform.resize: {shorter: N}",
    "std": _MEAN,
    "to_tensor": "leave it out: batches are arrays; write transform.normalize for 0 to 1",
    # Caffe's data_param, and arguments for its networks
    "backend": "leave it out: a source is an LMDB",
    "layer": _NETWORK,
    "rand_skip": "not read here; write subset: {start: N} to leave records out",
    "stages": _NETWORK,
}
"""What to do instead, by the name that was given."""
