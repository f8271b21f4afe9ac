"""The device's resizing kernel, run on the host from its source, against its twin and the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import hostcuda
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory._device.bfloat16 import dtype_of
from prefetch._kernels import device_arithmetic, device_boxes, device_kernel, selection
from prefetch._kernels.box_places import bytes_of_image, bytes_of_window, place_window
from prefetch._kernels.contract import Erasing, ErasingMode, ResizeKind, Resizing
from prefetch._kernels.device_kernel import StagedBatch
from prefetch._kernels.erasing import noise_table
from prefetch._transform.box_staging import BoxStager
from prefetch._transform.options import Transform
from prefetch._transform.staged_rows import StagedRows

if TYPE_CHECKING:
    from hostcuda import HostKernel
    from numpy.typing import NDArray

CANARY = 0xA5
DTYPES = tuple(dtype_of(name) for name in device_kernel.DTYPES)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, HostKernel]:
    names = device_boxes.kernel_names()
    folder = tmp_path_factory.mktemp("kernel")
    return hostcuda.build(device_boxes.SOURCE, *names, folder=folder)


@dataclass(frozen=True)
class Task:
    """Decoded images, (height, width, channels) each, and what is to be done to them."""

    transform: Transform
    images: tuple[NDArray[np.uint8], ...]
    words: NDArray[np.uint32]
    box_bytes: int


@st.composite
def resizings(draw: st.DrawFn) -> Resizing:
    kind = draw(st.sampled_from(ResizeKind))
    height, width = draw(st.integers(1, 24)), draw(st.integers(1, 24))
    if kind == ResizeKind.SHORTER_SIDE:
        width = height
    bounds = (0.08, 1.0, 0.5, 2.0, float(np.log(0.5)), float(np.log(2.0)))
    return Resizing(kind, height, width, draw(st.booleans()), *bounds)


@st.composite
def erasings(draw: st.DrawFn) -> Erasing:
    mode = draw(st.sampled_from(ErasingMode))
    noise = None if mode == ErasingMode.CONST else noise_table()
    return Erasing(0.8, 0.05, 0.9, -1.0, 1.0, mode, noise)


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from(DTYPES))
    channels = draw(st.integers(1, 5))
    resizing = draw(st.none() | resizings())
    erasing = draw(st.none() | erasings()) if dtype != np.uint8 else None
    num = draw(st.integers(1, 4))
    sides = st.integers(1, draw(st.sampled_from([3, 20, 70])))
    sizes = [(draw(sides), draw(sides)) for _ in range(num)]
    crop_size: int | tuple[int, int] = 0
    is_of_one_size = resizing is not None and resizing.kind != ResizeKind.SHORTER_SIDE
    if draw(st.booleans()):
        ends = [min(size) for size in sizes]
        least = min(ends) if resizing is None else min(resizing.height, resizing.width)
        crop_size = draw(st.integers(1, least)), draw(st.integers(1, least))
    elif not is_of_one_size:
        sizes = sizes[:1] * num
    num_means, num_scales = (draw(st.sampled_from([0, 1, channels])) for _ in range(2))
    computes = dtype != np.uint8
    transform = Transform(
        train=draw(st.booleans()),
        resizing=resizing,
        erasing=erasing,
        crop_size=crop_size,
        mirror=draw(st.booleans()),
        unit_range=computes and draw(st.booleans()),
        mean_value=tuple(rng.normal(scale=100, size=num_means * computes).tolist()),
        scale=tuple(rng.normal(size=num_scales * computes).tolist()) or (1.0,),
        channels=draw(st.sampled_from(["stored", "rgb"])),
        layout=draw(st.sampled_from(["nchw", "nhwc"])),
        dtype=dtype,
        modulo=draw(st.booleans()),
    )
    # Edges of black and white, where a cubic filter leaves the bytes, beside noise.
    images = tuple(
        rng.integers(0, 256, (*size, channels), np.uint8)
        if draw(st.booleans())
        else rng.integers(0, 2, (*size, channels), np.uint8) * np.uint8(255)
        for size in sizes
    )
    words = rng.integers(0, 2**32, (num, 87), np.uint32)
    whole = bytes_of_image((channels, *sizes[0]), transform.recipe)
    window = bytes_of_window((channels, *transform.recipe.window_size(*sizes[0])))
    return Task(transform, images, words, max(window, whole // draw(st.integers(1, 4)) & -16))


def run(
    kernels: dict[str, HostKernel], staged: NDArray[np.uint8], batch: StagedBatch, task: Task
) -> NDArray[Any]:
    """Return what the kernel makes of a staged batch, by its bits."""
    recipe = task.transform.recipe
    sample = recipe.sample_shape(*batch.image_shape)
    found = np.full((batch.num, *sample), CANARY, task.transform.row_dtype)
    blocks, threads = device_kernel.grid(batch, recipe)
    kernels[device_boxes.kernel_name(task.transform.dtype)](
        blocks,
        threads,
        staged,
        np.uint64(batch.box_bytes),
        found,
        device_arithmetic.constants(recipe),
        *device_boxes.scalars(batch, recipe),
    )
    return found


@settings(max_examples=300)
@given(task=tasks())
def test_the_kernel_and_its_twin_make_the_hosts_bytes(
    kernels: dict[str, HostKernel], task: Task
) -> None:
    transform, recipe = task.transform, task.transform.recipe
    height, width, channels = task.images[0].shape
    batch = StagedBatch(len(task.images), channels, height, width, box_bytes=task.box_bytes)
    staged = np.full(batch.nbytes, CANARY, np.uint8)
    stager = BoxStager(transform)
    rows = StagedRows(
        batch.pixels(staged), batch.table(staged), {}, place=(channels, height, width)
    )
    expected = np.zeros((batch.num, *recipe.sample_shape(*batch.image_shape)), transform.row_dtype)
    stager.begin(rows)
    for image, words, place, row in zip(
        task.images, task.words, rows.pixels, expected, strict=True
    ):
        assert stager.fill_image(image, words, place, recipe, None) is None
        assert selection.kernels.fill_image(image, words, row, recipe, None) is None
    twins = np.zeros_like(expected)
    device_boxes.transform_staged(staged, twins, batch, recipe)
    assert twins.tobytes() == expected.tobytes()
    assert run(kernels, staged, batch, task).tobytes() == expected.tobytes()


def test_a_finished_window_stays_as_it_is(kernels: dict[str, HostKernel]) -> None:
    resizing = Resizing(ResizeKind.BOTH_SIDES, 16, 16, bicubic=True)
    transform = Transform(train=False, resizing=resizing, mirror=True, dtype=np.dtype(np.uint8))
    batch = StagedBatch(1, 1, 9, 9, box_bytes=bytes_of_window((1, 16, 16)))
    staged = np.zeros(batch.nbytes, np.uint8)
    place_window(staged, (1, 16, 16))[:] = np.arange(256).reshape(1, 16, 16)
    task = Task(transform, (), np.zeros((1, 3), np.uint32), batch.box_bytes)
    assert run(kernels, staged, batch, task).ravel().tolist() == list(range(256))


def test_a_place_that_nothing_was_written_to_is_a_black_row(
    kernels: dict[str, HostKernel],
) -> None:
    """As that of a bad record; whatever it held before leads nowhere."""
    resizing = Resizing(ResizeKind.BOTH_SIDES, 6, 7, bicubic=False)
    transform = Transform(train=False, resizing=resizing, mean_value=(2.0,))
    batch = StagedBatch(2, 3, 9, 9, box_bytes=bytes_of_image((3, 9, 9), transform.recipe))
    staged = np.full(batch.nbytes, CANARY, np.uint8)
    rows = StagedRows(batch.pixels(staged), batch.table(staged), {}, place=(3, 9, 9))
    BoxStager(transform).begin(rows)
    task = Task(transform, (), np.zeros((2, 3), np.uint32), batch.box_bytes)
    found, twins = run(kernels, staged, batch, task), np.zeros((2, 3, 6, 7), np.float32)
    device_boxes.transform_staged(staged, twins, batch, transform.recipe)
    assert (found == -2).all()
    assert (twins == -2).all()


def test_the_first_pass_is_cut_to_bytes_before_the_second(kernels: dict[str, HostKernel]) -> None:
    """Two edges that cross: with sums that are not cut in between, other pixels would come out."""
    image = np.zeros((8, 8, 1), np.uint8)
    image[:4, :4] = image[4:, 4:] = 255
    resizing = Resizing(ResizeKind.BOTH_SIDES, 21, 21, bicubic=True)
    transform = Transform(train=False, resizing=resizing)
    stager, recipe = BoxStager(transform), transform.recipe
    batch = StagedBatch(1, 1, 8, 8, box_bytes=bytes_of_image((1, 8, 8), recipe))
    staged = np.zeros(batch.nbytes, np.uint8)
    stager.begin(StagedRows(batch.pixels(staged), batch.table(staged), {}, place=(1, 8, 8)))
    words = np.zeros((1, 3), np.uint32)
    assert stager.fill_image(image, words[0], batch.pixels(staged)[0], recipe, None) is None
    found = run(kernels, staged, batch, Task(transform, (image,), words, batch.box_bytes))
    expected = np.zeros((1, 21, 21), np.float32)
    assert selection.kernels.fill_image(image, words[0], expected, recipe, None) is None
    assert found.tobytes() == expected.tobytes()
