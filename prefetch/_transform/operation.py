"""The operations of the transformation, in their order, and what each is made of.

An operation is written in five places: its options (`Transform`), its random words
(`prefetch._plan.random_words`), its definition in NumPy (`prefetch._kernels.reference`), the C
kernel (`prefetch/_kernels/native`) and the device's kernel (`prefetch._kernels.device_kernel`).
The kernels do all operations in one pass over the pixels: to them, an operation is some fields of
`Recipe`. docs/design/0014-adding-an-operation.md says what to write where; the tests hold this
table to the code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from prefetch._plan.random_words import Word
from prefetch._record.faults import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping


class Stage(Enum):
    """When an operation is done, and by whom where the transformation is done on the device."""

    DECODE = auto()
    """Bytes become pixels: always the host, before the kernels."""

    PIXELS = auto()
    """uint8 pixels are chosen or moved: the device, or the host for records staged as windows."""

    FUNCTION = auto()
    """People's own function changes uint8 pixels: the host, which then does all the rest."""

    VALUES = auto()
    """Pixels become numbers, in float32 with a rounding after each step: the device."""

    BATCH = auto()
    """How a batch holds the numbers: the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A step of the transformation.

    Attributes:
        name: For people.
        stage: When it is done.
        options: Attributes of `Transform` that say what is to be done.
        fields: Fields of `Recipe` that say it to the kernels.
        words: Random words that it reduces, where it draws.
        refusals: Why it cannot take a sound record, each with the option of the configuration that
            would have to be another.
    """

    name: str
    stage: Stage
    options: tuple[str, ...]
    fields: tuple[str, ...] = ()
    words: tuple[Word, ...] = ()
    refusals: Mapping[Reason, str] = field(default_factory=dict)


OPERATIONS: Final = (
    Operation(name="decode", stage=Stage.DECODE, options=("decoding",)),
    # How words are drawn and reduced, for all that follow.
    Operation(name="draw", stage=Stage.PIXELS, options=("train", "modulo"), fields=("modulo",)),
    Operation(
        name="resize",
        stage=Stage.PIXELS,
        options=("resizing",),
        fields=("resizing",),
        refusals={Reason.FLOATS_FOR_RESIZE: "resize"},
    ),
    Operation(name="pad", stage=Stage.PIXELS, options=("pad",), fields=("pad",)),
    Operation(
        name="crop",
        stage=Stage.PIXELS,
        options=("crop_size",),
        fields=("crop_height", "crop_width", "random_crop"),
        words=(Word.ROW, Word.COLUMN),
        refusals={Reason.SMALLER_THAN_CROP: "crop_size"},
    ),
    Operation(
        name="mirror",
        stage=Stage.PIXELS,
        options=("mirror",),
        fields=("mirror",),
        words=(Word.MIRROR,),
    ),
    Operation(
        name="colour jitter",
        stage=Stage.PIXELS,
        options=("jitter",),
        fields=("jitter",),
        refusals={
            Reason.FLOATS_FOR_JITTER: "color_jitter",
            Reason.CHANNELS_FOR_JITTER: "color_jitter",
        },
    ),
    Operation(
        name="own function",
        stage=Stage.FUNCTION,
        options=("per_record",),
        refusals={Reason.FLOATS_FOR_FUNCTION: "per_record"},
    ),
    Operation(
        name="unit range",
        stage=Stage.VALUES,
        options=("unit_range",),
        fields=("unit_range",),
    ),
    Operation(
        name="mean",
        stage=Stage.VALUES,
        options=("mean_value", "mean_image"),
        fields=("mean_value", "mean_image"),
        refusals={
            Reason.MEAN_VALUES_DIFFER: "mean_value",
            Reason.MEAN_IMAGE_DIFFERS: "mean_file",
        },
    ),
    Operation(
        name="scale",
        stage=Stage.VALUES,
        options=("scale",),
        fields=("scale",),
        refusals={Reason.SCALES_DIFFER: "scale"},
    ),
    Operation(
        name="erasing",
        stage=Stage.VALUES,
        options=("erasing",),
        fields=("erasing",),
    ),
    Operation(
        name="channels",
        stage=Stage.BATCH,
        options=("channels",),
        fields=("swap_channels",),
    ),
    Operation(
        name="layout",
        stage=Stage.BATCH,
        options=("layout",),
        fields=("channels_last",),
    ),
    # The kernels see it from the rows that they fill.
    Operation(
        name="dtype",
        stage=Stage.BATCH,
        options=("dtype",),
        refusals={Reason.FLOATS_AS_UINT8: "dtype"},
    ),
    # Of whole batches, whose own words it draws: a kernel of its own, behind the one pass.
    Operation(name="mix", stage=Stage.BATCH, options=("mixing",)),
)
"""All of them, in the order in which they are done."""


def options_of(*stages: Stage) -> tuple[str, ...]:
    """Return the attributes of `Transform` that belong to the operations of some stages."""
    return tuple(name for one in OPERATIONS if one.stage in stages for name in one.options)


REFUSALS: Final = {
    reason: option if operation.stage is Stage.FUNCTION else f"transform.{option}"
    for operation in OPERATIONS
    for reason, option in operation.refusals.items()
}
"""The option that a sound record cannot be taken with, by the reason for which it is refused."""
