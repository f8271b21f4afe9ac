"""Stand-ins for PyTorch, JAX and DALI, as far as gpu_check.py uses them, on streams of CuPy's."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import cupy
import numpy as np

from gpu_checks.bench import BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpu_checks.bench import Bench

runtime = cupy.cuda.runtime


class OnHost:
    """A tensor of the loader's."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def to(self, device: str, *, non_blocking: bool) -> Any:
        assert (device, non_blocking) == ("cuda:0", True)
        return cupy.asarray(self.values)


class Loader:
    """PyTorch's, without its processes."""

    def __init__(self, data: Any, **options: Any) -> None:
        assert options["pin_memory"]
        assert options["batch_size"] == BATCH
        self.data = data

    def __iter__(self) -> Iterator[tuple[OnHost, OnHost]]:
        for start in range(0, len(self.data), BATCH):
            data, labels = zip(*(self.data[start + i] for i in range(BATCH)), strict=True)
            yield OnHost(np.stack(data)), OnHost(labels)


def torch_on_cupy() -> MagicMock:
    """What the checks of speed use of PyTorch; tensors do nothing."""
    stream = cupy.cuda.Stream(non_blocking=True)
    theirs = SimpleNamespace(cuda_stream=stream.ptr, device_index=0, kept=stream)

    def from_dlpack(blob: Any) -> MagicMock:
        blob.__dlpack__(stream=theirs.cuda_stream, max_version=(1, 0))
        return MagicMock()

    torch = MagicMock()
    torch.cuda.current_stream.return_value = theirs
    torch.cuda.synchronize = stream.synchronize
    torch.from_dlpack = from_dlpack
    torch.utils.data.DataLoader = Loader
    return torch


class Tensor:
    """A tensor whose values are computed when they are asked for, as a graph's are."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self.compute = compute

    def copy_(self, other: Tensor) -> None:
        values = other.compute()
        self.compute = lambda: values

    def flatten(self) -> Tensor:
        return Tensor(lambda: self.compute().ravel())

    def __add__(self, other: int) -> Tensor:
        return Tensor(lambda: self.compute() + np.uint8(other))

    def __sub__(self, other: int) -> Tensor:
        return self + (256 - other)

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> Any:
        return self.compute()


def torch_with_graphs(spoil: Callable[[], object] = lambda: None) -> MagicMock:
    """What the check of PyTorch's graphs uses of it.

    Args:
        spoil: Is called while a graph is captured.
    """
    torch = torch_on_cupy()
    theirs = torch.cuda.current_stream()

    def from_dlpack(blob: Any) -> Tensor:
        values = read(blob, theirs.kept)
        return Tensor(lambda: values)

    @contextmanager
    def graph(_: Any) -> Iterator[None]:
        stream = cupy.cuda.Stream(non_blocking=True)
        runtime.streamBeginCapture(stream.ptr, runtime.streamCaptureModeGlobal)
        yield
        spoil()
        try:
            runtime.graphDestroy(runtime.streamEndCapture(stream.ptr))
        except runtime.CUDARuntimeError as error:
            raise RuntimeError(str(error)) from error

    torch.zeros = lambda size, **_: Tensor(lambda: np.zeros(size, np.uint8))
    torch.from_dlpack = from_dlpack
    torch.cuda.graph = graph
    return torch


def jax_on_cupy() -> SimpleNamespace:
    """What the check of JAX uses of it."""
    stream = cupy.cuda.Stream(non_blocking=True)
    return SimpleNamespace(
        default_backend=lambda: "gpu",
        jit=lambda function: function,
        numpy=np,
        dlpack=SimpleNamespace(from_dlpack=lambda blob: read(blob, stream)),
    )


def dali_on_cupy(bench: Bench) -> MagicMock:
    """What the check of DALI uses of it; its pipeline reads nothing."""
    dali = MagicMock()

    def pipeline_def(graph: Callable[..., Any]) -> Callable[..., Any]:
        def make(*arguments: Any, **options: Any) -> Any:
            assert (options["batch_size"], options["device_id"]) == (BATCH, 0)
            graph(*arguments)
            (reader,) = dali.fn.readers.caffe.call_args_list
            assert reader.kwargs["path"] == str(bench.source)
            return dali.pipeline

        return make

    dali.fn.readers.caffe.return_value = MagicMock(), MagicMock()
    dali.pipeline_def = pipeline_def
    return dali


def read(blob: Any, stream: Any) -> Any:
    """Return a copy of a blob, made on a stream."""
    capsule = blob.__dlpack__(stream=stream.ptr, max_version=(1, 0))
    assert capsule is not None
    out = np.empty(blob.shape, blob.dtype)
    runtime.memcpyAsync(
        *(out.ctypes.data, blob.gpu_data().ptr, out.nbytes),
        *(runtime.memcpyDeviceToHost, stream.ptr),
    )
    stream.synchronize()
    return out
