"""The kernels behind a GPU's maths: their source, and how they are launched.

They are the project's own and not CuPy's, so that their roundings are those of every other device
and their source is known: it uses CUDA's built-ins only, by their plain names, and the tests
compile it as C++ and run it on the host.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from memory._cuda.kernel import CudaKernel, explain_failures, load, queue
from memory._cuda.owner import CudaOwner
from memory._cuda.runtime import cupy
from memory._device.checks import check_equal_sizes, check_floats

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from memory._cuda.stream_state import StreamState
    from memory._device.device import DeviceBuffer, Kernel, Stream

_BLOCK: Final = 256
_MOST_BLOCKS: Final = 65535  # beyond that each thread does several elements
# Terms that a thread adds up. Few, so that sums of sums stay as exact as a tree's.
_TERMS_A_THREAD: Final = 32

SOURCE: Final = r"""
#define THREAD ((unsigned long long)blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS ((unsigned long long)gridDim.x * blockDim.x)

/* In PTX's words, since CuPy has NVRTC flush subnormals (-ftz=true), __fadd_rn's too. Neither these
 * nor __dmul_rn and its like are contracted into a fused multiply-add. */
#ifndef RINGFEED_ON_HOST
__device__ __forceinline__ float add(float a, float b)
{
    float sum;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
    return sum;
}

__device__ __forceinline__ float multiply(float a, float b)
{
    float product;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
    return product;
}

__device__ __forceinline__ float magnitude(float a)
{
    return __uint_as_float(__float_as_uint(a) & 0x7fffffffu);
}
#endif

__device__ __forceinline__ double add(double a, double b)
{
    return __dadd_rn(a, b);
}

__device__ __forceinline__ double multiply(double a, double b)
{
    return __dmul_rn(a, b);
}

__device__ __forceinline__ double magnitude(double a)
{
    return a < 0 ? -a : a;
}

enum { ITSELF, ABSOLUTE, SQUARE };

/* Thread t of num writes to[t], the sum of the terms of from[t], from[t + num], from[t + 2 num] and
 * so on: neighbours read neighbours. */
template <int TERM, typename Element>
__device__ __forceinline__ void sum(const Element *from, Element *to, unsigned long long count,
                                    unsigned long long num)
{
    for (unsigned long long thread = THREAD; thread < num; thread += THREADS) {
        Element total = 0;
        for (unsigned long long at = thread; at < count; at += num) {
            Element term = from[at];
            if (TERM == ABSOLUTE)
                term = magnitude(term);
            else if (TERM == SQUARE)
                term = multiply(term, term);
            total = add(total, term);
        }
        to[thread] = total;
    }
}

#define KERNELS(Element)                                                                           \
    extern "C" __global__ void ringfeed_axpy_##Element(Element *y, const Element *x,               \
                                                       Element alpha, unsigned long long count)    \
    {                                                                                              \
        for (unsigned long long at = THREAD; at < count; at += THREADS)                            \
            y[at] = add(multiply(alpha, x[at]), y[at]);                                            \
    }                                                                                              \
    extern "C" __global__ void ringfeed_scale_##Element(Element *x, Element alpha,                 \
                                                        unsigned long long count)                  \
    {                                                                                              \
        for (unsigned long long at = THREAD; at < count; at += THREADS)                            \
            x[at] = multiply(alpha, x[at]);                                                        \
    }                                                                                              \
    extern "C" __global__ void ringfeed_sum_##Element(                                             \
        const Element *from, Element *to, unsigned long long count, unsigned long long num)        \
    {                                                                                              \
        sum<ITSELF>(from, to, count, num);                                                         \
    }                                                                                              \
    extern "C" __global__ void ringfeed_asum_##Element(                                            \
        const Element *from, Element *to, unsigned long long count, unsigned long long num)        \
    {                                                                                              \
        sum<ABSOLUTE>(from, to, count, num);                                                       \
    }                                                                                              \
    extern "C" __global__ void ringfeed_sumsq_##Element(                                           \
        const Element *from, Element *to, unsigned long long count, unsigned long long num)        \
    {                                                                                              \
        sum<SQUARE>(from, to, count, num);                                                         \
    }

KERNELS(float)
KERNELS(double)
"""
"""CUDA C++ of the kernels, one of each operation for either type."""

OPERATIONS: Final = ("axpy", "scale", "sum", "asum", "sumsq")
_TYPES: Final[dict[np.dtype[Any], str]] = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
}


def kernel_names() -> tuple[str, ...]:
    """Return the names of all kernels in `SOURCE`."""
    return tuple(_name(what, kind) for kind in _TYPES for what in OPERATIONS)


class CudaMaths(CudaOwner):
    """The part of a device that runs kernels; they need NVRTC."""

    def axpy(
        self, y: DeviceBuffer, x: DeviceBuffer, *, alpha: float, dtype: DTypeLike, stream: Stream
    ) -> None:
        """Queue y = alpha * x + y, with two roundings; see ``Device.axpy``."""
        self.check_buffer("y", y)
        self.check_buffer("x", x)
        kind = check_floats("axpy", dtype, y)
        check_equal_sizes("x", x, other=y)
        count = y.nbytes // kind.itemsize
        arguments = (np.uint64(y.ptr), np.uint64(x.ptr), kind.type(alpha), np.uint64(count))
        self._launch("axpy", kind, count, arguments, y, x, stream=stream)

    def scale(self, x: DeviceBuffer, *, alpha: float, dtype: DTypeLike, stream: Stream) -> None:
        """Queue x = alpha * x; see ``Device.scale``."""
        self.check_buffer("x", x)
        kind = check_floats("scale", dtype, x)
        count = x.nbytes // kind.itemsize
        arguments = (np.uint64(x.ptr), kind.type(alpha), np.uint64(count))
        self._launch("scale", kind, count, arguments, x, stream=stream)

    def asum(self, x: DeviceBuffer, *, dtype: DTypeLike, stream: Stream) -> float:
        """Return the sum of absolute values; see ``Device.asum``."""
        return self._reduce("asum", x, dtype, stream)

    def sumsq(self, x: DeviceBuffer, *, dtype: DTypeLike, stream: Stream) -> float:
        """Return the sum of squares; see ``Device.sumsq``."""
        return self._reduce("sumsq", x, dtype, stream)

    def compile(self, source: str, name: str) -> Kernel:
        """Compile a kernel with NVRTC; see ``Device.compile``.

        Raises:
            NotImplementedDeviceError: If NVRTC is not installed.
            DeviceError: If the source does not compile.
        """
        self._check_open("compile")
        return CudaKernel(self, source, name)

    def _launch(
        self,
        operation: str,
        kind: np.dtype[Any],
        count: int,
        arguments: tuple[Any, ...],
        *buffers: DeviceBuffer,
        stream: Stream,
    ) -> None:
        state = self._state(stream, operation)
        _prepare(state, operation, kind, count)
        queue(state, operation, lambda: _launch(operation, kind, count, arguments), *buffers)

    def _reduce(self, operation: str, x: DeviceBuffer, dtype: DTypeLike, stream: Stream) -> float:
        self.check_buffer("x", x)
        kind = check_floats(operation, dtype, x)
        state = self._state(stream, operation)
        count = x.nbytes // kind.itemsize
        if count == 0:
            return 0.0
        for each in (operation, "sum"):
            _prepare(state, each, kind, count)
        sums: list[Any] = []
        queue(state, operation, lambda: sums.extend(_sums(operation, kind, x.ptr, count)), x)
        state.record(operation).synchronize()
        with state.context.call(operation), state.as_cupy():
            return float(sums[-1].get()[0])


def _sums(operation: str, kind: np.dtype[Any], ptr: int, count: int) -> list[Any]:
    """Add up in steps until one number is left; on CuPy's current stream.

    Returns:
        CuPy arrays, of which the last has that number; to be kept until all has run.
    """
    made: list[Any] = []
    while not made or count > 1:
        num = -(-count // _TERMS_A_THREAD)
        made.append(cupy.empty(num, kind))
        arguments = map(np.uint64, (ptr, made[-1].data.ptr, count, num))
        _launch("sum" if len(made) > 1 else operation, kind, num, tuple(arguments))
        ptr, count = made[-1].data.ptr, num
    return made


def _launch(operation: str, kind: np.dtype[Any], count: int, arguments: tuple[Any, ...]) -> None:
    blocks = min(-(-count // _BLOCK), _MOST_BLOCKS)
    _kernel(_name(operation, kind))((blocks,), (_BLOCK,), arguments)


def _prepare(state: StreamState, operation: str, kind: np.dtype[Any], count: int) -> None:
    """Compile and load a kernel before its first launch, without the lock of any stream."""
    name = _name(operation, kind)
    ready = state.context.kernels
    if count and name not in ready:
        with state.context.call(operation), explain_failures(state.context.name, operation):
            state.refuse_capture(operation)  # which compiling and loading would spoil
            load(_kernel(name))
        ready.add(name)


@functools.cache
def _kernel(name: str) -> Any:
    return cupy.RawKernel(SOURCE, name)  # compiles when it is first asked for, for each GPU


def _name(operation: str, kind: np.dtype[Any]) -> str:
    return f"ringfeed_{operation}_{_TYPES[kind]}"
