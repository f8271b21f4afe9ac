"""What the table of operations says is what the code has; see docs/design/0014."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import prefetch
from prefetch._config.models import TransformConfig
from prefetch._kernels import device_arithmetic, device_boxes, device_kernel, reference
from prefetch._kernels.contract import (
    UNCHANGED,
    Erasing,
    ErasingMode,
    Jitter,
    Recipe,
    ResizeKind,
    Resizing,
)
from prefetch._kernels.device_kernel import StagedBatch
from prefetch._plan.random_words import Word
from prefetch._record.faults import Reason
from prefetch._transform.operation import OPERATIONS, REFUSALS, Stage
from prefetch._transform.options import Decoding, Transform

if TYPE_CHECKING:
    from collections.abc import Iterator

NATIVE = Path(prefetch.__file__).with_name("_kernels") / "native"

EVERYTHING = Transform(
    train=True,
    resizing=Resizing(ResizeKind.BOTH_SIDES, 4, 4, bicubic=False),
    pad=1,
    crop_size=2,
    mirror=True,
    unit_range=True,
    mean_value=(1.0,),
    scale=(2.0,),
    jitter=Jitter((0.5, 0.5), UNCHANGED, UNCHANGED, red_first=False),
    erasing=Erasing(1.0, 0.5, 0.5, 0.0, 0.0, ErasingMode.CONST, None),
    channels="rgb",
).recipe._replace(mean_image=np.zeros((3, 6, 6), np.float32))
"""A recipe in which each field does something; no configuration gives both kinds of mean."""


class ReadFields:
    """A recipe that remembers which of its fields are read."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self.recipe, name)


def each(part: str) -> Iterator[Any]:
    """Return what all operations have of something."""
    for operation in OPERATIONS:
        yield from getattr(operation, part)


def test_every_option_belongs_to_one_operation() -> None:
    assert sorted(field.name for field in dataclasses.fields(Transform)) == sorted(each("options"))


def test_every_field_of_a_recipe_belongs_to_one_operation() -> None:
    assert sorted(Recipe._fields) == sorted(each("fields"))


def test_every_random_word_belongs_to_one_operation_and_is_drawn() -> None:
    assert sorted(Word) == sorted(each("words"))
    transform = Transform(train=True, crop_size=2, mirror=True)
    assert sorted(Word) == sorted(transform.drawn_words)


def test_every_reason_to_refuse_a_sound_record_names_an_option() -> None:
    # What people's own function raises or returns is about the record, and no option's fault.
    own = {Reason.FUNCTION_RAISED, Reason.FUNCTION_RETURNED}
    refused = {reason for reason in Reason if reason >= Reason.SMALLER_THAN_CROP}
    assert refused - own == set(REFUSALS)
    options = {f"transform.{name}" for name in TransformConfig.model_fields} | {"per_record"}
    assert set(REFUSALS.values()) <= options


def test_the_order_of_the_table_is_that_of_the_stages() -> None:
    stages = [operation.stage for operation in OPERATIONS]
    assert stages == sorted(stages, key=list(Stage).index)


def test_the_reference_reads_every_field() -> None:
    recipe: Any = ReadFields(EVERYTHING)
    image, words = np.zeros((6, 6, 3), np.uint8), np.zeros(91, np.uint32)
    row = np.zeros((3, 2, 2), np.float32)
    assert reference.fill_image(image, words, row, recipe, None) is None
    assert set(Recipe._fields) <= recipe.read


def test_a_launch_on_the_device_reads_every_field() -> None:
    recipe: Any = ReadFields(EVERYTHING)
    device_kernel.scalars(StagedBatch(1, 3, 2, 2), recipe)
    device_arithmetic.constants(recipe)
    # Pixels are made of other pixels by the host, which then stages windows, or boxes and their
    # taps.
    assert set(Recipe._fields) - {"resizing", "pad", "jitter"} == recipe.read


def test_a_launch_for_boxes_reads_every_field_that_they_are_not_chosen_by() -> None:
    recipe: Any = ReadFields(EVERYTHING)
    device_boxes.scalars(StagedBatch(1, 3, 2, 2, box_bytes=400), recipe)
    device_arithmetic.constants(recipe)
    flags = {"random_crop", "mirror", "modulo"}  # are there, and the kernel does not look at them
    chosen_by = {"resizing", "pad", "jitter", "crop_height", "crop_width"} | flags
    assert set(Recipe._fields) - chosen_by <= recipe.read


def test_each_flag_of_a_launch_is_read_by_the_kernel() -> None:
    for name in device_arithmetic.FLAGS:
        assert device_kernel.SOURCE.count(f"& {name.upper()})") == 1, name


def test_the_c_kernel_reads_every_field() -> None:
    code = "".join(path.read_text() for path in NATIVE.glob("[!p]*.[ch]"))
    code += (NATIVE / "part.c").read_text()
    for name in Recipe._fields:
        assert re.search(rf"recipe->{name}s?\b", code), name


def test_a_restriction_keeps_the_options_of_its_stages_alone() -> None:
    transform = Transform(
        train=True,
        decoding=Decoding(force_gray=True),
        crop_size=2,
        mirror=True,
        scale=(2.0,),
        layout="nhwc",
        modulo=True,
    )
    copying = transform.restrict(Stage.DECODE)
    cutting = transform.restrict(Stage.DECODE, Stage.PIXELS)
    assert copying.decoding is cutting.decoding is transform.decoding
    assert not copying.drawn_words
    assert cutting.drawn_words == transform.drawn_words
    assert (cutting.train, cutting.crop_size, cutting.modulo) == (True, 2, True)
    for restricted in (copying, cutting):
        assert restricted.dtype == np.uint8
        assert (restricted.scale, restricted.layout) == ((1.0,), "nchw")
