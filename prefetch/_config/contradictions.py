"""Options that are right by themselves and contradict each other.

Nothing that was asked for is dropped in silence: where two options cannot both hold, the
configuration is refused. The rules look at a configuration whose single options have passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import lmdb

from prefetch._kernels.boxes import both_sides
from prefetch._plan.mersenne import MAX_MERSENNE_SEED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefetch._config.models import FeedOptions, SubsetConfig, TransformConfig


_LEAST_STD = 1e-30
"""A smaller deviation makes pixels infinite in float32."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Options that cannot hold together.

    Attributes:
        keys: Dotted names of the options; the fault is reported at the first that was given.
        message: Why, and what to do.
    """

    keys: tuple[str, ...]
    message: str


def find_contradictions(config: FeedOptions) -> Iterator[Contradiction]:
    """Yield every contradiction in a configuration."""
    yield from _check_source(config)
    yield from _check_order(config)
    yield from _check_sizes(config)
    yield from _check_pixels(config.transform)
    yield from _check_labels(config)
    yield from _check_mixing(config)
    yield from _check_normalize(config.transform)
    yield from _check_effects(config)
    yield from _check_cache(config)
    if config.per_record is not None and config.transform.where == "device":
        yield Contradiction(
            ("transform.where", "per_record"),
            "where device contradicts per_record, which is called on the host, in the middle of "
            "the transformation; use where: auto or host, or per_batch, which gets the batch on "
            "the device",
        )


def _check_source(config: FeedOptions) -> Iterator[Contradiction]:
    subset = config.subset
    if (
        subset is not None
        and subset.start is not None
        and subset.stop is not None
        and subset.start >= subset.stop
    ):
        yield Contradiction(
            ("subset.stop", "subset.start"),
            f"expected a stop above start, found start {subset.start} and stop {subset.stop}",
        )
    if subset is not None:
        yield from _check_subset(subset, config)
    if config.lock and any(isinstance(item, lmdb.Environment) for item in config.source):
        yield Contradiction(
            ("lock", "source"),
            "lock: true has no effect on an lmdb.Environment, which was opened with a lock or "
            "without; leave lock out, or give the path",
        )
    if config.on_bad_record == "quarantine" and config.quarantine is None:
        yield Contradiction(
            ("on_bad_record", "quarantine"),
            "on_bad_record quarantine needs a folder to keep the records in; name it as quarantine",
        )
    if config.on_bad_record != "quarantine" and config.quarantine is not None:
        yield Contradiction(
            ("quarantine", "on_bad_record"),
            f"nothing goes to a quarantine with on_bad_record {config.on_bad_record}; "
            "set on_bad_record: quarantine, or leave it out",
        )


def _check_cache(config: FeedOptions) -> Iterator[Contradiction]:
    decoded = config.cache.decoded
    if decoded is None:
        return
    if decoded.memory and decoded.path is not None:
        yield Contradiction(
            ("cache.decoded.memory", "cache.decoded.path"),
            "decoded images are kept in memory or in a file, and not in both; leave memory out, "
            "or path",
        )
    if not decoded.memory and decoded.path is None:
        yield Contradiction(
            ("cache.decoded", "cache.decoded.path"),
            "a cache of decoded images needs a place: name a file as path, or set memory: true",
        )


def _check_subset(subset: SubsetConfig, config: FeedOptions) -> Iterator[Contradiction]:
    if subset.fraction is None:
        for name in ("seed", "complement", "stratify"):
            if getattr(subset, name):
                yield Contradiction(
                    (f"subset.{name}", "subset.fraction"),
                    f"{name} has no effect without subset.fraction; give one, or leave it out",
                )
    elif subset.stratify and not config.labels:
        yield Contradiction(
            ("subset.stratify", "labels"),
            "stratify needs labels, and labels is false; leave one of them out",
        )
    elif subset.stratify and config.label_dtype.startswith("float"):
        yield Contradiction(
            ("subset.stratify", "label_dtype"),
            f"stratify needs labels that are whole numbers, and label_dtype is "
            f"{config.label_dtype}; take int64 or int32, or leave stratify out",
        )


def _check_order(config: FeedOptions) -> Iterator[Contradiction]:
    shard = config.shard
    rank, world_size = shard.rank, shard.world_size
    if rank == "auto" or world_size == "auto":
        if rank != world_size:
            lacking = "rank" if rank == "auto" else "world_size"
            given = "world_size" if rank == "auto" else "rank"
            yield Contradiction(
                (f"shard.{given}", f"shard.{lacking}"),
                f"expected both rank and world_size, or neither of them, and found no {lacking}",
            )
    else:
        if rank >= world_size:
            yield Contradiction(
                ("shard.rank", "shard.world_size"),
                f"expected a rank below world_size, counted from 0; found rank {rank} "
                f"and world_size {world_size}",
            )
        if config.seed is None and world_size > 1:
            message = explain_missing_seed(config.rng, world_size)
            yield Contradiction(("seed", "shard.world_size"), message)
    if config.rng == "caffe" and config.seed is not None and config.seed > MAX_MERSENNE_SEED:
        yield Contradiction(
            ("seed", "rng"),
            f"expected a seed of {MAX_MERSENNE_SEED} or less with rng caffe, "
            f"whose seeds have 32 bits; found {config.seed}",
        )
    if config.draws_before and config.rng != "caffe":
        yield Contradiction(
            ("draws_before", "rng"),
            f"draws_before has no effect with rng {config.rng}; leave it out, or take rng caffe",
        )
    if shard.policy == "caffe" and config.last_batch != "wrap":
        yield Contradiction(
            ("shard.policy", "last_batch"),
            "policy caffe reads on past the end of the records into the next epoch, and needs "
            f"last_batch wrap; found last_batch {config.last_batch}",
        )
    if shard.policy == "caffe" and config.shuffle:
        yield Contradiction(
            ("shuffle", "shard.policy"),
            "shuffle true contradicts shard.policy caffe, which reads in the order of the keys; "
            "leave shuffle out, or take policy pad or drop",
        )


def explain_missing_seed(rng: str, world_size: int) -> str:
    """Say why several ranks need a seed: here, or at opening where the ranks show only then."""
    return f"seed null with shard.world_size {world_size} " + (
        "cannot be repeated; give each rank its own, as Caffe's solver does: the run's seed plus "
        "the rank"
        if rng == "caffe"
        else "would give each rank an order of its own; give all ranks the same number"
    )


def _check_labels(config: FeedOptions) -> Iterator[Contradiction]:
    if config.labels == "one_hot" and config.num_classes is None:
        yield Contradiction(
            ("labels", "num_classes"),
            "labels one_hot needs to know how many classes there are; give num_classes",
        )
    if config.labels != "one_hot" and config.num_classes is not None:
        yield Contradiction(
            ("num_classes", "labels"),
            "num_classes is how many columns one-hot labels have; set labels: one_hot, or leave it "
            "out",
        )
    if not isinstance(config.labels, bool) and config.label_dtype != "int64":
        made = "int64 pairs" if config.labels == "pairs" else "float32 columns"
        yield Contradiction(
            ("label_dtype", "labels"),
            f"label_dtype {config.label_dtype} contradicts labels {config.labels}, which makes "
            f"{made} of labels that are whole numbers; leave label_dtype out",
        )


def _check_mixing(config: FeedOptions) -> Iterator[Contradiction]:
    transform = config.transform
    for name in ("mixup", "cutmix"):
        if getattr(transform, name) is None:
            continue
        if config.phase == "test":
            yield Contradiction(
                (f"transform.{name}", "phase"),
                f"{name} mixes images for training, and phase is test; leave it out, or for "
                "ImageNet take transform.preset imagenet-eval",
            )
        if config.labels is True:
            yield Contradiction(
                (f"transform.{name}", "labels"),
                f"{name} gives an image the labels of two, and labels true would hand out one of "
                "them; set labels: pairs (label, label2 and lam) or labels: one_hot with "
                "num_classes, or labels: false for the images alone",
            )
    if transform.mixup is not None and transform.dtype == "uint8":
        yield Contradiction(
            ("transform.mixup", "transform.dtype"),
            "mixup contradicts dtype uint8, which has no room for a weighted sum; take dtype "
            "float32, float16 or bfloat16, or cutmix, which moves pixels",
        )


def _check_sizes(config: FeedOptions) -> Iterator[Contradiction]:
    transform = config.transform
    random_crop, resize = transform.random_resized_crop, transform.resize
    makers = {
        "random_resized_crop": random_crop is not None,
        "resize": resize is not None,
        "pad": transform.pad > 0,
        "color_jitter": transform.color_jitter is not None,
    }
    if random_crop is not None and config.phase == "test":
        yield Contradiction(
            ("transform.random_resized_crop", "phase"),
            "random_resized_crop is for training, and phase is test; take preset: imagenet-eval, "
            "or resize: {shorter: 256} and crop_size: 224",
        )
    if random_crop is not None and config.rng == "caffe":
        yield Contradiction(
            ("transform.random_resized_crop", "rng"),
            "random_resized_crop draws more numbers than rng caffe has for a record; take rng "
            "counter",
        )
    if random_crop is not None and resize is not None:
        yield Contradiction(
            ("transform.resize", "transform.random_resized_crop"),
            "resize and random_resized_crop both say which size an image becomes; leave one of "
            "them out",
        )
    if resize is not None and (resize.shorter is None) == (resize.size is None):
        yield Contradiction(
            ("transform.resize",),
            "expected either shorter or size, as in {shorter: 256} or {size: [224, 224]}",
        )
    if transform.mean_file is not None:
        for name, given in makers.items():
            if given:
                yield Contradiction(
                    (f"transform.{name}", "transform.mean_file"),
                    f"{name} makes other images of those that the mean of mean_file is subtracted "
                    "from, pixel by pixel; take mean_value or normalize, or leave one of them out",
                )
    yield from _check_crop(transform)


def _check_crop(transform: TransformConfig) -> Iterator[Contradiction]:
    """Yield whether the crop is larger than what every image is resized to."""
    random_crop, resize = transform.random_resized_crop, transform.resize
    name, size = "random_resized_crop.size", None if random_crop is None else random_crop.size
    crops = both_sides(transform.crop_size)
    if resize is not None and size is None:
        name, size = "resize.size", resize.size
        # The longer side may be long enough.
        if resize.shorter is not None and min(crops) > resize.shorter + 2 * transform.pad:
            yield Contradiction(
                ("transform.crop_size", "transform.resize.shorter"),
                f"a crop of {min(crops)} pixels or more a side does not fit into images whose "
                f"shorter side is {resize.shorter}",
            )
    if size is None:
        return
    sides = both_sides(size)
    if any(crop > side + 2 * transform.pad for crop, side in zip(crops, sides, strict=True)):
        yield Contradiction(
            ("transform.crop_size", f"transform.{name}"),
            f"a crop of {crops[0]} x {crops[1]} (height x width) does not fit into images that "
            f"{name} makes {sides[0]} x {sides[1]}",
        )


def _check_normalize(transform: TransformConfig) -> Iterator[Contradiction]:
    normalize = transform.normalize
    if normalize is None:
        return
    scales = transform.scale if isinstance(transform.scale, tuple) else (transform.scale,)
    for name, given in (
        ("mean_value", len(transform.mean_value) > 0),
        ("mean_file", transform.mean_file is not None),
        ("scale", any(scale != 1 for scale in scales)),
    ):
        if given:
            yield Contradiction(
                ("transform.normalize", f"transform.{name}"),
                f"normalize is for pixels from 0 to 1, and {name} for pixels from 0 to 255; leave "
                "one of them out",
            )
    if transform.dtype == "uint8":
        yield Contradiction(
            ("transform.normalize", "transform.dtype"),
            "normalize contradicts dtype uint8, which hands the stored bytes on as they are; write "
            "normalize: null, or take dtype float32, float16 or bfloat16",
        )
    if not normalize.mean or not normalize.std:
        yield Contradiction(
            ("transform.normalize",), "expected a number for mean and std, or one a channel"
        )
    elif min(normalize.std) <= 0:
        yield Contradiction(
            ("transform.normalize.std", "transform.normalize"),
            f"expected numbers above 0, found {min(normalize.std)}; the pixels are divided by them",
        )
    elif min(normalize.std) < _LEAST_STD:
        yield Contradiction(
            ("transform.normalize.std", "transform.normalize"),
            f"expected numbers of {_LEAST_STD:g} and more, found {min(normalize.std)}; pixels "
            "divided by it are infinite in float32",
        )
    elif len({len(normalize.mean), len(normalize.std)} - {1}) > 1:
        yield Contradiction(
            ("transform.normalize.std", "transform.normalize.mean"),
            f"std has {len(normalize.std)} numbers and mean {len(normalize.mean)}; both are one "
            "number, or one a channel",
        )


def _check_effects(config: FeedOptions) -> Iterator[Contradiction]:
    transform = config.transform
    for name, given in (
        ("color_jitter", transform.color_jitter is not None),
        ("random_erasing", transform.random_erasing is not None),
    ):
        if given and config.phase == "test":
            yield Contradiction(
                (f"transform.{name}", "phase"),
                f"{name} is for training, and phase is test; leave it out, as preset: "
                "imagenet-eval does",
            )
        if given and config.rng == "caffe":
            yield Contradiction(
                (f"transform.{name}", "rng"),
                f"{name} draws more numbers than rng caffe has for a record; take rng counter",
            )
    if transform.random_erasing is None:
        return
    if transform.dtype == "uint8":
        yield Contradiction(
            ("transform.random_erasing", "transform.dtype"),
            "random_erasing writes numbers over normalised ones, and dtype uint8 holds stored "
            "bytes; take dtype float32, float16 or bfloat16, or erase on your device",
        )
    if transform.where == "device" and transform.mean_file is not None:
        yield Contradiction(
            ("transform.where", "transform.random_erasing", "transform.mean_file"),
            "the device does not do random_erasing and mean_file together; use where: auto or "
            "host, or mean_value",
        )


def _check_pixels(transform: TransformConfig) -> Iterator[Contradiction]:
    scales = transform.scale if isinstance(transform.scale, tuple) else (transform.scale,)
    num_means = len(transform.mean_value)
    if transform.mean_file is not None and num_means:
        yield Contradiction(
            ("transform.mean_value", "transform.mean_file"),
            "mean_value and mean_file are both given, and only one mean can be subtracted; "
            "leave one of them out",
        )
    if num_means > 1 and len(scales) > 1 and num_means != len(scales):
        yield Contradiction(
            ("transform.scale", "transform.mean_value"),
            f"scale has {len(scales)} numbers and mean_value {num_means}; "
            "both are one number, or one a channel",
        )
    if transform.force_color and transform.force_gray:
        yield Contradiction(
            ("transform.force_gray", "transform.force_color"),
            "force_color and force_gray are both true; an image is decoded to three channels "
            "or to one",
        )
    if transform.force_gray and transform.channels != "stored":
        yield Contradiction(
            ("transform.channels", "transform.force_gray"),
            f"channels {transform.channels} contradicts force_gray: "
            "one grey channel has no order of colours",
        )
    if transform.dtype == "uint8":
        for name, given in (
            ("mean_value", num_means > 0),
            ("mean_file", transform.mean_file is not None),
            ("scale", any(scale != 1 for scale in scales)),
        ):
            if given:
                yield Contradiction(
                    (f"transform.{name}", "transform.dtype"),
                    f"{name} contradicts dtype uint8, which hands the stored bytes on as they "
                    "are; leave it out, or take dtype float32, float16 or bfloat16",
                )
