"""The guide to GPUs: its loops run, and its numbers are right.

PyTorch and JAX cannot use the fake device. Stand-ins for them take each batch as they would, by
DLPack and on a stream of their own; what they compute with it is nothing.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import cupy
import numpy as np
import pytest

import prefetch
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.fake_only

runtime = cupy.cuda.runtime

CHECKOUT = Path(__file__).resolve().parents[2]
GUIDE = CHECKOUT / "docs" / "guide" / "gpu.md"


@pytest.fixture
def run_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Run the example that imports a library; return its variables."""
    from make_digits import make_digits  # noqa: PLC0415 - needs scikit-learn, as no other test here

    shutil.copytree(CHECKOUT / "configs", tmp_path / "configs")
    make_digits(tmp_path / "data" / "digits_lmdb")
    monkeypatch.chdir(tmp_path)

    def run(library: str) -> dict[str, Any]:
        blocks = re.findall(r"^```py\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
        (block,) = (block for block in blocks if f"import {library}\n" in block)
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(block, str(GUIDE), "exec"), names)  # noqa: S102 - our own
        return names

    return run


class Taker:
    """Takes batches by DLPack, on a stream of its own, and looks at them later."""

    def __init__(self) -> None:
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.taken: list[Any] = []

    def from_dlpack(self, blob: Any) -> MagicMock:
        capsule = blob.__dlpack__(stream=self.stream.ptr, max_version=(1, 0))
        with self.stream:
            self.taken.append(np.empty(blob.shape, blob.dtype))
            array = cupy.from_dlpack(
                SimpleNamespace(
                    __dlpack__=lambda **_: capsule, __dlpack_device__=blob.__dlpack_device__
                )
            )
            array.get(stream=self.stream, out=self.taken[-1], blocking=True)
        return MagicMock()


@pytest.fixture
def expected(run_example: Any) -> tuple[Any, Any]:
    """All digits and labels, in order."""
    with prefetch.open("configs/digits.yaml", device="cpu", batch_size=100) as feed:
        batches = [(batch.data.numpy().copy(), batch.label.numpy().copy()) for batch in feed]
    data, labels = zip(*batches, strict=True)
    return np.concatenate(data), np.concatenate(labels)


def test_the_loop_with_cupy(run_example: Any, expected: Any) -> None:
    names = run_example("cupy")
    assert names["start"] == len(expected[0])
    assert (names["digits"].get() == expected[0]).all()
    assert (names["labels"] == expected[1]).all()


def test_the_loop_with_pytorch(
    run_example: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taker, torch = Taker(), MagicMock()
    theirs = SimpleNamespace(cuda_stream=taker.stream.ptr, device_index=0)
    torch.cuda.current_stream.return_value = theirs
    torch.from_dlpack = taker.from_dlpack
    monkeypatch.setitem(sys.modules, "torch", torch)
    run_example("torch")
    epoch = len(taker.taken) // 2
    assert (np.concatenate(taker.taken[:epoch:2]) == expected[0]).all()
    assert (np.concatenate(taker.taken[1:epoch:2]) == expected[1]).all()


def _dawdle(_: object) -> None:
    time.sleep(0.02)


class HiddenStream:
    """Takes batches as JAX does: names one stream by DLPack and computes, late, on another.

    It lets go of a batch as soon as its work is queued; the result tells when that has run.
    """

    def __init__(self) -> None:
        self._named = cupy.cuda.Stream(non_blocking=True)
        self._computes = cupy.cuda.Stream(non_blocking=True)
        self.read: list[Any] = []

    def from_dlpack(self, blob: Any) -> Any:
        capsule = blob.__dlpack__(stream=self._named.ptr, max_version=(1, 0))
        self._computes.wait_event(self._named.record())
        return SimpleNamespace(blob=blob, capsule=capsule)

    def step(self, images: Any) -> Any:
        blob, stream = images.blob, self._computes
        address = blob.__cuda_array_interface__["data"][0]
        pinned = cupy.cuda.alloc_pinned_memory(blob.nbytes)
        out = np.frombuffer(pinned, np.uint8, blob.nbytes).view(blob.dtype).reshape(blob.shape)
        runtime.launchHostFunc(stream.ptr, _dawdle, 0)
        to_host = runtime.memcpyDeviceToHost
        runtime.memcpyAsync(out.ctypes.data, address, blob.nbytes, to_host, stream.ptr)
        self.read.append(out)
        over = stream.record()
        return SimpleNamespace(block_until_ready=over.synchronize)

    def finish(self) -> None:
        self._computes.synchronize()


def test_the_loop_with_jax_which_computes_on_a_stream_that_it_does_not_name(
    run_example: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, jax = HiddenStream(), MagicMock()
    jax.dlpack.from_dlpack = library.from_dlpack
    jax.jit = lambda _: library.step
    monkeypatch.setitem(sys.modules, "jax", jax)
    run_example("jax")
    library.finish()
    assert (np.concatenate(library.read) == expected[0]).all()


@pytest.mark.parametrize(
    ("transform", "row"),
    [
        ({"where": "host", "crop_size": 227}, "float32, transformed by the host"),
        ({"where": "device", "crop_size": 227}, "float32, transformed by the device"),
        ({"dtype": "uint8", "crop_size": 227}, "uint8"),
    ],
)
def test_the_table_of_memory_is_right(
    tmp_path: Path, cuda: Any, transform: dict[str, Any], row: str
) -> None:
    source = write_database(tmp_path / "few", fingerprinted_images(256, (3, 256, 256)))
    options = {"source": source, "batch_size": 256, "transform": transform, "labels": False}
    with prefetch.open(options, device=cuda) as feed:
        stats = feed.stats()
    (line,) = (line for line in GUIDE.read_text().splitlines() if line.startswith(f"| {row}"))
    host, device = (
        sum(int(number) for number in re.findall(r"(\d+) MB", cell))
        for cell in line.split("|")[2:4]
    )
    assert stats.ring_host_bytes is not None
    assert stats.ring_device_bytes is not None
    assert round(stats.ring_host_bytes / 3e6) == host
    assert abs(stats.ring_device_bytes / 5e6 - device) < 1
