"""The kernels of a GPU's maths: every element, the roundings, and sums in several steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest

from memory._cuda import maths
from memory.testing import hold, peek

if TYPE_CHECKING:
    from numpy.typing import NDArray

Floats = type[np.floating[Any]]


def values(count: int, kind: Floats, seed: int = 1) -> NDArray[np.floating[Any]]:
    return np.random.default_rng(seed).uniform(-3, 3, count).astype(kind)


def on_device(device: Any, array: NDArray[Any]) -> Any:
    buffer, host = device.alloc_device(array.nbytes), device.alloc_host(array.nbytes).array
    host[:] = array.view(np.uint8)
    device.copy_to_device(buffer, host, stream=device.current_stream())
    return buffer


@pytest.fixture(params=[np.float32, np.float64], ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> Floats:
    kind: Floats = request.param
    return kind


def test_nvrtc_compiles_the_source_to_the_machines_code() -> None:
    image, _ = cupy.cuda.compiler.compile_using_nvrtc(maths.SOURCE, arch="90")
    assert image[:4] == b"\x7fELF"
    for name in maths.kernel_names():
        assert name.encode() in image


@pytest.mark.parametrize("most_blocks", [65535, 2])
@pytest.mark.parametrize("count", [1, 255, 257, 1000])
def test_every_element_is_computed_with_two_roundings(
    cuda: Any, kind: Floats, count: int, most_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Few blocks: each thread does several elements, as in a very large blob.
    monkeypatch.setattr(maths, "_MOST_BLOCKS", most_blocks)
    y, x, alpha = values(count, kind), values(count, kind, seed=2), kind(1 / 3)
    stream = cuda.current_stream()
    there, other = on_device(cuda, y), on_device(cuda, x)
    cuda.axpy(there, other, alpha=float(alpha), dtype=kind, stream=stream)
    stream.synchronize()
    assert (peek(there).view(kind) == alpha * x + y).all()
    cuda.scale(other, alpha=float(alpha), dtype=kind, stream=stream)
    stream.synchronize()
    assert (peek(other).view(kind) == alpha * x).all()


@pytest.mark.parametrize("count", [1, 31, 32, 33, 1024, 1025, 100_001])
def test_a_sum_has_every_term_once(cuda: Any, kind: Floats, count: int) -> None:
    array, stream = values(count, kind), cuda.current_stream()
    buffer = on_device(cuda, array)
    exact = array.astype(np.float64)
    close = 1e-6 if kind is np.float32 else 1e-14
    asum = cuda.asum(buffer, dtype=kind, stream=stream)
    assert asum == pytest.approx(math.fsum(np.abs(exact)), rel=close)
    sumsq = cuda.sumsq(buffer, dtype=kind, stream=stream)
    assert sumsq == pytest.approx(math.fsum(exact * exact), rel=close)
    ones = on_device(cuda, np.full(count, -1, kind))
    assert cuda.asum(ones, dtype=kind, stream=stream) == count


def test_it_is_work_of_its_stream(cuda: Any) -> None:
    ones = np.ones(64, np.float32)
    host = cuda.alloc_host(ones.nbytes).array
    host[:] = ones.view(np.uint8)
    buffer = cuda.alloc_device(ones.nbytes)
    with cuda.make_stream() as stream:
        with hold(stream):
            cuda.copy_to_device(buffer, host, stream=stream)
            cuda.scale(buffer, alpha=3.0, dtype=np.float32, stream=stream)
            assert not stream.record().done()
        assert cuda.asum(buffer, dtype=np.float32, stream=stream) == 192
