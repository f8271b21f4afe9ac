"""Options as typed keywords, for editors and type checkers; made by scripts/gen_keywords.py."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from memory import Device
    from prefetch._config.cache_models import CacheConfig, DecodedCacheConfig
    from prefetch._config.models import ShardConfig, SubsetConfig, TransformConfig
    from prefetch._config.recipe_models import (
        ColorJitterConfig,
        CutmixConfig,
        MixupConfig,
        NormalizeConfig,
        RandomErasingConfig,
        RandomResizedCropConfig,
        ResizeConfig,
    )
    from prefetch._source.backend import Source


class CacheKeywords(TypedDict, total=False):
    """What is kept of the work on records for the epochs to come."""

    decoded: DecodedCacheKeywords | DecodedCacheConfig | Mapping[str, Any] | None


class ColorJitterKeywords(TypedDict, total=False):
    """Factors of an image's colours, drawn for each, in a drawn order."""

    brightness: float | Sequence[float]
    contrast: float | Sequence[float]
    saturation: float | Sequence[float]


class CutmixKeywords(TypedDict, total=False):
    """Cutmix: a box of each sample is that of the one at the same place from the batch's end."""

    alpha: float


class DecodedCacheKeywords(TypedDict, total=False):
    """Where decoded images are kept for the epochs to come, and how many."""

    path: str | os.PathLike[str] | None
    memory: bool
    bytes: int
    shorter: int | None


class MixupKeywords(TypedDict, total=False):
    """Mixup: a weighted sum of each sample and the one at the same place from the batch's end."""

    alpha: float


class NormalizeKeywords(TypedDict, total=False):
    """Mean and deviation of pixels that lie between 0 and 1: (pixel / 255 - mean) / std."""

    mean: float | Sequence[float]
    std: float | Sequence[float]


class RandomErasingKeywords(TypedDict, total=False):
    """A box of an image of a drawn size, shape and place that is written over in the end."""

    probability: float
    scale: Sequence[float]
    ratio: Sequence[float]
    mode: Literal["const", "rand", "pixel"]


class RandomResizedCropKeywords(TypedDict, total=False):
    """A box of a drawn size, shape and place, resized."""

    size: int | Sequence[int]
    scale: Sequence[float]
    ratio: Sequence[float]
    interpolation: Literal["bilinear", "bicubic"]


class ResizeKeywords(TypedDict, total=False):
    """The size that every image is brought to, before the crop."""

    shorter: int | None
    size: int | Sequence[int] | None
    interpolation: Literal["bilinear", "bicubic"]


class ShardKeywords(TypedDict, total=False):
    """Which share of every epoch this process serves."""

    rank: Literal["auto"] | int
    world_size: Literal["auto"] | int
    policy: Literal["pad", "drop", "caffe"]


class SubsetKeywords(TypedDict, total=False):
    """Which records of the databases, taken as one list in key order, are served."""

    start: int | None
    stop: int | None
    fraction: float | None
    seed: int
    complement: bool
    stratify: bool


class TransformKeywords(TypedDict, total=False):
    """How a stored image becomes a row of the batch: crop, mirror, then (pixel - mean) * scale."""

    preset: Literal["imagenet-train", "imagenet-eval", "cifar-train"] | None
    random_resized_crop: (
        RandomResizedCropKeywords | RandomResizedCropConfig | Mapping[str, Any] | None
    )
    resize: ResizeKeywords | ResizeConfig | Mapping[str, Any] | Sequence[int] | None
    pad: int
    crop_size: int | Sequence[int]
    mirror: bool | Literal["train"]
    color_jitter: ColorJitterKeywords | ColorJitterConfig | Mapping[str, Any] | None
    normalize: NormalizeKeywords | NormalizeConfig | Mapping[str, Any] | None
    scale: float | Sequence[float]
    mean_value: float | Sequence[float]
    mean_file: str | os.PathLike[str] | None
    random_erasing: RandomErasingKeywords | RandomErasingConfig | Mapping[str, Any] | None
    force_color: bool
    force_gray: bool
    max_pixels_per_byte: int
    channels: Literal["stored", "rgb", "bgr"]
    layout: Literal["nchw", "nhwc"]
    dtype: Literal["float32", "float16", "bfloat16", "uint8"]
    mixup: MixupKeywords | MixupConfig | Mapping[str, Any] | None
    cutmix: CutmixKeywords | CutmixConfig | Mapping[str, Any] | None
    where: Literal["auto", "host", "device"]


class FeedKeywords(TypedDict, total=False):
    """Every option of a feed; see `prefetch.FeedConfig`.

    Options:
        source (required): LMDB of Datum records: its folder, its data.mdb, a pattern such as
            shards/*_lmdb, or a list of such, read in turn; relative to this file.
        subset (default null): A part of it for splits, as {start: 0, stop: 1000}, or {fraction:
            0.9, seed: 1} and the same with complement: true; null: all of it.
        subset.start (default null): First record, counted from 0; null: the first of all.
        subset.stop (default null): First record no longer served; null: up to the last.
        subset.fraction (default null): Of these, the share that is drawn at random, such as
            0.9, and served in key order; null: all of them.
        subset.seed (default 0): With fraction: which records are drawn.
        subset.complement (default false): With fraction: serve those that are not drawn.
        subset.stratify (default false): With fraction: draw that share of the records of each
            label, for which all labels are read once.
        batch_size (default 64): Records in a batch, 1 or more.
        prefetch (default 4): Batches made ready ahead of the consumer; 1 leaves no slack for a
            batch that takes longer than others.
        threads (default auto): Background reader threads, 1 to 1024; auto: as the records and
            cores need.
        device (default auto): Where batches are delivered: cpu, simulated, cuda or cuda:N;
            auto: a GPU if there is one, else cpu.
        phase (default train): train: random crop; test: centre crop.
        seed (default 0): Seed of crops, mirrors and order; null: from the system, and logged.
        rng (default counter): Random numbers; counter: keyed by seed, epoch and record; caffe:
            Caffe's own stream, number for number (32-bit seeds).
        draws_before (default 0): With rng: caffe: how many numbers the network's layers before
            this one draw from Caffe's generator; a Data layer 3 if it mirrors or crops at
            random, else 1.
        epochs (default null): Epochs served in all; null: as many as are asked for.
        shuffle (default false): Another order of the records every epoch.
        last_batch (default partial): Where the records do not divide by batch_size: partial
            serves a smaller last batch, drop leaves it out, wrap goes on into the next epoch
            (Caffe's endless stream).
        shard.rank (default auto): Number of this process, from 0; auto: as torch.distributed,
            torchrun, srun, mpirun or Ray Train say, else 0. Both numbers are given, or neither.
        shard.world_size (default auto): How many processes share the epoch; auto: likewise,
            else 1.
        shard.policy (default pad): Where the records do not divide by world_size: pad repeats
            some from the start of the order, drop leaves some out, and all ranks have equally
            many; caffe: Caffe's endless stride, which shifts the shards each epoch (with
            last_batch: wrap).
        transform.preset (default null): A recipe that has a name, such as imagenet-train: the
            options that the guide's page on recipes lists; what else is given here replaces
            them.
        transform.random_resized_crop (default null): A box of each image of a drawn size, shape
            and place, resized to {size: 224}; in phase train only.
        transform.random_resized_crop.size (required): What it becomes, in pixels: one number
            for a square, or [height, width].
        transform.random_resized_crop.scale (default [0.08, 1.0]): Least and most share of the
            image's area that the box has.
        transform.random_resized_crop.ratio (default [0.75, 1.3333333333333333]): Least and most
            width of the box, in heights.
        transform.random_resized_crop.interpolation (default bilinear): The filter; both are
            widened where an image becomes smaller (antialiasing), as Pillow does.
        transform.resize (default null): Bring each image to a size before the crop: {shorter:
            256}, or [height, width].
        transform.resize.shorter (default null): Length of the shorter side, in pixels; the
            longer one keeps the shape.
        transform.resize.size (default null): Or both: one number for a square, or [height,
            width].
        transform.resize.interpolation (default bilinear): The filter; both are widened where an
            image becomes smaller (antialiasing), as Pillow does.
        transform.pad (default 0): Pixels of zeros added on each side of an image, before the
            crop.
        transform.crop_size (default 0): Height and width in pixels of the square cut from each
            image, or [height, width]; at a random place in phase train and from the centre in
            phase test; 0: no crop.
        transform.mirror (default false): Flip each image left to right with a chance of one
            half; true: in either phase, as Caffe does, train: in phase train only.
        transform.color_jitter (default null): Change brightness, contrast and saturation by
            drawn factors, as {brightness: 0.4, contrast: 0.4, saturation: 0.4}; in phase train
            only.
        transform.color_jitter.brightness (default 0.0): How far the factor of all values may be
            from 1, as 0.4 for 0.6 to 1.4 (at least 0); or [least, most].
        transform.color_jitter.contrast (default 0.0): Likewise, of the distance from the mean
            of the image's grey.
        transform.color_jitter.saturation (default 0.0): Likewise, of the distance from each
            pixel's grey; 0 makes an image grey.
        transform.normalize (default null): Mean and deviation of pixels between 0 and 1, as
            {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}: (pixel / 255 - mean) /
            std; not together with mean_value, mean_file or scale.
        transform.normalize.mean (required): Subtracted from pixels between 0 and 1: one number,
            or one a channel.
        transform.normalize.std (required): What the difference is divided by, likewise; above
            0.
        transform.scale (default 1.0): Factor after the mean is subtracted: one number, or one a
            channel.
        transform.mean_value (default []): Subtracted from every pixel: one number, or one a
            channel.
        transform.mean_file (default null): File of a mean image as large as the uncropped
            images, subtracted pixel by pixel: a BlobProto (.binaryproto), or a NumPy array
            (.npy); not together with mean_value.
        transform.random_erasing (default null): Write over a box of some images, after all
            else, as {probability: 0.25, mode: pixel}; in phase train only.
        transform.random_erasing.probability (default 0.5): Share of the images that are erased
            in.
        transform.random_erasing.scale (default [0.02, 0.3333333333333333]): Least and most
            share of the image's area that the box has.
        transform.random_erasing.ratio (default [0.3, 3.3333333333333335]): Least and most
            height of the box, in widths.
        transform.random_erasing.mode (default const): What is written: const: zeros; rand: a
            normal number a channel; pixel: one a value.
        transform.force_color (default false): Decode encoded images to three channels, grey
            ones too.
        transform.force_gray (default false): Decode encoded images to one channel.
        transform.max_pixels_per_byte (default 2048): Encoded images of more than 2^24 pixels
            may have so many for each byte of their file; others are bad records, so that a few
            bytes cannot take all memory.
        transform.channels (default stored): Order of the channels handed out; stored: as in the
            record, where encoded images are decoded as BGR, as Caffe does.
        transform.layout (default nchw): Order of the batch's axes: planes, or interleaved
            pixels.
        transform.dtype (default float32): Type of the batch's values; float16 becomes infinite
            beyond 65504, bfloat16 takes the package ml_dtypes, and uint8 takes neither a mean
            nor a scale.
        transform.mixup (default null): Mix each batch of phase train with itself, as {alpha:
            0.2}, when all else is done; takes labels: pairs or one_hot.
        transform.mixup.alpha (default 1.0): The weight of a batch's own samples is drawn from
            Beta(alpha, alpha); 0.2 to 1 are usual.
        transform.cutmix (default null): Likewise by a box of pixels, as {alpha: 1.0}; with
            mixup too, each batch has one of both, with a chance of one half.
        transform.cutmix.alpha (default 1.0): The share of a batch's own pixels is drawn from
            Beta(alpha, alpha); 1.0 is usual.
        transform.where (default auto): Where all of this is done; device: in one kernel, after
            a copy of the bytes as stored, a quarter of what float32 takes; auto: on a GPU for
            raw records and batches of floats, else on the host.
        cache.decoded (default null): Pixels of encoded images, so that each is decoded once:
            {path: P, bytes: N}, or {memory: true, bytes: N}; null: each is decoded every time.
        cache.decoded.path (default null): File that they are kept in, made if need be, which
            other processes on this machine may share; its disk should be a local one.
        cache.decoded.memory (default false): In place of path: keep them in this process's
            memory.
        cache.decoded.bytes (required): What they may take in all, in bytes; when it is full,
            the rest is decoded each time.
        cache.decoded.shorter (default null): Keep them smaller: the shorter side so many pixels
            long, as transform.resize would make it. All that follows gets these in place of the
            originals, in the first epoch too, so results differ; null: as they are decoded.
        per_record (default null): A function called with (image, label, rng) for each record,
            behind crop and mirror, in the background: module:function, or in Python the
            function; returns the image, or (image, label).
        per_batch (default null): A function called with (images, labels, rng) for each batch,
            likewise, when all else is done to it: arrays on the host, or on a GPU CuPy arrays.
        label_dtype (default int64): Type of the labels; Caffe's is float32.
        labels (default true): Hand labels out; false: batches have none, as those of a
            network's Data layer with a single top; pairs: fields label, label2 and lam, for
            mixup and cutmix; one_hot: float32 (N, num_classes).
        num_classes (default null): With labels: one_hot: how many classes; a label beyond is a
            bad record.
        on_bad_record (default raise): A record that cannot be used: raise an error, skip to the
            next good one, or skip and keep its key and bytes in the quarantine.
        quarantine (default null): With on_bad_record: quarantine: folder of the LMDB that bad
            records go to; made when there is one.
        max_bad_records (default 100): With skip or quarantine: more bad records than this are
            an error.
        max_batches_held (default 16): Batches that the consumer may keep at once; one more is
            an error.
        stall_warning_s (default 30.0): Seconds that the loop waits for a batch before the log
            says, once, what every reader and slot is doing; null: never.
        lock (default false): Register as an LMDB reader, so that a writer beside the feed is
            safe; writes lock.mdb beside the data.
    """

    source: Source | Sequence[Source]
    subset: SubsetKeywords | SubsetConfig | Mapping[str, Any] | None
    batch_size: int
    prefetch: int
    threads: Literal["auto"] | int
    device: str | Device
    phase: Literal["train", "test", "TRAIN", "TEST"]
    seed: int | None
    rng: Literal["counter", "caffe"]
    draws_before: int
    epochs: int | None
    shuffle: bool
    last_batch: Literal["partial", "drop", "wrap"]
    shard: Literal["auto"] | ShardKeywords | ShardConfig | Mapping[str, Any]
    transform: TransformKeywords | TransformConfig | Mapping[str, Any]
    cache: CacheKeywords | CacheConfig | Mapping[str, Any]
    per_record: str | Callable[..., Any] | None
    per_batch: str | Callable[..., Any] | None
    label_dtype: Literal["int64", "int32", "float32", "float64"]
    labels: bool | Literal["pairs", "one_hot"]
    num_classes: int | None
    on_bad_record: Literal["raise", "skip", "quarantine"]
    quarantine: str | os.PathLike[str] | None
    max_bad_records: int
    max_batches_held: int
    stall_warning_s: float | None
    lock: bool


class OpenKeywords(FeedKeywords, total=False):
    """The keywords of `prefetch.open`: a feed's options, and those that only a network has.

    Attributes:
        config: A configuration, in place of the argument.
        layer: Of a network's file: name of the layer, or of one of its tops.
        stages: Likewise: stages of the network's state.
        root: Likewise: folder that relative paths in the file start from.
        rank: Likewise: this process among the ranks.
        world_size: Likewise: how many ranks share the database.
    """

    config: object
    layer: str | None
    stages: str | Sequence[str]
    root: str | os.PathLike[str]
    rank: int
    world_size: int


class LoaderKeywords(OpenKeywords, total=False):
    """The keywords of the loaders for PyTorch and JAX; but for ``drop_last`` without effect.

    Attributes:
        drop_last: The same as ``last_batch: drop``; False: ``last_batch: partial``.
    """

    drop_last: bool | None
    in_order: bool
    multiprocessing_context: object
    num_workers: int
    persistent_workers: bool
    pin_memory: bool
    pin_memory_device: str
    prefetch_factor: int | None
    timeout: float


OPTIONS: Final = inspect.cleandoc(FeedKeywords.__doc__ or "").partition("\n\n")[2]
"""Every option with its text, as help() lists them; empty with python -OO."""
