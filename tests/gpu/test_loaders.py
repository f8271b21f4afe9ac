"""The loaders for PyTorch and JAX on a GPU, as far as CuPy can stand in for their tensors."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import cupy
import pytest
from databases import images_fixture

import prefetch
from memory.testing import hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.fake_only  # there are two devices, and streams that can be held

source = images_fixture(60)


class Stream:
    """PyTorch's, of which there is another object with every question."""

    def __init__(self, stream: Any) -> None:
        self.kept = stream
        self.cuda_stream = stream.ptr

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.cuda_stream == other.cuda_stream

    __hash__ = None  # type: ignore[assignment]


class Library:
    """A library whose tensors are CuPy's arrays, on a current stream of its own."""

    def __init__(self) -> None:
        self.current = cupy.cuda.Stream(non_blocking=True)
        self.ordinal = 0
        self.has_cuda = True

    def from_dlpack(self, blob: Any) -> Any:
        with self.current:
            array = cupy.from_dlpack(blob)
        return SimpleNamespace(array=array, clone=lambda: self.copied(array))

    def copied(self, array: Any) -> Any:
        """Return a copy by the driver: there are no kernels on the fake device."""
        kind, stream = cupy.cuda.runtime.memcpyDeviceToDevice, self.current
        with stream:
            made = cupy.empty_like(array)
        cupy.cuda.runtime.memcpyAsync(made.data.ptr, array.data.ptr, array.nbytes, kind, stream.ptr)
        return SimpleNamespace(array=made)


@pytest.fixture
def library() -> Library:
    return Library()


def _modules(name: str, **attributes: Any) -> dict[str, ModuleType]:
    module = ModuleType(name)
    vars(module).update(attributes)
    return {name: module}


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Return a function that imports one of the loaders' modules with stand-ins for a library."""
    imported: list[str] = []

    def load(name: str, modules: dict[str, ModuleType]) -> Any:
        for library, module in modules.items():
            monkeypatch.setitem(sys.modules, library, module)
        monkeypatch.delitem(sys.modules, f"prefetch.{name}", raising=False)
        imported.append(name)
        return importlib.import_module(f"prefetch.{name}")

    yield load
    for name in imported:
        sys.modules.pop(f"prefetch.{name}")
        delattr(prefetch, name)


@pytest.fixture
def ringtorch(library: Library, replaced: Callable[..., Any]) -> Any:
    cuda = SimpleNamespace(
        is_available=lambda: library.has_cuda,
        current_device=lambda: library.ordinal,
        current_stream=lambda ordinal: Stream(library.current),  # noqa: ARG005 - theirs
    )
    data = SimpleNamespace(Dataset=int, DataLoader=float)
    utils = SimpleNamespace(data=data)
    return replaced(
        "torch", _modules("torch", cuda=cuda, utils=utils, from_dlpack=library.from_dlpack)
    )


def _options(source: Path, **more: Any) -> dict[str, Any]:
    return {"source": source, "batch_size": 4, "prefetch": 2, "threads": 1, **more}


def test_tensors_are_on_the_current_stream_however_often_it_is_another(
    source: Path, ringtorch: Any, library: Library
) -> None:
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    with ringtorch.DataLoader(_options(source)) as loader:
        found = []
        for number, (images, labels) in enumerate(loader):
            found.append((library.copied(images.array).array, labels.array))
            library.current = streams[number % 2]
            del images, labels
        cupy.cuda.Device(0).synchronize()
        assert loader.feed.device.name == "cuda:0"
    places = [place for images, _ in found for place in images.get()[:, 0, 0, 0].tolist()]
    labels = [label for _, numbers in found for label in numbers.get().tolist()]
    assert labels == list(range(60))
    assert places == labels


def test_memory_is_not_filled_again_while_the_current_stream_may_read_it(
    source: Path, ringtorch: Any, library: Library
) -> None:
    with ringtorch.DataLoader(_options(source), max_batches_held=3) as loader:
        batches = iter(loader)
        with hold(loader.feed.device.stream_from(library.current)):
            kept = [next(batches)[1] for _ in range(3)]
            stats = loader.feed.stats()
            assert (stats.slots_leased, stats.slots_draining, stats.slots) == (0, 3, 3)
        library.current.synchronize()
        assert [labels.array.get().tolist() for labels in kept] == [
            [0, 1, 2, 3],
            [4, 5, 6, 7],
            [8, 9, 10, 11],
        ]


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_device_that_nobody_chose_is_pytorchs_current_one(
    source: Path, ringtorch: Any, library: Library, device: str
) -> None:
    library.ordinal = 1
    with cupy.cuda.Device(1):
        library.current = cupy.cuda.Stream(non_blocking=True)
    with ringtorch.DataLoader(_options(source, device=device)) as loader:
        assert loader.feed.device.name == "cuda:1"
    with ringtorch.DataLoader(_options(source, device="cuda:0")) as loader:
        assert loader.feed.device.name == "cuda:0"


def test_where_pytorch_has_no_cuda_auto_is_the_cpu_and_a_gpu_is_refused(
    source: Path, ringtorch: Any, library: Library
) -> None:
    library.has_cuda = False
    with ringtorch.DataLoader(_options(source)) as loader:
        assert loader.feed.device.name == "cpu"
    with pytest.raises(prefetch.ConfigError, match="this PyTorch does not work"):
        ringtorch.DataLoader(_options(source, device="cuda"))
    with (
        prefetch.open(_options(source, device="cuda:0")) as feed,
        pytest.raises(prefetch.ConfigError, match="device: cpu"),
    ):
        ringtorch.DataLoader(feed)


class Array:
    """JAX's: there when its stream is, and deleted where a step was given it to donate."""

    def __init__(self, array: Any, library: Library) -> None:
        self.array = array
        self.library = library
        self.stream = library.current
        self.deleted = False

    def ravel(self) -> Array:
        return Array(self.array.ravel(), self.library)

    def __getitem__(self, place: Any) -> Array:
        return Array(self.library.copied(self.array[place]).array, self.library)

    def block_until_ready(self) -> None:
        if self.deleted:
            raise RuntimeError("Array has been deleted.")
        self.stream.synchronize()


def test_jax_gets_copies_that_it_may_donate_and_the_memory_waits_for_them(
    source: Path, library: Library, replaced: Callable[..., Any]
) -> None:
    def from_dlpack(blob: Any) -> Array:
        return Array(library.from_dlpack(blob).array, library)

    def copied(array: Array) -> Array:
        return Array(library.copied(array.array).array, library)

    device = SimpleNamespace(platform="gpu", local_hardware_id=0)
    dlpack = SimpleNamespace(from_dlpack=from_dlpack)
    numpy = _modules("jax.numpy", copy=copied)
    jax = _modules("jax", dlpack=dlpack, local_devices=lambda: [device], numpy=numpy["jax.numpy"])
    ringjax = replaced("jax", jax | numpy)
    found = []
    with ringjax.DataLoader(_options(source)) as loader:
        for images, labels in loader:
            found.append((images.array, labels.array))
            images.deleted = labels.deleted = True
        library.current.synchronize()
    assert [label for _, labels in found for label in labels.get().tolist()] == list(range(60))
    for images, labels in found:
        assert images.get()[:, 0, 0, 0].tolist() == labels.get().tolist()
