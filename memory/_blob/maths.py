"""The arithmetic of blobs, on the side where the newest bytes are.

Caffe computes on the host if the head is at HEAD_AT_CPU, on the device if it is at HEAD_AT_GPU or
SYNCED, and takes what was never touched for zeros without allocating it. So does this. It computes
on float32 and float64, as Caffe and every device here do; other dtypes are for storage.

On the device the work is given to the calling thread's current stream. Sums wait for their result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from memory._device.checks import FLOATS
from memory._errors import DtypeError, HeadError
from memory._synced.head_transitions import Head
from memory._synced.views import typed_view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory._device.device import DeviceBuffer
    from memory._synced.memory import SyncedMemory

# Sums go through the values in pieces that fit into the cache, in float64: as exact as a sum over a
# float64 copy of the whole, without the copy.
_PIECE: Final = 1 << 14


def check_computable(operation: str, dtype: np.dtype[Any]) -> None:
    """Refuse a dtype that is for storage only.

    Raises:
        DtypeError: It is neither float32 nor float64.
    """
    if dtype not in FLOATS:
        raise DtypeError(operation, dtype=dtype.name, valid=tuple(kind.name for kind in FLOATS))


def subtract(data: SyncedMemory, diff: SyncedMemory, *, dtype: np.dtype[Any], count: int) -> None:
    """Compute data = data - diff.

    Args:
        data: Changed in place, on the side where its newest bytes are.
        diff: May be elsewhere; it is brought there.
        dtype: Of both.
        count: Elements from the start of both.

    Raises:
        HeadError: ``data`` was never touched; there is nothing to update.
    """
    if data.head is Head.UNINITIALIZED:
        raise HeadError(
            "update",
            expected="HEAD_AT_CPU, HEAD_AT_GPU or SYNCED",
            found=data.head.name,
            cure="fill the data first",
        )
    if _is_on_device(data):
        x = _values_on_device(diff.gpu_data(), dtype, count)
        y = _values_on_device(data.mutable_gpu_data(), dtype, count)
        data.device.axpy(y, x, alpha=-1.0, dtype=dtype, stream=data.device.current_stream())
    else:
        there = typed_view(diff.cpu_data(), dtype, (count,))
        here = typed_view(data.mutable_cpu_data(), dtype, (count,))
        with np.errstate(all="ignore"):
            np.subtract(here, there, out=here)


def add_up(
    what: Literal["asum", "sumsq"],
    memory: SyncedMemory | None,
    *,
    dtype: np.dtype[Any],
    count: int,
) -> float:
    """Return the sum of absolute values, or of squares, of the first ``count`` elements."""
    if memory is None or memory.head is Head.UNINITIALIZED:
        return 0.0
    if _is_on_device(memory):
        x = _values_on_device(memory.gpu_data(), dtype, count)
        add_up_there = getattr(memory.device, what)
        return float(add_up_there(x, dtype=dtype, stream=memory.device.current_stream()))
    values = typed_view(memory.cpu_data(), dtype, (count,))
    term = np.abs if what == "asum" else np.square
    with np.errstate(all="ignore"):
        return sum(float(term(piece, dtype=np.float64).sum()) for piece in _pieces(values))


def scale(memory: SyncedMemory | None, factor: float, *, dtype: np.dtype[Any], count: int) -> None:
    """Multiply the first ``count`` elements by a factor, which is rounded to their dtype first."""
    if memory is None or memory.head is Head.UNINITIALIZED:
        return
    with np.errstate(all="ignore"):
        alpha = dtype.type(factor)
    if _is_on_device(memory):
        x = _values_on_device(memory.mutable_gpu_data(), dtype, count)
        stream = memory.device.current_stream()
        memory.device.scale(x, alpha=float(alpha), dtype=dtype, stream=stream)
    else:
        values = typed_view(memory.mutable_cpu_data(), dtype, (count,))
        with np.errstate(all="ignore"):
            np.multiply(values, alpha, out=values)


def _is_on_device(memory: SyncedMemory) -> bool:
    return memory.head in {Head.HEAD_AT_GPU, Head.SYNCED}


def _values_on_device(buffer: DeviceBuffer, dtype: np.dtype[Any], count: int) -> DeviceBuffer:
    return buffer.slice(0, count * dtype.itemsize)


def _pieces(values: NDArray[Any]) -> list[NDArray[Any]]:
    return [values[start : start + _PIECE] for start in range(0, values.size, _PIECE)]
