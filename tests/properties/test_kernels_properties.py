"""The C kernels against their NumPy twin: the same bytes and the same outcomes, whatever comes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefetch._kernels import _c, reference
from prefetch._kernels.boxes import needed_box
from prefetch._kernels.contract import (
    UNCHANGED,
    Erasing,
    ErasingMode,
    Jitter,
    Part,
    Recipe,
    ResizeKind,
    Resizing,
)
from prefetch._kernels.erasing import noise_table
from prefetch._plan.random_words import (
    ERASING_WORDS,
    JITTER_WORDS,
    NUM_WORDS,
    RESIZED_CROP_WORDS,
)
from prefetch._record.wire import encode_datum
from prefetch._transform.options import Transform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._kernels.contract import Kernels, Outcome

CANARY = 0xA5
MOST_WORDS = NUM_WORDS + len(RESIZED_CROP_WORDS) + len(JITTER_WORDS) + len(ERASING_WORDS)
LABEL_TYPES = "bBhHiIqQefd"
SPECIAL_FLOATS = np.array(
    [0x00000000, 0x80000000, 0x00000001, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC12345,
     0xFFBFFFFF, 0xFFFFFFFF, 0x00008000, 0x7F7F8000, 0x33000000, 0x33000001, 0x387FC000,
     0x387FE000, 0x477FEFFF, 0x477FF000],
    np.uint32,
).view(np.float32)  # fmt: skip
"""Zeros, subnormals, infinities, NaNs of both kinds, and the edges of float16 and bfloat16."""


@dataclass(frozen=True)
class Task:
    """What a kernel is asked: records, words, a recipe, and where the rows are to go."""

    values: list[memoryview]
    words: NDArray[np.uint32]
    recipe: Recipe
    sample: tuple[int, int, int]
    dtype: np.dtype[Any]
    label_dtype: np.dtype[Any]
    offset: int  # of the rows and of the labels in their blocks, in bytes


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


@st.composite
def shapes(draw: st.DrawFn, crop_size: int) -> tuple[int, int, int]:
    """Draw (channels, height, width) with lines around the sizes at which loops change."""
    channels = draw(st.integers(1, 5))
    if draw(st.integers(0, 19)) == 0:
        return channels, draw(st.integers(1, 2)), draw(st.sampled_from([1023, 1024, 1025, 2100]))
    sides = st.integers(max(1, crop_size - 1), crop_size + 34)
    return channels, draw(sides), draw(sides)


@st.composite
def float_fields(draw: st.DrawFn, values: NDArray[np.float32]) -> bytes:
    """Draw a way of writing floats: in runs, each packed or not, with other fields in between."""
    parts = []
    start = 0
    while start < values.size:
        longest = values.size - start
        num = longest if draw(st.booleans()) else draw(st.integers(1, longest))
        run = values[start : start + num]
        if draw(st.booleans()):
            parts.append(b"\x32" + varint(4 * num) + run.tobytes())
        else:
            parts.append(encode_datum(floats=run))
        if draw(st.integers(0, 3)) == 0:
            parts.append(draw(st.sampled_from([b"\x32\x00", b"\x28\x07", b"\x4b\x08\x01\x4c"])))
        start += num
    return b"".join(parts)


@st.composite
def records(draw: st.DrawFn, shape: tuple[int, int, int], rng: np.random.Generator) -> bytes:
    """Draw a record: mostly one that fits, of any kind; damaged now and then."""
    channels, height, width = shape
    num = channels * height * width
    head = encode_datum(channels=channels, height=height, width=width)
    kind = draw(st.sampled_from(["bytes", "bytes", "floats", "both", "encoded", "noise"]))
    if kind == "noise":
        noise: bytes = draw(st.binary(max_size=60))
        return noise
    if kind == "encoded":
        return encode_datum(data=draw(st.binary(max_size=9)), encoded=True, label=5)
    record = head + encode_datum(label=draw(st.integers(-(2**31), 2**31 - 1)))
    if kind != "floats":
        record += encode_datum(data=rng.bytes(num))
    if kind != "bytes":
        floats = rng.normal(scale=300, size=num).astype(np.float32)
        places = rng.integers(0, num, min(num, 3))
        floats[places] = rng.choice(SPECIAL_FLOATS, places.size)
        record += draw(float_fields(floats))
    if draw(st.integers(0, 4)) > 0:
        return record
    damaged = bytearray(record)
    at = draw(st.integers(0, len(damaged) - 1))
    match draw(st.sampled_from(["cut", "change", "head", "put"])):
        case "cut":
            del damaged[at:]
        case "change":
            damaged[at] = draw(st.integers(0, 255))
        case "head":
            damaged[at % len(head)] = draw(st.integers(0, 255))
        case _:
            damaged[at:at] = draw(st.binary(max_size=12))
    return bytes(damaged)


def unaligned(data: bytes, offset: int) -> memoryview:
    """Return a view of bytes at some offset in a block, with other bytes on both sides."""
    return memoryview(bytes(offset) + data + b"\x22\x05")[offset : offset + len(data)]


@st.composite
def resizings(draw: st.DrawFn, crop_size: int) -> Resizing | None:
    """Draw how images are resized, to sizes that mostly hold the crop; mostly not at all."""
    if draw(st.integers(0, 2)) > 0:
        return None
    side = st.integers(max(1, crop_size - 1), crop_size + 20)
    low = draw(st.sampled_from([0.01, 0.08, 0.5, 1.0]))
    ratio = draw(st.sampled_from([0.1, 0.75, 1.0, 3.0]))
    bounds = ratio, draw(st.sampled_from([3.0, 4.0]))
    logs = math.log(bounds[0]), math.log(bounds[1])
    kind = draw(st.sampled_from(ResizeKind))
    return Resizing(kind, draw(side), draw(side), draw(st.booleans()), low, 1.0, *bounds, *logs)


@st.composite
def jitters(draw: st.DrawFn) -> Jitter | None:
    """Draw how colours are changed; mostly not at all."""
    if draw(st.integers(0, 2)) > 0:
        return None
    factors = st.sampled_from([UNCHANGED, (0.0, 0.0), (0.6, 1.4), (1.0, 3.0), (0.0, 1e6)])
    return Jitter(draw(factors), draw(factors), draw(factors), draw(st.booleans()))


@st.composite
def erasings(draw: st.DrawFn) -> Erasing | None:
    """Draw how boxes are written over; mostly not at all."""
    if draw(st.integers(0, 2)) > 0:
        return None
    share = draw(st.sampled_from([0.02, 0.3, 1.0]))
    log_ratio = draw(st.sampled_from([0.0, math.log(0.3), math.log(1e-6)]))
    mode = draw(st.sampled_from(ErasingMode))
    noise = None if mode == ErasingMode.CONST else noise_table()
    probability = draw(st.sampled_from([0.0, 0.5, 1.0]))
    return Erasing(probability, 0.02, share, log_ratio, -log_ratio, mode, noise)


@st.composite
def recipes(draw: st.DrawFn, shape: tuple[int, int, int], crop_size: int, *, computes: bool) -> Any:
    """Draw a recipe that mostly fits the records."""
    channels = shape[0]
    mean_value: list[float] = []
    mean_image: NDArray[np.float32] | None = None
    scale = [1.0]
    finite = st.floats(-300, 300, width=32)
    if computes:
        scale = draw(st.sampled_from([[1.0], draw(st.lists(finite, min_size=1, max_size=1))]))
        if draw(st.booleans()):
            scale = draw(st.lists(finite, min_size=channels, max_size=channels))
        match draw(st.sampled_from(["none", "one", "each", "image", "other"])):
            case "one":
                mean_value = [draw(finite)]
            case "each":
                mean_value = draw(st.lists(finite, min_size=channels, max_size=channels))
            case "image":
                odd = draw(st.integers(0, 9)) == 0
                rng = np.random.default_rng(draw(st.integers(0, 9)))
                mean_shape = (shape[0], shape[1] + odd, shape[2])
                mean_image = rng.random(mean_shape, np.float32) * np.float32(255)
            case "other":
                mean_value = [1.0] * draw(st.integers(2, 6))
    whole = mean_image is not None
    return Recipe(
        crop_height=crop_size,
        crop_width=crop_size and draw(st.integers(max(1, crop_size - 5), crop_size)),
        random_crop=draw(st.booleans()),
        mirror=draw(st.booleans()),
        modulo=draw(st.booleans()),
        swap_channels=draw(st.booleans()),
        channels_last=draw(st.booleans()),
        unit_range=computes and not whole and draw(st.booleans()),
        mean_value=np.array(mean_value, np.float32),
        scale=np.array(scale, np.float32),
        mean_image=mean_image,
        resizing=None if whole else draw(resizings(crop_size)),
        pad=0 if whole else draw(st.sampled_from([0, 0, 0, 1, 3])),
        jitter=None if whole else draw(jitters()),
        erasing=draw(erasings()) if computes else None,
    )


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    crop_size = draw(st.one_of(st.just(0), st.integers(1, 33)))
    shape = draw(shapes(crop_size))
    dtype = np.dtype(draw(st.sampled_from(["f4", "f2", "u2", "u1"])))
    recipe = draw(recipes(shape, crop_size, computes=dtype != np.uint8))
    num = draw(st.integers(0, 4))
    values = []
    for _ in range(num):
        own = draw(shapes(crop_size)) if draw(st.integers(0, 5)) == 0 else shape
        values.append(unaligned(draw(records(own, rng)), draw(st.integers(0, 7))))
    return Task(
        values=values,
        words=rng.integers(0, 2**32, (2 * num, 99), dtype=np.uint32)[::2, :MOST_WORDS],
        recipe=recipe,
        sample=recipe.sample_shape(*shape),
        dtype=dtype,
        label_dtype=np.dtype(draw(st.sampled_from(list(LABEL_TYPES)))),
        offset=draw(st.sampled_from([0, 1, 2, 4, 16, 64])),
    )


@dataclass(frozen=True)
class Answer:
    """What came of a task; `good` are the bytes of the rows that had to be filled."""

    outcomes: list[Outcome]
    labels: bytes
    good: list[bytes]


def block(shape: tuple[int, ...], dtype: np.dtype[Any], offset: int) -> Any:
    """Return an array inside of a block of canaries, and what has to stay of the block."""
    size = int(np.prod(shape)) * dtype.itemsize
    whole = np.full(offset + size + 64, CANARY, np.uint8)
    inner = whole[offset : offset + size].view(dtype).reshape(shape)
    return inner, (whole[:offset], whole[offset + size :])


def answer(kernels: Kernels, task: Task) -> Answer:
    """Give a task to a kernel; assert that it writes nowhere else."""
    num = len(task.values)
    data, data_margins = block((num, *task.sample), task.dtype, task.offset)
    labels, label_margins = block((num,), task.label_dtype, task.offset)
    outcomes = kernels.fill(task.values, task.words, data, labels, task.recipe)
    for margin in (*data_margins, *label_margins):
        assert (margin == CANARY).all()
    bad = {position for position, _, _ in outcomes}
    good = [data[row].tobytes() for row in range(num) if row not in bad]
    return Answer(outcomes, labels.tobytes(), good)


@settings(deadline=None)  # a loaded machine is no failure
@given(tasks())
def test_both_kernels_fill_parts_alike(task: Task) -> None:
    assert answer(reference, task) == answer(_c, task)


@settings(deadline=None)  # a loaded machine is no failure
@given(tasks(), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_both_kernels_fill_rows_from_images_alike(task: Task, channels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    height, width = task.sample[:2] if task.recipe.channels_last else task.sample[1:]
    larger = 3 if task.recipe.crop_height else 0
    image = rng.integers(0, 256, (height + larger, width + larger, channels), dtype=np.uint8)
    words = rng.integers(0, 2**32, MOST_WORDS, dtype=np.uint32)
    pieces: list[tuple[NDArray[np.uint8], Part | None]] = [(image, None)]
    fits = reference.fill_image(image, words, np.zeros(task.sample, task.dtype), task.recipe, None)
    if fits is None:
        pieces.append(part_of(image, words, task.recipe, rng))
    answers = []
    for kernels in (reference, _c):
        for piece, part in pieces:
            row, margins = block(task.sample, task.dtype, task.offset)
            found = kernels.fill_image(piece, words, row, task.recipe, part)
            assert all((margin == CANARY).all() for margin in margins)
            answers.append((found, row.tobytes() if found is None else b""))
    assert answers.count(answers[0]) == len(answers)


def part_of(
    image: NDArray[np.uint8], words: NDArray[np.uint32], recipe: Recipe, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], Part]:
    """Return a part of an image that holds what its row is made of, and a little more."""
    height, width, _ = image.shape
    box = needed_box(words.tolist(), height, width, recipe)
    above, before, below, behind = rng.integers(0, 3, 4).tolist()
    top, left = max(0, box.top - above), max(0, box.left - before)
    bottom, right = box.top + box.height + below, box.left + box.width + behind
    return image[top:bottom, left:right].copy(), (top, left, height, width)


@pytest.mark.parametrize("part", [(0, 0, 9, 9), (1, 0, 9, 9), (-1, 0, 9, 9), (0, 4, 9, 9)])
def test_a_part_that_lacks_what_the_row_is_made_of_is_refused(part: Part) -> None:
    recipe = Transform(train=False, crop_size=5).recipe
    image, words = np.zeros((6, 6, 1), np.uint8), np.zeros(3, np.uint32)
    row = np.zeros((1, 5, 5), np.float32)
    # The middle 5 x 5 pixels of 9 x 9 begin at (2, 2).
    for kernels in (reference, _c):
        assert kernels.fill_image(image, words, row, recipe, (1, 1, 9, 9)) is None
        with pytest.raises(ValueError, match=r"part that was decoded|lacks pixels"):
            kernels.fill_image(image, words, row, recipe, part)


@st.composite
def fields(draw: st.DrawFn) -> bytes:
    """Draw a field as wire bytes: known or not, of a fitting wire type or not, sound or not."""
    tag = varint(draw(st.integers(0, 10)) << 3 | draw(st.integers(0, 7)))
    if draw(st.integers(0, 4)) == 0:  # longer than it need be
        tag = bytes((*tag[:-1], tag[-1] | 0x80, *([0x80] * draw(st.integers(0, 4))), 0))
    body: bytes = draw(
        st.one_of(
            st.binary(max_size=12),
            st.binary(max_size=12).map(lambda payload: varint(len(payload)) + payload),
            st.integers(0, 2**70).map(varint),
            st.integers(2**28, 2**36).map(varint),
            st.lists(st.sampled_from(b"\x03\x04\x0b\x0c\x4b\x4c"), max_size=9).map(bytes),
            st.just(b"\x00\x00\x80\x3f"),
        )
    )
    return tag + body


@settings(deadline=None)  # a loaded machine is no failure
@given(st.lists(fields(), max_size=6).map(b"".join), st.integers(0, 99))
def test_both_kernels_take_any_fields_alike(value: bytes, cut: int) -> None:
    recipe = Recipe(
        crop_height=0,
        crop_width=0,
        random_crop=False,
        mirror=False,
        modulo=False,
        swap_channels=False,
        channels_last=False,
        unit_range=False,
        mean_value=np.zeros(0, np.float32),
        scale=np.ones(1, np.float32),
        mean_image=None,
        resizing=None,
        pad=0,
        jitter=None,
        erasing=None,
    )
    task = Task(
        values=[memoryview(value), memoryview(value[:cut])],
        words=np.zeros((2, 3), np.uint32),
        recipe=recipe,
        sample=(1, 1, 1),
        dtype=np.dtype(np.float32),
        label_dtype=np.dtype(np.int64),
        offset=0,
    )
    assert answer(reference, task) == answer(_c, task)
