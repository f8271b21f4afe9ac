"""The device's kernel, run on the host from its own source, against its NumPy twin, bit for bit."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import hostcuda
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import bfloat16
from prefetch._kernels import device_arithmetic, device_kernel
from prefetch._kernels.contract import Recipe
from prefetch._kernels.device_kernel import SOURCE, WHOLE, WINDOW, StagedBatch
from prefetch._transform.options import Transform

if TYPE_CHECKING:
    from hostcuda import HostKernel
    from numpy.typing import NDArray

CANARY = 0xA5
DTYPES = [np.dtype(kind) for kind in (np.float32, np.float16, np.uint16, np.uint8)]
"""Of rows; those of uint16 are bfloat16 by its bits."""


def kernel_name(dtype: np.dtype[Any]) -> str:
    return device_kernel.kernel_name(bfloat16() if dtype == np.uint16 else dtype)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, HostKernel]:
    names = device_kernel.kernel_names()
    return hostcuda.build(SOURCE, *names, folder=tmp_path_factory.mktemp("kernel"))


@dataclass(frozen=True)
class Task:
    """What the kernel is asked."""

    batch: StagedBatch
    recipe: Recipe
    dtype: np.dtype[Any]
    staged: NDArray[np.uint8]


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    dtype = draw(st.sampled_from(DTYPES))
    channels = draw(st.integers(1, 5))
    crop_size = draw(st.just(0) | st.integers(1, 20))
    side = st.integers(max(1, crop_size), max(1, crop_size) + draw(st.sampled_from([2, 17, 90])))
    batch = StagedBatch(draw(st.integers(1, 6)), channels, draw(side), draw(side))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    recipe = Recipe(
        crop_height=crop_size,
        crop_width=crop_size,
        random_crop=draw(st.booleans()),
        mirror=draw(st.booleans()),
        modulo=draw(st.booleans()),
        swap_channels=draw(st.booleans()),
        channels_last=draw(st.booleans()),
        unit_range=False,
        mean_value=np.empty(0, np.float32),
        scale=np.ones(1, np.float32),
        mean_image=None,
        resizing=None,
        pad=0,
        jitter=None,
        erasing=None,
    )
    if dtype != np.uint8:
        recipe = draw(arithmetic(recipe, batch.image_shape))
    staged = rng.integers(0, 256, batch.nbytes, np.uint8)
    words = st.integers(0, 2**32 - 1) | st.sampled_from([0, 1, 2**31, 2**32 - 1])
    table = batch.table(staged)
    table[:, :3] = np.reshape(draw(st.lists(words, min_size=3, max_size=3)), (1, 3)) + rng.integers(
        0, 2**16, (batch.num, 3), np.uint32
    )
    forms = [WHOLE] if recipe.mean_image is not None or not crop_size else [WHOLE, WINDOW]
    table[:, 3] = rng.choice(forms, batch.num)
    return Task(batch, recipe, dtype, staged)


@st.composite
def numbers(draw: st.DrawFn, num: int) -> NDArray[np.float32]:
    """Draw means or scales: of many bits and all sizes, which drawing one by one seldom gives."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = (rng.normal(scale=100, size=num) * 10.0 ** rng.integers(-4, 3, num)).astype(np.float32)
    if draw(st.integers(0, 3)) == 0:
        values[rng.integers(num)] = draw(st.floats(width=32, allow_nan=False))
    return values


@st.composite
def arithmetic(draw: st.DrawFn, recipe: Recipe, image: tuple[int, int, int]) -> Recipe:
    """Draw means and scales."""
    nums = st.sampled_from([1, image[0]])
    match draw(st.sampled_from(["none", "value", "image"])):
        case "value":
            recipe = recipe._replace(mean_value=draw(numbers(draw(nums))))
        case "image":
            rng = np.random.default_rng(draw(st.integers(0, 99)))
            recipe = recipe._replace(mean_image=rng.random(image, np.float32) * np.float32(255))
    scale = draw(numbers(draw(nums))) if draw(st.booleans()) else recipe.scale
    unit_range = recipe.mean_image is None and draw(st.booleans())
    return recipe._replace(scale=scale, unit_range=unit_range)


def run(kernels: dict[str, HostKernel], task: Task, out: NDArray[Any]) -> None:
    blocks, threads = device_kernel.grid(task.batch, task.recipe)
    kernels[kernel_name(task.dtype)](
        blocks,
        threads,
        task.staged,
        np.uint64(task.batch.pixels_at),
        out,
        device_arithmetic.constants(task.recipe),
        *device_kernel.scalars(task.batch, task.recipe),
    )


def bits(values: NDArray[Any]) -> NDArray[Any]:
    """View values as their bits, with one NaN for all: which one it is, CUDA does not promise."""
    if values.dtype == np.uint8:
        return values
    if values.dtype == np.uint16:
        values = values.view(bfloat16())
    values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
    return values.view(f"u{values.itemsize}")


@settings(max_examples=300)
@given(task=tasks())
def test_the_kernel_makes_the_bytes_that_its_twin_makes(
    kernels: dict[str, HostKernel], task: Task
) -> None:
    sample = task.recipe.sample_shape(*task.batch.image_shape)
    found = np.full((task.batch.num, *sample), CANARY, task.dtype)
    expected = np.full_like(found, 0)
    run(kernels, task, found)
    device_kernel.transform_staged(task.staged, expected, task.batch, task.recipe)
    np.testing.assert_array_equal(bits(found), bits(expected))


COMBINATIONS = list(
    itertools.product(
        DTYPES, [1, 3, 4, 5], [0, 7], [False, True], [False, True], ["none", "each", "image"]
    )
)


def test_every_combination_of_options_makes_the_twins_bytes(kernels: dict[str, HostKernel]) -> None:
    rng = np.random.default_rng(5)
    for dtype, channels, crop_size, swaps, last, means in COMBINATIONS:
        computes = dtype != np.uint8
        batch = StagedBatch(4, channels, 9, 11)
        each = rng.normal(scale=100, size=(2, channels)).astype(np.float32)
        image = rng.normal(100, 50, batch.image_shape).astype(np.float32)
        recipe = Recipe(
            crop_height=crop_size,
            crop_width=crop_size,
            random_crop=True,
            mirror=True,
            modulo=swaps,
            swap_channels=swaps,
            channels_last=last,
            unit_range=False,
            mean_value=each[0] if means == "each" and computes else each[0, :0],
            scale=each[1] if computes else np.ones(1, np.float32),
            mean_image=image if means == "image" and computes else None,
            resizing=None,
            pad=0,
            jitter=None,
            erasing=None,
        )
        staged = rng.integers(0, 256, batch.nbytes, np.uint8)
        batch.table(staged)[:, :3] = rng.integers(0, 2**32, (4, 3), np.uint32)
        batch.table(staged)[:, 3] = WHOLE
        if crop_size and means != "image":
            batch.table(staged)[1:3, 3] = WINDOW
        found = np.empty((4, *recipe.sample_shape(*batch.image_shape)), dtype)
        expected = np.empty_like(found)
        run(kernels, Task(batch, recipe, dtype, staged), found)
        device_kernel.transform_staged(staged, expected, batch, recipe)
        np.testing.assert_array_equal(bits(found), bits(expected))


def test_a_multiply_and_a_subtraction_are_two_roundings(kernels: dict[str, HostKernel]) -> None:
    """With one fused operation the results would be others: all differ in their last bits."""
    batch = StagedBatch(1, 1, 1, 256)
    staged = np.zeros(batch.nbytes, np.uint8)
    batch.pixels(staged)[:] = np.arange(256)
    mean, scale = np.float32(1 / 3), np.float32(0.017)
    recipe = Recipe(
        crop_height=0,
        crop_width=0,
        random_crop=False,
        mirror=False,
        modulo=False,
        swap_channels=False,
        channels_last=False,
        unit_range=False,
        mean_value=np.array([mean]),
        scale=np.array([scale]),
        mean_image=None,
        resizing=None,
        pad=0,
        jitter=None,
        erasing=None,
    )
    found = np.empty((1, 1, 1, 256), np.float32)
    run(kernels, Task(batch, recipe, found.dtype, staged), found)
    pixels = np.arange(256, dtype=np.float32)
    exact = (pixels.astype(np.float64) - np.float64(mean)) * np.float64(scale)
    twice = (pixels - mean) * scale
    assert found.ravel().tolist() == twice.tolist()
    assert (exact.astype(np.float32) != twice).any()


def test_each_float16_is_the_nearest(kernels: dict[str, HostKernel]) -> None:
    """All float32 that lie on, between and just beside neighbouring float16, in a mean image."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)].astype(np.float32)
    between = (halves[:-1] + halves[1:]) / 2
    values = np.concatenate([halves, between, np.array([65519.0, 65520.0, 7e4], np.float32)])
    values = np.concatenate(
        [
            values,
            np.nextafter(values, np.float32(np.inf)),
            np.nextafter(values, -np.float32(np.inf)),
        ]
    )
    batch = StagedBatch(1, 1, 1, values.size)
    staged = np.zeros(batch.nbytes, np.uint8)
    recipe = Recipe(
        crop_height=0,
        crop_width=0,
        random_crop=False,
        mirror=False,
        modulo=False,
        swap_channels=False,
        channels_last=False,
        unit_range=False,
        mean_value=np.empty(0, np.float32),
        scale=np.ones(1, np.float32),
        mean_image=values.reshape(1, 1, -1),
        resizing=None,
        pad=0,
        jitter=None,
        erasing=None,
    )
    found = np.empty(values.size, np.float16)
    run(kernels, Task(batch, recipe, found.dtype, staged), found)
    with np.errstate(over="ignore"):
        expected = (np.float32(0) - values).astype(np.float16)
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))


def test_each_bfloat16_is_the_nearest(kernels: dict[str, HostKernel]) -> None:
    """All float32 that lie on, between and just beside neighbouring bfloat16, in a mean image."""
    edges = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    values = (np.arange(1 << 16, dtype=np.uint32)[:, np.newaxis] << 16 | edges).view(np.float32)
    batch = StagedBatch(1, 1, 1, values.size)
    staged = np.zeros(batch.nbytes, np.uint8)
    recipe = Transform(train=False, mean_image=values.reshape(1, 1, -1)).recipe
    found = np.empty(values.size, np.uint16)
    run(kernels, Task(batch, recipe, found.dtype, staged), found)
    with np.errstate(invalid="ignore"):
        expected = (np.float32(0) - values.ravel()).astype(bfloat16()).view(np.uint16)
    np.testing.assert_array_equal(bits(found), bits(expected))
