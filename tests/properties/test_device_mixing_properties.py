"""The device's mixing kernels, run on the host from their own source, against their NumPy twin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hostcuda
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import bfloat16
from prefetch._kernels import device_mixing
from prefetch._plan.mixing import Box, Mix

if TYPE_CHECKING:
    from hostcuda import HostKernel
    from numpy.typing import NDArray

FLOATS = [np.dtype(kind) for kind in (np.float32, np.float16, np.uint16)]
"""Of batches; those of uint16 are bfloat16 by its bits."""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, HostKernel]:
    names = device_mixing.kernel_names()
    return hostcuda.build(device_mixing.SOURCE, *names, folder=tmp_path_factory.mktemp("mixing"))


def as_numbers(values: NDArray[Any]) -> NDArray[Any]:
    return values.view(bfloat16()) if values.dtype == np.uint16 else values


def bits(values: NDArray[Any]) -> NDArray[Any]:
    """View values as their bits, with one NaN for all: which one it is, CUDA does not promise."""
    numbers = as_numbers(values)
    numbers = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers)
    return numbers.view(f"u{numbers.itemsize}")


def run(kernels: dict[str, HostKernel], out: NDArray[Any], mix: Mix, *, last: bool) -> None:
    dtype = as_numbers(out).dtype
    find_name = device_mixing.mix_name if mix.box is None else device_mixing.cut_name
    task = device_mixing.launch_of(mix, out.shape, channels_last=last)
    if task is not None:
        grid, block, numbers = task
        kernels[find_name(dtype)](grid, block, out, *numbers)


@st.composite
def batches(draw: st.DrawFn, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Draw a batch of any bits, NaNs and subnormals among them."""
    sides = st.integers(1, 9) | st.integers(1, 60)
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 4), sides, sides))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    patterns = rng.integers(0, 256, (*shape[:-1], shape[-1] * dtype.itemsize), np.uint8)
    return patterns.view(dtype)


@settings(max_examples=200)
@given(data=st.data(), lam=st.floats(0, 1, width=32) | st.sampled_from([0.0, 1.0]))
def test_mixup_makes_the_bytes_that_its_twin_makes(
    kernels: dict[str, HostKernel], data: st.DataObject, lam: float
) -> None:
    batch = data.draw(batches(data.draw(st.sampled_from(FLOATS))))
    found, expected, mix = batch.copy(), batch.copy(), Mix(lam, None)
    run(kernels, found, mix, last=False)
    device_mixing.mix_staged(expected, mix, channels_last=False)
    np.testing.assert_array_equal(bits(found), bits(expected))


@settings(max_examples=200)
@given(data=st.data(), last=st.booleans())
def test_cutmix_makes_the_bytes_that_its_twin_makes(
    kernels: dict[str, HostKernel], data: st.DataObject, *, last: bool
) -> None:
    batch = data.draw(batches(data.draw(st.sampled_from([*FLOATS, np.dtype(np.uint8)]))))
    height, width = batch.shape[1:3] if last else batch.shape[2:]
    top, bottom = sorted(data.draw(st.tuples(*[st.integers(0, height)] * 2)))
    left, right = sorted(data.draw(st.tuples(*[st.integers(0, width)] * 2)))
    found, expected, mix = batch.copy(), batch.copy(), Mix(0.5, Box(top, bottom, left, right))
    run(kernels, found, mix, last=last)
    device_mixing.mix_staged(expected, mix, channels_last=last)
    assert found.tobytes() == expected.tobytes()


def test_a_large_sample_is_mixed_by_a_grid_of_the_most_blocks(
    kernels: dict[str, HostKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_mixing, "_MAX_BLOCKS", 2)
    batch = np.random.default_rng(0).random((3, 1, 70, 90), np.float32)
    for mix in (Mix(0.25, None), Mix(0.5, Box(1, 69, 2, 88))):
        found, expected = batch.copy(), batch.copy()
        run(kernels, found, mix, last=False)
        device_mixing.mix_staged(expected, mix, channels_last=False)
        np.testing.assert_array_equal(found, expected)


def test_a_product_and_a_sum_are_roundings_of_their_own(kernels: dict[str, HostKernel]) -> None:
    """With a fused operation the results would be others: many differ in their last bits."""
    batch = np.random.default_rng(0).random((2, 1, 1, 999), np.float32)
    lam = np.float32(0.3)
    rest = np.float32(1) - lam
    found = batch.copy()
    run(kernels, found, Mix(float(lam), None), last=False)
    exact = batch[0].astype(np.float64) * lam + batch[1].astype(np.float64) * rest
    assert found[0].tolist() == (batch[0] * lam + batch[1] * rest).tolist()
    assert (exact.astype(np.float32) != found[0]).any()
