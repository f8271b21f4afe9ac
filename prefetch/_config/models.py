"""The options of a feed: their defaults, what each accepts, and what it does, in words.

The models are frozen and strict. Text is never turned into a number nor a number into a boolean,
so a quoted ``"1e-3"`` is a fault here and not a surprise in training; unknown options are refused.

The texts of the fields are the documentation: the JSON schema and the guide's table are made
from them (:mod:`prefetch._config.schema`). Importing pydantic takes a third of the time that
``import prefetch`` may take, so this module is imported at first use.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from prefetch._config.cache_models import CacheConfig
from prefetch._config.option_types import (
    MOST,
    MOST_SIDE,
    AutoOr,
    Device,
    Labels,
    MeanValue,
    OptionalPath,
    Options,
    OwnFunction,
    Scale,
    Size,
    Sources,
    Threads,
    TrueFalseOr,
    allow_auto,
    allow_size,
    expand_auto,
    expand_size,
)
from prefetch._config.presets import expand_preset
from prefetch._config.recipe_models import (
    ColorJitterConfig,
    CutmixConfig,
    MixupConfig,
    NormalizeConfig,
    RandomErasingConfig,
    RandomResizedCropConfig,
    ResizeConfig,
)
from prefetch._plan.order import LastBatch, ShardPolicy
from prefetch._plan.philox import MAX_SEED
from prefetch._record.decode import MAX_PIXELS, MAX_PIXELS_PER_BYTE


class SubsetConfig(Options):
    """Which records of the databases, taken as one list in key order, are served."""

    start: int | None = Field(
        default=None,
        ge=0,
        le=MOST,
        description="First record, counted from 0; null: the first of all.",
    )
    stop: int | None = Field(
        default=None,
        ge=0,
        le=MOST,
        description="First record no longer served; null: up to the last.",
    )
    fraction: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description=(
            "Of these, the share that is drawn at random, such as 0.9, and served in key order; "
            "null: all of them."
        ),
    )
    seed: int = Field(
        default=0, ge=0, le=MAX_SEED, description="With fraction: which records are drawn."
    )
    complement: bool = Field(
        default=False, description="With fraction: serve those that are not drawn."
    )
    stratify: bool = Field(
        default=False,
        description=(
            "With fraction: draw that share of the records of each label, for which all labels are "
            "read once."
        ),
    )


class ShardConfig(Options):
    """Which share of every epoch this process serves."""

    rank: Annotated[int | Literal["auto"], AutoOr(0)] = Field(
        default="auto",
        description=(
            "Number of this process, from 0; auto: as torch.distributed, torchrun, srun, mpirun or "
            "Ray Train say, else 0. Both numbers are given, or neither."
        ),
    )
    world_size: Annotated[int | Literal["auto"], AutoOr(1)] = Field(
        default="auto", description="How many processes share the epoch; auto: likewise, else 1."
    )
    policy: ShardPolicy = Field(
        default="pad",
        description=(
            "Where the records do not divide by world_size: pad repeats some from the start of "
            "the order, drop leaves some out, and all ranks have equally many; caffe: Caffe's "
            "endless stride, which shifts the shards each epoch (with last_batch: wrap)."
        ),
    )


class TransformConfig(Options):
    """How a stored image becomes a row of the batch: crop, mirror, then (pixel - mean) * scale."""

    preset: Literal["imagenet-train", "imagenet-eval", "cifar-train"] | None = Field(
        default=None,
        description=(
            "A recipe that has a name, such as imagenet-train: the options that the guide's page "
            "on recipes lists; what else is given here replaces them."
        ),
    )
    random_resized_crop: RandomResizedCropConfig | None = Field(
        default=None,
        description=(
            "A box of each image of a drawn size, shape and place, resized to {size: 224}; in "
            "phase train only."
        ),
    )
    resize: Annotated[ResizeConfig, BeforeValidator(expand_size)] | None = Field(
        default=None,
        description=(
            "Bring each image to a size before the crop: {shorter: 256}, or [height, width]."
        ),
        json_schema_extra=allow_size,
    )
    pad: int = Field(
        default=0,
        ge=0,
        le=MOST_SIDE,
        description="Pixels of zeros added on each side of an image, before the crop.",
    )
    crop_size: Annotated[int | tuple[int, int], Size(0, 2**31 - 1)] = Field(
        default=0,
        description=(
            "Height and width in pixels of the square cut from each image, or [height, width]; at "
            "a random place in phase train and from the centre in phase test; 0: no crop."
        ),
    )
    mirror: Annotated[bool | Literal["train"], TrueFalseOr("train")] = Field(
        default=False,
        description=(
            "Flip each image left to right with a chance of one half; true: in either phase, as "
            "Caffe does, train: in phase train only."
        ),
    )
    color_jitter: ColorJitterConfig | None = Field(
        default=None,
        description=(
            "Change brightness, contrast and saturation by drawn factors, as {brightness: 0.4, "
            "contrast: 0.4, saturation: 0.4}; in phase train only."
        ),
    )
    normalize: NormalizeConfig | None = Field(
        default=None,
        description=(
            "Mean and deviation of pixels between 0 and 1, as {mean: [0.485, 0.456, 0.406], std: "
            "[0.229, 0.224, 0.225]}: (pixel / 255 - mean) / std; not together with mean_value, "
            "mean_file or scale."
        ),
    )
    scale: Scale = Field(
        default=1.0,
        description="Factor after the mean is subtracted: one number, or one a channel.",
    )
    mean_value: MeanValue = Field(
        default=(), description="Subtracted from every pixel: one number, or one a channel."
    )
    mean_file: OptionalPath = Field(
        default=None,
        description=(
            "File of a mean image as large as the uncropped images, subtracted pixel by pixel: a "
            "BlobProto (.binaryproto), or a NumPy array (.npy); not together with mean_value."
        ),
    )
    random_erasing: RandomErasingConfig | None = Field(
        default=None,
        description=(
            "Write over a box of some images, after all else, as {probability: 0.25, mode: pixel}; "
            "in phase train only."
        ),
    )
    force_color: bool = Field(
        default=False, description="Decode encoded images to three channels, grey ones too."
    )
    force_gray: bool = Field(default=False, description="Decode encoded images to one channel.")
    max_pixels_per_byte: int = Field(
        default=MAX_PIXELS_PER_BYTE,
        ge=1,
        le=MAX_PIXELS,
        description=(
            "Encoded images of more than 2^24 pixels may have so many for each byte of their file; "
            "others are bad records, so that a few bytes cannot take all memory."
        ),
    )
    channels: Literal["stored", "rgb", "bgr"] = Field(
        default="stored",
        description=(
            "Order of the channels handed out; stored: as in the record, where encoded images "
            "are decoded as BGR, as Caffe does."
        ),
    )
    layout: Literal["nchw", "nhwc"] = Field(
        default="nchw", description="Order of the batch's axes: planes, or interleaved pixels."
    )
    dtype: Literal["float32", "float16", "bfloat16", "uint8"] = Field(
        default="float32",
        description=(
            "Type of the batch's values; float16 becomes infinite beyond 65504, bfloat16 takes the "
            "package ml_dtypes, and uint8 takes neither a mean nor a scale."
        ),
    )
    mixup: MixupConfig | None = Field(
        default=None,
        description=(
            "Mix each batch of phase train with itself, as {alpha: 0.2}, when all else is done; "
            "takes labels: pairs or one_hot."
        ),
    )
    cutmix: CutmixConfig | None = Field(
        default=None,
        description=(
            "Likewise by a box of pixels, as {alpha: 1.0}; with mixup too, each batch has one of "
            "both, with a chance of one half."
        ),
    )
    where: Literal["auto", "host", "device"] = Field(
        default="auto",
        description=(
            "Where all of this is done; device: in one kernel, after a copy of the bytes as "
            "stored, a quarter of what float32 takes; auto: on a GPU for raw records and batches "
            "of floats, else on the host."
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_preset(cls, given: object) -> object:
        return expand_preset(given)


class FeedOptions(Options):
    """Every option of a feed, each for itself; see `FeedConfig`.

    Why it is this large: it is the table of options, an attribute for each that a file may have.
    """

    source: Sources = Field(
        description=(
            "LMDB of Datum records: its folder, its data.mdb, a pattern such as shards/*_lmdb, or "
            "a list of such, read in turn; relative to this file."
        ),
    )
    subset: SubsetConfig | None = Field(
        default=None,
        description=(
            "A part of it for splits, as {start: 0, stop: 1000}, or {fraction: 0.9, seed: 1} and "
            "the same with complement: true; null: all of it."
        ),
    )
    batch_size: int = Field(
        default=64, ge=1, le=2**24, description="Records in a batch, 1 or more."
    )
    prefetch: int = Field(
        default=4,
        ge=1,
        le=1024,
        description=(
            "Batches made ready ahead of the consumer; 1 leaves no slack for a batch that takes "
            "longer than others."
        ),
    )
    threads: Threads = Field(
        default="auto",
        description="Background reader threads, 1 to 1024; auto: as the records and cores need.",
    )
    device: Device = Field(
        default="auto",
        description=(
            "Where batches are delivered: cpu, simulated, cuda or cuda:N; auto: a GPU if there "
            "is one, else cpu."
        ),
    )
    phase: Literal["train", "test"] = Field(
        default="train", description="train: random crop; test: centre crop."
    )
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] | None = Field(
        default=0,
        description="Seed of crops, mirrors and order; null: from the system, and logged.",
    )
    rng: Literal["counter", "caffe"] = Field(
        default="counter",
        description=(
            "Random numbers; counter: keyed by seed, epoch and record; caffe: Caffe's own stream, "
            "number for number (32-bit seeds)."
        ),
    )
    draws_before: int = Field(
        default=0,
        ge=0,
        le=2**20,
        description=(
            "With rng: caffe: how many numbers the network's layers before this one draw from "
            "Caffe's generator; a Data layer 3 if it mirrors or crops at random, else 1."
        ),
    )
    epochs: Annotated[int, Field(ge=1, le=MOST)] | None = Field(
        default=None, description="Epochs served in all; null: as many as are asked for."
    )
    shuffle: bool = Field(default=False, description="Another order of the records every epoch.")
    last_batch: LastBatch = Field(
        default="partial",
        description=(
            "Where the records do not divide by batch_size: partial serves a smaller last batch, "
            "drop leaves it out, wrap goes on into the next epoch (Caffe's endless stream)."
        ),
    )
    shard: Annotated[ShardConfig, BeforeValidator(expand_auto)] = Field(
        default=ShardConfig(),
        description="The share of one process among several; auto is short for its defaults.",
        json_schema_extra=allow_auto,
    )
    transform: TransformConfig = Field(
        default=TransformConfig(), description="From the stored image to the batch's values."
    )
    cache: CacheConfig = Field(
        default=CacheConfig(), description="What is kept for the epochs to come."
    )
    per_record: OwnFunction = Field(
        default=None,
        description=(
            "A function called with (image, label, rng) for each record, behind crop and mirror, "
            "in the background: module:function, or in Python the function; returns the image, or "
            "(image, label)."
        ),
    )
    per_batch: OwnFunction = Field(
        default=None,
        description=(
            "A function called with (images, labels, rng) for each batch, likewise, when all else "
            "is done to it: arrays on the host, or on a GPU CuPy arrays."
        ),
    )
    label_dtype: Literal["int64", "int32", "float32", "float64"] = Field(
        default="int64", description="Type of the labels; Caffe's is float32."
    )
    labels: Labels = Field(
        default=True,
        description=(
            "Hand labels out; false: batches have none, as those of a network's Data layer with "
            "a single top; pairs: fields label, label2 and lam, for mixup and cutmix; one_hot: "
            "float32 (N, num_classes)."
        ),
    )
    num_classes: Annotated[int, Field(ge=1, le=2**24)] | None = Field(
        default=None,
        description="With labels: one_hot: how many classes; a label beyond is a bad record.",
    )
    on_bad_record: Literal["raise", "skip", "quarantine"] = Field(
        default="raise",
        description=(
            "A record that cannot be used: raise an error, skip to the next good one, or skip and "
            "keep its key and bytes in the quarantine."
        ),
    )
    quarantine: OptionalPath = Field(
        default=None,
        description=(
            "With on_bad_record: quarantine: folder of the LMDB that bad records go to; made when "
            "there is one."
        ),
    )
    max_bad_records: int = Field(
        default=100,
        ge=0,
        le=MOST,
        description="With skip or quarantine: more bad records than this are an error.",
    )
    max_batches_held: int = Field(
        default=16,
        ge=1,
        le=MOST,
        description="Batches that the consumer may keep at once; one more is an error.",
    )
    stall_warning_s: Annotated[float, Field(gt=0)] | None = Field(
        default=30.0,
        description=(
            "Seconds that the loop waits for a batch before the log says, once, what every reader "
            "and slot is doing; null: never."
        ),
    )
    lock: bool = Field(
        default=False,
        description=(
            "Register as an LMDB reader, so that a writer beside the feed is safe; writes "
            "lock.mdb beside the data."
        ),
    )
