"""Measure the kernels alone: filling batches from records in memory, without a database or threads.

Each kind of work is done by the C kernels, by their NumPy twin, and by bare C loops (bare_loops.c,
built with -O3 -march=native) that neither parse nor check: memcpy of the same payloads, and the
same crop and normalisation. All of them take turns, round by round, so that a slow spell of the
machine falls on all; the figures are the CPU time of each one's fastest round, and mean something
as ratios of one run. Records are read from more memory than the caches hold, into four batches in
turn.

With --json the report is one object:

    format     1
    machine    {python, numpy, platform, cpus: cores that this process may use}
    works      list of {name, records, batch_size, payload_bytes, row_bytes, us: {kernel: CPU time
               a record in microseconds}, payload_gb_per_s: of the C kernels}; the kernels are c,
               numpy, memcpy, bare; those that do not apply, or cannot be built, are left out
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os
import platform
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bare_loops import load_bare_loops
from memory import bfloat16
from prefetch._files.output import write_whole
from prefetch._kernels import reference, selection
from prefetch._record.wire import encode_datum
from prefetch._transform.options import Transform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_MEAN = (104.0, 117.0, 123.0)
_UINT8 = np.dtype(np.uint8)
_FLOAT16 = np.dtype(np.float16)
_SLOTS = 4


@dataclass(frozen=True)
class Work:
    """A kind of records and what is done to them."""

    name: str
    shape: tuple[int, int, int]
    num_records: int
    batch_size: int
    transform: Transform


@dataclass(frozen=True)
class Measured:
    """What a record of a kind of work takes."""

    name: str
    records: int
    batch_size: int
    payload_bytes: int
    row_bytes: int
    us: dict[str, float]

    @property
    def payload_gb_per_s(self) -> float:
        """Payload that the C kernels get through, in 10**9 bytes a second."""
        return self.payload_bytes / self.us["c"] / 1000


def works() -> list[Work]:
    """Return the kinds of work: large and small records, all types and layouts."""
    crop: dict[str, Any] = {
        "train": True,
        "crop_size": 227,
        "mirror": True,
        "scale": (0.017,),
        "modulo": True,
    }
    means: dict[str, Any] = {**crop, "mean_value": _MEAN}
    mean_image = np.random.default_rng(0).random((3, 256, 256), np.float32) * 255
    large = (3, 256, 256)
    return [
        Work("uint8 3x256x256", large, 768, 64, Transform(train=True, dtype=_UINT8)),
        Work("float32 256->227 mean_value", large, 768, 64, Transform(**means)),
        Work(
            "float32 256->227 mean image", large, 768, 64, Transform(**crop, mean_image=mean_image)
        ),
        Work("float32 256->227 nhwc", large, 768, 64, Transform(**means, layout="nhwc")),
        Work("float16 256->227 mean_value", large, 768, 64, Transform(**means, dtype=_FLOAT16)),
        Work("bfloat16 256->227 mean_value", large, 768, 64, Transform(**means, dtype=bfloat16())),
        Work(
            "float32 3x32x32 crop 28",
            (3, 32, 32),
            25600,
            256,
            Transform(train=True, crop_size=28, scale=(1 / 256,), modulo=True),
        ),
        Work(
            "float32 1x28x28 scale",
            (1, 28, 28),
            51200,
            256,
            Transform(train=True, scale=(1 / 256,)),
        ),
    ]


class Bench:
    """Records in memory, batches to fill, and what fills them."""

    def __init__(self, work: Work, loops: ctypes.CDLL | None) -> None:
        self.work = work
        self._loops = loops
        rng = np.random.default_rng(1701)
        channels, height, width = work.shape
        self._size = channels * height * width
        records = [
            encode_datum(
                channels=channels, height=height, width=width, data=rng.bytes(self._size), label=1
            )
            for _ in range(work.num_records)
        ]
        joined = b"".join(records)
        self._block = np.frombuffer(joined, np.uint8)
        view = memoryview(joined)
        ends = np.cumsum([len(record) for record in records]).tolist()
        starts = [0, *ends[:-1]]
        values = [view[start:end] for start, end in zip(starts, ends, strict=True)]
        step = work.batch_size
        self._batches = [values[at : at + step] for at in range(0, len(values), step)]
        label_bytes = len(encode_datum(label=1))
        self._payloads = (
            self._block.ctypes.data + np.array(ends, np.uintp) - label_bytes - self._size
        )
        height, width = work.transform.recipe.window_size(height, width)
        is_last = work.transform.layout == "nhwc"
        self._sample = (height, width, channels) if is_last else (channels, height, width)
        dtype = work.transform.row_dtype
        self._slots = [np.zeros((step, *self._sample), dtype) for _ in range(_SLOTS)]
        self.row_bytes = self._slots[0][0].nbytes
        self._labels = np.zeros(step, np.int64)
        self._words = rng.integers(0, 2**32, (step, 3), dtype=np.uint32)

    def contestants(self) -> dict[str, Callable[[], None]]:
        """Return what fills all batches once, by name; the rows of the last batch are compared."""
        found: dict[str, Callable[[], None]] = {
            "c": lambda: self._fill(selection.choose("c")),
            "numpy": lambda: self._fill(reference),
        }
        if self._loops is None:
            return found
        transform = self.work.transform
        if self._size <= self.row_bytes:
            found["memcpy"] = self._copy
        if transform.mean_value and transform.layout == "nchw" and transform.dtype == np.float32:
            found["bare"] = self._crop
        return found

    def check(self) -> None:
        """Check that whoever does the whole work does it alike."""
        results: dict[str, bytes] = {}
        for name, run in self.contestants().items():
            if name != "memcpy":
                run()
                results[name] = self._slots[0].tobytes()
        if len(set(results.values())) != 1:
            raise AssertionError(f"{self.work.name}: {', '.join(results)} disagree")

    def _fill(self, kernels: Any) -> None:
        recipe = self.work.transform.recipe
        for number, values in enumerate(self._batches):
            slot = self._slots[number % _SLOTS]
            outcomes = kernels.fill(values, self._words, slot, self._labels, recipe)
            if outcomes:
                raise AssertionError(outcomes)

    def _copy(self) -> None:
        assert self._loops is not None
        for number, payloads in enumerate(self._payloads_by_batch()):
            self._loops.copy_payloads(
                _address(payloads),
                ctypes.c_size_t(len(payloads)),
                ctypes.c_size_t(self._size),
                _address(self._slots[number % _SLOTS]),
            )

    def _crop(self) -> None:
        assert self._loops is not None
        means = np.array(self.work.transform.mean_value, np.float32)
        sizes = [ctypes.c_size_t(size) for size in (*self.work.shape, self._sample[1])]
        for number, payloads in enumerate(self._payloads_by_batch()):
            self._loops.crop_and_normalise(
                _address(payloads),
                ctypes.c_size_t(len(payloads)),
                _address(self._words),
                *sizes,
                _address(means),
                ctypes.c_float(self.work.transform.scale[0]),
                _address(self._slots[number % _SLOTS]),
            )

    def _payloads_by_batch(self) -> Sequence[NDArray[np.uintp]]:
        return np.split(self._payloads, len(self._batches))


def _address(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def measure(bench: Bench, rounds: int) -> Measured:
    """Let all contestants take turns; return what a record takes in the fastest round of each."""
    bench.check()
    contestants = bench.contestants()
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, run in contestants.items():
            start = time.thread_time()
            run()
            best[name] = min(best[name], time.thread_time() - start)
    work = bench.work
    return Measured(
        name=work.name,
        records=work.num_records,
        batch_size=work.batch_size,
        payload_bytes=int(np.prod(work.shape)),
        row_bytes=bench.row_bytes,
        us={name: seconds / work.num_records * 1e6 for name, seconds in best.items()},
    )


def report(measured: Sequence[Measured]) -> dict[str, Any]:
    """Return the report as plain values."""
    return {
        "format": 1,
        "machine": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "platform": platform.platform(),
            "cpus": len(os.sched_getaffinity(0)),
        },
        "works": [
            {**dataclasses.asdict(one), "payload_gb_per_s": one.payload_gb_per_s}
            for one in measured
        ],
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Measure the kernels alone.")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each (default: 9)")
    parser.add_argument("--only", default="", help="kinds of work whose name holds this")
    parser.add_argument("--json", metavar="FILE", help="write the report there; - for stdout")
    options = parser.parse_args(arguments)
    chosen = [work for work in works() if options.only in work.name]
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        loops = load_bare_loops(Path(folder))
        for work in chosen:
            measured.append(measure(Bench(work, loops), options.rounds))
            us = measured[-1].us
            ratios = ", ".join(
                f"{us[name] / us['c']:.2f} x that of {name}" for name in us if name != "c"
            )
            print(
                f"{work.name}: {us['c']:.3f} us a record, "
                f"{measured[-1].payload_gb_per_s:.1f} GB/s of payload; the speed is {ratios}",
                file=sys.stderr,
            )
    if options.json:
        text = json.dumps(report(measured), indent=2)
        if options.json == "-":
            print(text)
        else:
            write_whole(Path(options.json), f"{text}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
