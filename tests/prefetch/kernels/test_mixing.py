"""Batches mixed with themselves: the definition, and the same bits from both kernels."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import bfloat16
from prefetch._kernels import _c, mixing, reference, selection
from prefetch._kernels.mixing import NUMPY_KERNELS, mix_batch
from prefetch._plan.mixing import Box, Mix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._kernels.mixing import MixKernels

TYPES = [np.dtype(np.float32), np.dtype(np.float16), bfloat16()]
TILE = 1024  # values of two bytes that the C kernel takes at a time

both = pytest.mark.parametrize("kernels", [_c, NUMPY_KERNELS], ids=["c", "numpy"])
types = pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)


def batch_of(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0) -> NDArray[Any]:
    if dtype == np.uint8:
        return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    return np.random.default_rng(seed).normal(0, 90, shape).astype(np.float32).astype(dtype)


def bits(values: NDArray[Any]) -> NDArray[Any]:
    """View values as their bits, with one NaN for all: which one it is, nobody promises."""
    values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
    return values.view(f"u{values.itemsize}")


def mixed(
    batch: NDArray[Any], lam: float, box: Box | None, kernels: MixKernels, *, last: bool = False
) -> NDArray[Any]:
    result = batch.copy()
    mix_batch(result, Mix(lam, box), channels_last=last, kernels=kernels)
    return result


@both
@types
@pytest.mark.parametrize("num", [1, 2, 5])
def test_mixup_is_two_products_and_a_sum_in_float32_and_a_rounding_to_the_type(
    kernels: MixKernels, dtype: np.dtype[Any], num: int
) -> None:
    batch, lam = batch_of((num, 3, 5, 7), dtype), np.float32(0.7)
    wide = batch.astype(np.float32)
    expected = (wide * lam + wide[::-1] * (np.float32(1) - lam)).astype(dtype)
    found = mixed(batch, float(lam), None, kernels)
    np.testing.assert_array_equal(bits(found), bits(expected))


@both
@pytest.mark.parametrize("dtype", [*TYPES, np.dtype(np.uint8)], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("num", [1, 2, 5])
def test_cutmix_takes_the_box_from_the_sample_at_the_same_place_from_the_end(
    kernels: MixKernels, dtype: np.dtype[Any], num: int, *, last: bool
) -> None:
    batch = batch_of((num, 3, 9, 11), dtype)
    expected = batch.copy()
    expected[:, :, 2:7, 3:11] = batch[::-1, :, 2:7, 3:11]
    if last:
        batch, expected = (np.moveaxis(one, 1, 3).copy() for one in (batch, expected))
    found = mixed(batch, 0.5, Box(2, 7, 3, 11), kernels, last=last)
    assert found.tobytes() == expected.tobytes()


@st.composite
def patterns(draw: st.DrawFn) -> tuple[NDArray[Any], float]:
    """Draw rows of any bits, NaNs and subnormals among them, and a weight."""
    kind = draw(st.sampled_from([np.float32, np.float16, np.uint16]))
    itemsize = np.dtype(kind).itemsize
    sizes = st.integers(1, 40) | st.sampled_from([TILE - 1, TILE, TILE + 1, 2 * TILE + 9])
    shape = draw(st.integers(0, 5)), draw(sizes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = rng.integers(0, 256, (shape[0], shape[1] * itemsize), np.uint8)
    lam = draw(st.floats(0, 1, width=32) | st.sampled_from([0.0, 1.0]))
    return rows.view(kind), lam


@given(pattern=patterns())
def test_both_kernels_make_the_same_bits(pattern: tuple[NDArray[Any], float]) -> None:
    rows, lam = pattern
    ours, twins = rows.copy(), rows.copy()
    _c.mix_rows(ours, lam)
    NUMPY_KERNELS.mix_rows(twins, lam)
    as_numbers = bfloat16() if rows.dtype == np.uint16 else rows.dtype
    np.testing.assert_array_equal(bits(ours.view(as_numbers)), bits(twins.view(as_numbers)))


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(np.uint16)])
def test_every_number_of_two_bytes_is_itself_with_a_weight_of_1(dtype: np.dtype[Any]) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16).reshape(2, -1)
    kind = bfloat16() if dtype == np.uint16 else dtype
    # 0 times infinity, or a NaN, is a NaN in the partner.
    rows = np.where(np.isfinite(patterns.view(kind)), patterns, 0).view(dtype)
    found = rows.copy()
    _c.mix_rows(found, 1.0)
    # 0 + -0 is 0
    expected = np.where(rows.view(kind) == 0, 0, rows.view(np.uint16))
    found = np.where(found.view(kind) == 0, 0, found.view(np.uint16))
    np.testing.assert_array_equal(found, expected)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[NDArray[np.uint8], tuple[int, int, int, int]]:
    shape = draw(st.tuples(*[st.integers(1, 6)] * 2, st.integers(1, 9), st.integers(1, 700)))
    rows = batch_of(shape, np.dtype(np.uint8), draw(st.integers(0, 99)))
    top, bottom = sorted(draw(st.tuples(*[st.integers(0, shape[2])] * 2)))
    left, right = sorted(draw(st.tuples(*[st.integers(0, shape[3])] * 2)))
    return rows, (top, bottom, left, right)


@given(task=boxes())
def test_both_kernels_exchange_the_same_bytes(
    task: tuple[NDArray[np.uint8], tuple[int, int, int, int]],
) -> None:
    rows, box = task
    ours, twins = rows.copy(), rows.copy()
    _c.swap_boxes(ours, *box)
    NUMPY_KERNELS.swap_boxes(twins, *box)
    np.testing.assert_array_equal(ours, twins)


def test_rows_of_any_alignment_are_mixed() -> None:
    values = batch_of((4, 33), np.dtype(np.float32))
    memory = np.frombuffer(bytearray(b"x" + values.tobytes()), np.uint8)
    unaligned = memory[1:].view(np.float32).reshape(4, 33)
    NUMPY_KERNELS.mix_rows(values, 0.25)
    _c.mix_rows(unaligned, 0.25)
    np.testing.assert_array_equal(unaligned, values)


def test_without_the_extension_numpy_mixes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mixing.mix_kernels() is _c
    monkeypatch.setattr(selection, "kernels", reference)
    assert mixing.mix_kernels() is NUMPY_KERNELS


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.zeros((1, 1), np.float32),), TypeError, "takes 2 arguments, and 1 were given"),
        ((np.zeros((1, 1), np.float32), "1"), TypeError, "number|float"),
        ((np.zeros((1, 1), np.float32), 1.5), ValueError, "lam must be 0 to 1"),
        ((np.zeros((1, 1), np.float32), -1.0), ValueError, "lam must be 0 to 1"),
        ((np.zeros((1, 1), np.float32), float("nan")), ValueError, "lam must be 0 to 1"),
        ((np.zeros(1, np.float32), 0.5), ValueError, "rows has 1 axes"),
        ((np.zeros((1, 1), np.uint8), 0.5), TypeError, "rows of uint8 cannot be mixed"),
        ((np.zeros((1, 1)), 0.5), TypeError, "rows must be float32"),
        ((np.zeros((2, 4), np.float32)[:, ::2], 0.5), ValueError, "contiguous"),
        ((np.frombuffer(bytes(4), np.float32).reshape(1, 1), 0.5), ValueError, "read-only"),
        ((3, 0.5), TypeError, "bytes-like"),
    ],
)
def test_what_cannot_be_mixed_is_refused(
    arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _c.mix_rows(*arguments)


@pytest.mark.parametrize(
    ("box", "error", "message"),
    [
        ((0, 1, 0), TypeError, "takes 5 arguments, and 4 were given"),
        ((0, "1", 0, 1), TypeError, "integer"),
        (("0", 1, 0, 1), TypeError, "integer"),
        ((-1, 1, 0, 1), ValueError, "lines are -1 to 1, and there are 3"),
        ((2, 1, 0, 1), ValueError, "lines are 2 to 1, and there are 3"),
        ((0, 4, 0, 1), ValueError, "lines are 0 to 4, and there are 3"),
        ((0, 1, 0, 6), ValueError, "bytes of a line are 0 to 6, and there are 5"),
        ((0, 1, 2**70, 6), OverflowError, "too large|too big"),
    ],
)
def test_boxes_that_are_not_within_the_rows_are_refused(
    box: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _c.swap_boxes(np.zeros((2, 1, 3, 5), np.uint8), *box)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (np.zeros((2, 1, 3, 5), np.float32), TypeError, "rows must be uint8"),
        (np.zeros((2, 3, 5), np.uint8), ValueError, "rows has 3 axes"),
        (np.zeros((2, 1, 3, 10), np.uint8)[..., ::2], ValueError, "contiguous"),
    ],
)
def test_rows_that_are_no_bytes_are_refused(
    rows: NDArray[Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _c.swap_boxes(rows, 0, 1, 0, 1)


def test_others_run_while_a_batch_is_mixed() -> None:
    rows = np.zeros((64, 1 << 19), np.float16)  # a twentieth of a second, or more
    began, steps, done = threading.Event(), 0, False

    def mix() -> None:
        nonlocal done
        began.set()
        for _ in range(4):
            _c.mix_rows(rows, 0.5)
        done = True

    mixing = threading.Thread(target=mix)
    mixing.start()
    began.wait()
    while not done:
        steps += 1
    mixing.join()
    assert 1000 < steps
