"""The options of what makes an image another one: size, colours, values between 0 and 1, erasing.

As for `prefetch._config.models`: the texts of the fields are the documentation.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from prefetch._config.option_types import MOST_SIDE, MeanValue, Options, Size, Within
from prefetch._kernels.contract import MOST_FACTOR

LEAST_SHARE = 1e-6
"""The least share of an image's area that a box may be said to have, and the least ratio."""

Interpolation = Annotated[
    Literal["bilinear", "bicubic"],
    Field(
        description=(
            "The filter; both are widened where an image becomes smaller (antialiasing), as "
            "Pillow does."
        )
    ),
]


class RandomResizedCropConfig(Options):
    """A box of a drawn size, shape and place, resized."""

    size: Annotated[int | tuple[int, int], Size(1, MOST_SIDE)] = Field(
        description="What it becomes, in pixels: one number for a square, or [height, width]."
    )
    scale: Annotated[tuple[float, float], Within(LEAST_SHARE, 1)] = Field(
        default=(0.08, 1.0),
        description="Least and most share of the image's area that the box has.",
    )
    ratio: Annotated[tuple[float, float], Within(LEAST_SHARE, 1 / LEAST_SHARE)] = Field(
        default=(3 / 4, 4 / 3), description="Least and most width of the box, in heights."
    )
    interpolation: Interpolation = "bilinear"


class ResizeConfig(Options):
    """The size that every image is brought to, before the crop."""

    shorter: Annotated[int, Field(ge=1, le=MOST_SIDE)] | None = Field(
        default=None,
        description="Length of the shorter side, in pixels; the longer one keeps the shape.",
    )
    size: Annotated[int | tuple[int, int], Size(1, MOST_SIDE)] | None = Field(
        default=None, description="Or both: one number for a square, or [height, width]."
    )
    interpolation: Interpolation = "bilinear"


class NormalizeConfig(Options):
    """Mean and deviation of pixels that lie between 0 and 1: (pixel / 255 - mean) / std."""

    mean: MeanValue = Field(
        description="Subtracted from pixels between 0 and 1: one number, or one a channel."
    )
    std: MeanValue = Field(description="What the difference is divided by, likewise; above 0.")


class MixupConfig(Options):
    """Mixup: a weighted sum of each sample and the one at the same place from the batch's end."""

    alpha: float = Field(
        default=1.0,
        gt=0,
        description=(
            "The weight of a batch's own samples is drawn from Beta(alpha, alpha); 0.2 to 1 are "
            "usual."
        ),
    )


class CutmixConfig(Options):
    """Cutmix: a box of each sample is that of the one at the same place from the batch's end."""

    alpha: float = Field(
        default=1.0,
        gt=0,
        description=(
            "The share of a batch's own pixels is drawn from Beta(alpha, alpha); 1.0 is usual."
        ),
    )


Factors = Annotated[float | tuple[float, float], Within(0, MOST_FACTOR, around=1)]
"""Bounds of a factor, or how far they are from 1."""


class ColorJitterConfig(Options):
    """Factors of an image's colours, drawn for each, in a drawn order."""

    brightness: Factors = Field(
        default=0.0,
        description=(
            "How far the factor of all values may be from 1, as 0.4 for 0.6 to 1.4 (at least 0); "
            "or [least, most]."
        ),
    )
    contrast: Factors = Field(
        default=0.0,
        description="Likewise, of the distance from the mean of the image's grey.",
    )
    saturation: Factors = Field(
        default=0.0,
        description="Likewise, of the distance from each pixel's grey; 0 makes an image grey.",
    )


class RandomErasingConfig(Options):
    """A box of an image of a drawn size, shape and place that is written over in the end."""

    probability: float = Field(
        default=0.5, ge=0, le=1, description="Share of the images that are erased in."
    )
    scale: Annotated[tuple[float, float], Within(LEAST_SHARE, 1)] = Field(
        default=(0.02, 1 / 3),
        description="Least and most share of the image's area that the box has.",
    )
    ratio: Annotated[tuple[float, float], Within(LEAST_SHARE, 1 / LEAST_SHARE)] = Field(
        default=(0.3, 1 / 0.3), description="Least and most height of the box, in widths."
    )
    mode: Literal["const", "rand", "pixel"] = Field(
        default="const",
        description=(
            "What is written: const: zeros; rand: a normal number a channel; pixel: one a value."
        ),
    )
