"""Check the CUDA device on the machine at hand: right bytes first, then what it costs.

One command for a machine with a GPU, with CuPy and, for two of the checks, PyTorch; no network:

    python scripts/gpu_check.py --json gpu_check.json

Every check prints a line. A wrong byte or a failed test makes the exit status 1; a check that
cannot run here says why. On the fake device of tests/fakecuda (``python -m fakecuda``), and with
``--device simulated``, the checks of bytes run, and no number of any speed is printed: it would
mean nothing there.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lmdb
import numpy as np

import prefetch
from memory import DeviceUnavailableError, open_device
from prefetch.caffe import Datum
from prefetch.testing import encode_image, fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

ROOT: Final = Path(__file__).resolve().parent.parent
SHAPE: Final = (3, 256, 256)
BATCH: Final = 64
RECORDS: Final = 512
IMAGE_BYTES: Final = int(np.prod(SHAPE))


class NotHereError(Exception):
    """The check cannot run on this machine; says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check has found.

    Attributes:
        check: Its name.
        verdict: ``right``, ``wrong``, ``measured`` or ``not run``.
        text: What was found, for people.
        numbers: What was measured; units are in the names.
    """

    check: str
    verdict: str
    text: str
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bench:
    """What all checks work with.

    Attributes:
        device: The CUDA device.
        source: A database of fingerprinted images.
        on_fake: Whether the device is the fake or the simulated one.
        batches: Batches of the hunt for torn ones.
        epochs: Epochs of the check of memory.
    """

    device: Any
    source: Path
    on_fake: bool
    batches: int
    epochs: int

    def open(self, **options: Any) -> prefetch.Feed:
        """Open an endless feed of uint8 batches on the device."""
        chosen = {
            "source": self.source,
            "batch_size": BATCH,
            "prefetch": 4,
            "last_batch": "wrap",
            "transform": {"dtype": "uint8"},
            **options,
        }
        return prefetch.open(chosen, device=self.device)

    def on_gpu_only(self) -> None:
        """Raise NotHereError on a fake device."""
        if self.on_fake:
            raise NotHereError("a fake device has no speed")


def check_tests(bench: Bench) -> Outcome:
    """Run the tests that run on any CUDA device."""
    if bench.on_fake:
        raise NotHereError("make test and make test-fakecuda run them there")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "tests/gpu",
            "tests/memory",
            "tests/consumers",
        ],
        cwd=ROOT,
        env={**os.environ, "RINGFEED_TEST_CUDA": "gpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr.strip()[-200:]]
    return Outcome("tests", "wrong" if done.returncode else "right", last[0])


def check_torn(bench: Bench) -> Outcome:
    """Hunt for torn batches with a consumer whose stream is always behind."""
    device = bench.device
    wrong = 0
    waiting: list[tuple[int, NDArray[np.uint8], NDArray[np.uint8], Any]] = []

    def settle(keep: int) -> int:
        found = 0
        while len(waiting) > keep:
            number, data, labels, event = waiting.pop(0)
            event.synchronize()
            records = (number * BATCH + np.arange(BATCH)) % RECORDS
            pixels = (records % 251).astype(np.uint8)
            right = (data.reshape(BATCH, -1) == pixels[:, None]).all()
            found += int(not (right and (labels.view(np.int64) == records).all()))
        return found

    ballast = [device.alloc_device(16 << 20) for _ in range(2)]
    hosts = [
        (device.alloc_host(BATCH * IMAGE_BYTES).array, device.alloc_host(BATCH * 8).array)
        for _ in range(3)
    ]
    with (
        bench.open(prefetch=2, threads=8) as feed,
        device.make_stream("slow") as stream,
        device.use_stream(stream),
    ):
        for number, batch in enumerate(feed):
            if number == bench.batches:
                break
            for _ in range(0 if bench.on_fake else 8):  # what makes it slow
                device.copy_on_device(ballast[0], ballast[1], stream=stream)
            data, labels = hosts[number % len(hosts)]
            wrong += settle(len(hosts) - 1)
            device.copy_to_host(data, batch.data.gpu_data(), stream=stream)
            device.copy_to_host(labels, batch.label.gpu_data(), stream=stream)
            waiting.append((number, data, labels, stream.record()))
            del batch
        wrong += settle(0)
    return Outcome(
        "torn batches",
        "wrong" if wrong else "right",
        f"{wrong} of {bench.batches} batches were torn",
        {"batches": bench.batches, "torn": wrong},
    )


def check_held(bench: Bench) -> Outcome:
    """Hold the consumer's stream until the ring is full, and look at what it reads then."""
    from memory.testing import hold  # noqa: PLC0415 - of this check alone

    device, read = bench.device, []
    with (
        bench.open(prefetch=2, threads=2) as feed,
        device.make_stream("held") as stream,
        device.use_stream(stream),
    ):
        batches = iter(feed)
        with hold(stream):
            for _ in range(3):
                batch = next(batches)
                host = device.alloc_host(batch.data.nbytes).array
                device.copy_to_host(host, batch.data.gpu_data(), stream=stream)
                read.append(host)
                del batch
        stream.synchronize()
    right = all(
        (host.reshape(BATCH, -1) == (np.arange(BATCH) + number * BATCH)[:, None] % 251).all()
        for number, host in enumerate(read)
    )
    return Outcome("held stream", "right" if right else "wrong", f"{len(read)} batches read late")


def check_memory(bench: Bench) -> Outcome:
    """See that neither side's memory outgrows the ring over the epochs."""
    device = bench.device

    def taken() -> tuple[int, int]:
        info = device.memory_info()
        return info.allocated_bytes, info.host_allocated_bytes

    before = taken()
    with bench.open(last_batch="drop", epochs=bench.epochs) as feed:
        most = before
        for _ in range(bench.epochs):
            for batch in feed:
                del batch
            most = max(most[0], taken()[0]), max(most[1], taken()[1])
        stats = feed.stats()
    on_device, on_host = most[0] - before[0], most[1] - before[1]
    flat = on_device <= (stats.ring_device_bytes or 0) and on_host <= (stats.ring_host_bytes or 0)
    return Outcome(
        "memory",
        "right" if flat else "wrong",
        f"at most {on_device} bytes on the device and {on_host} on the host in {bench.epochs} "
        f"epochs; the ring is {stats.ring_device_bytes} and {stats.ring_host_bytes}",
        {"most_device_bytes": on_device, "most_host_bytes": on_host, "epochs": bench.epochs},
    )


def check_bandwidth(bench: Bench) -> Outcome:
    """Compare the feed's rate to the device with bare copies of the same sizes."""
    bench.on_gpu_only()
    import cupy  # noqa: PLC0415 - of the checks on a GPU alone

    device, runtime = bench.device, cupy.cuda.runtime
    nbytes = BATCH * IMAGE_BYTES
    host, there = device.alloc_host(nbytes).array, device.alloc_device(nbytes)
    with device.make_stream("bare") as stream:

        def bare(count: int) -> None:
            for _ in range(count):
                runtime.memcpyAsync(
                    there.ptr, host.ctypes.data, nbytes, runtime.memcpyHostToDevice, stream.handle
                )
            stream.synchronize()

        bare_s = _seconds_each(bare, 200)
    with bench.open() as feed:
        batches = iter(feed)

        def fed(count: int) -> None:
            for _ in range(count):
                batch = next(batches)
                batch.data.gpu_data()
                del batch
            device.current_stream().synchronize()

        fed_s = _seconds_each(fed, 200)
    return Outcome(
        "bandwidth",
        "measured",
        f"feed {nbytes / fed_s / 1e9:.2f} GB/s, bare copies {nbytes / bare_s / 1e9:.2f} GB/s, "
        f"ratio {bare_s / fed_s:.3f}",
        {
            "feed_bytes_per_s": nbytes / fed_s,
            "bare_bytes_per_s": nbytes / bare_s,
            "ratio": bare_s / fed_s,
        },
    )


def check_step_time(bench: Bench) -> Outcome:
    """Compare a compute-bound step on the feed's batches with the same on resident data."""
    bench.on_gpu_only()
    torch = _torch()
    device = bench.device
    # Divided so that the products stay finite.
    weights = torch.randn(4096, 4096, device=f"cuda:{device.ordinal}") / 64

    def step(data: Any) -> None:
        hidden = weights
        for _ in range(12):
            hidden = hidden @ weights
        hidden[:1, :1] += data.reshape(BATCH, -1)[:1, :1].float()

    resident = torch.zeros((BATCH, *SHAPE), dtype=torch.uint8, device=weights.device)

    def without(count: int) -> None:
        for _ in range(count):
            step(resident)
        torch.cuda.synchronize()

    alone_s = _seconds_each(without, 100)
    with bench.open() as feed:
        feed.to_stream(torch.cuda.current_stream())
        batches = iter(feed)

        def fed(count: int) -> None:
            for _ in range(count):
                batch = next(batches)
                step(torch.from_dlpack(batch.data))
                del batch
            torch.cuda.synchronize()

        fed_s = _seconds_each(fed, 100)
    return Outcome(
        "step time",
        "measured",
        f"{fed_s * 1e3:.3f} ms with the feed, {alone_s * 1e3:.3f} ms on resident data, "
        f"ratio {fed_s / alone_s:.4f}",
        {"feed_s": fed_s, "resident_s": alone_s, "ratio": fed_s / alone_s},
    )


class Datums:
    """The records of a database one by one, as a data set for PyTorch's DataLoader.

    Args:
        source: Folder of the LMDB.
    """

    def __init__(self, source: Path) -> None:
        self._source = source
        self._transaction: lmdb.Transaction | None = None

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, record: int) -> tuple[NDArray[np.uint8], int]:
        """Return a record's pixels, uint8 of SHAPE, and its label."""
        if self._transaction is None:  # in the worker: an LMDB must not be taken across a fork
            environment = lmdb.open(str(self._source), readonly=True, lock=False)
            self._transaction = environment.begin(buffers=True)
        value = self._transaction.get(b"%08d" % record)
        assert value is not None
        datum = Datum.FromString(bytes(value))
        return np.frombuffer(datum.data, np.uint8).reshape(SHAPE).copy(), datum.label


def check_torch_loader(bench: Bench) -> Outcome:
    """Compare the feed with PyTorch's DataLoader, pinned and non-blocking, on the same database."""
    bench.on_gpu_only()
    torch = _torch()
    there = f"cuda:{bench.device.ordinal}"
    loader = torch.utils.data.DataLoader(
        Datums(bench.source),
        batch_size=BATCH,
        num_workers=min(8, os.cpu_count() or 1),
        pin_memory=True,
        persistent_workers=True,
    )

    def endless() -> Iterator[Any]:
        while True:
            for data, labels in loader:
                yield data.to(there, non_blocking=True), labels.to(there, non_blocking=True)

    theirs = endless()

    def load(count: int) -> None:
        for _ in range(count):
            next(theirs)
        torch.cuda.synchronize()

    loader_s = _seconds_each(load, 50)
    with bench.open() as feed:
        feed.to_stream(torch.cuda.current_stream())
        ours = iter(feed)

        def take(count: int) -> None:
            for _ in range(count):
                batch = next(ours)
                torch.from_dlpack(batch.data)
                torch.from_dlpack(batch.label)
                del batch
            torch.cuda.synchronize()

        feed_s = _seconds_each(take, 100)
    return Outcome(
        "torch DataLoader",
        "measured",
        f"feed {BATCH / feed_s:.0f} images/s, DataLoader {BATCH / loader_s:.0f} images/s",
        {"feed_images_per_s": BATCH / feed_s, "loader_images_per_s": BATCH / loader_s},
    )


WHOLE: Final[dict[str, Any]] = {"scale": 1 / 255, "mean_value": (104.0, 117.0, 123.0)}


def _transforms() -> dict[str, dict[str, Any]]:
    """Return transformations to compare, by their names; crops are 227 and 200 of 256."""
    return {
        "float32": WHOLE,
        "float32, crop and mirror": {
            "scale": (0.017, 0.018, 0.019),
            "mean_value": (104.0, 117.0, 123.0),
            "crop_size": SHAPE[1] * 227 // 256,
            "mirror": True,
        },
        "float16, crop, nhwc, rgb": {
            "dtype": "float16",
            "scale": 0.017,
            "crop_size": SHAPE[1] * 200 // 256,
            "layout": "nhwc",
            "channels": "rgb",
        },
    }


def check_transform(bench: Bench) -> Outcome:
    """Compare the transformation on the device with that on the host, in bytes and in speed."""
    wrong = []
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        noise = _write_noise(Path(folder) / "lmdb")
        for name, transform in _transforms().items():
            made = []
            for where in ("host", "device"):
                with _transforming(bench, transform, where, source=noise) as feed:
                    batches = itertools.islice(iter(feed), 4)
                    made.append([batch.data.numpy().tobytes() for batch in batches])
            if made[0] != made[1]:
                wrong.append(name)
    if wrong:
        return Outcome("device transform", "wrong", f"DIFFERENT BYTES: {'; '.join(wrong)}")
    same = f"the same bytes in {len(_transforms())} configurations"
    if bench.on_fake:
        return Outcome("device transform", "right", same)
    rates = {}
    for where in ("host", "device"):
        with _transforming(bench, WHOLE, where) as feed:
            endless = iter(feed)

            def run(count: int, batches: Iterator[Any] = endless) -> None:
                for _ in range(count):
                    next(batches).data.gpu_data()
                bench.device.current_stream().synchronize()

            rates[where] = BATCH / _seconds_each(run, 100)
    return Outcome(
        "device transform",
        "measured",
        f"{same}; host {rates['host']:.0f} images/s, device {rates['device']:.0f} images/s, "
        f"ratio {rates['device'] / rates['host']:.2f}",
        {
            **{f"{where}_images_per_s": rate for where, rate in rates.items()},
            "ratio": rates["device"] / rates["host"],
        },
    )


def _transforming(
    bench: Bench, transform: dict[str, Any], where: str, **options: Any
) -> prefetch.Feed:
    """Open a feed that transforms on one side."""
    try:
        return bench.open(transform={**transform, "where": where}, seed=1, **options)
    except prefetch.ConfigError as error:
        raise NotHereError(str(error)) from error


CHECKS: Final[dict[str, Callable[[Bench], Outcome]]] = {
    "tests": check_tests,
    "torn batches": check_torn,
    "held stream": check_held,
    "memory": check_memory,
    "bandwidth": check_bandwidth,
    "step time": check_step_time,
    "device transform": check_transform,
    "torch DataLoader": check_torch_loader,
}


def _write_noise(path: Path) -> Path:
    """Write a database in which every pixel taken from a wrong place shows."""
    rng = np.random.default_rng(1)
    images = (rng.integers(0, 256, SHAPE, np.uint8) for _ in range(2 * BATCH))
    return write_database(
        path,
        ((b"%08d" % i, encode_image(image, label=i)) for i, image in enumerate(images)),
    )


def _torch() -> Any:
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise NotHereError("PyTorch is not installed") from error
    if not torch.cuda.is_available():
        raise NotHereError("PyTorch sees no GPU")
    return torch


def _seconds_each(run: Callable[[int], None], count: int, *, rounds: int = 5) -> float:
    """Return the median time of one of ``count`` repetitions, in seconds."""
    run(max(1, count // 5))
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        run(count)
        times.append((time.perf_counter() - began) / count)
    return statistics.median(times)


@contextmanager
def _bench(arguments: argparse.Namespace) -> Iterator[Bench]:
    with (
        open_device(arguments.device) as device,
        tempfile.TemporaryDirectory(prefix="gpu-check-") as folder,
    ):
        on_fake = "fakecuda" in sys.modules or device.name == "simulated"
        source = write_database(Path(folder) / "lmdb", fingerprinted_images(RECORDS, SHAPE))
        yield Bench(
            device=device,
            source=source,
            on_fake=on_fake,
            batches=arguments.batches or (200 if on_fake else 5000),
            epochs=arguments.epochs or (3 if on_fake else 50),
        )


def _run(bench: Bench, names: list[str]) -> list[Outcome]:
    outcomes = []
    for name in names:
        try:
            outcome = CHECKS[name](bench)
        except NotHereError as reason:
            outcome = Outcome(name, "not run", str(reason))
        except Exception as error:  # noqa: BLE001 - the other checks are worth running all the same
            outcome = Outcome(name, "wrong", f"{type(error).__name__}: {error}")
        outcomes.append(outcome)
        print(f"{outcome.check:<18} {outcome.verdict:<9} {outcome.text}", flush=True)
    return outcomes


def main() -> int:
    """Run the checks; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda:0", help="which GPU (default: cuda:0)")
    parser.add_argument("--json", type=Path, help="write what was found there as well")
    parser.add_argument("--only", action="append", choices=list(CHECKS), help="this check alone")
    parser.add_argument("--batches", type=int, help="batches of the hunt for torn ones")
    parser.add_argument("--epochs", type=int, help="epochs of the check of memory")
    arguments = parser.parse_args()
    try:
        with _bench(arguments) as bench:
            where = "fake device" if bench.on_fake else "GPU"
            description = _describe(bench.device)
            print(f"{where}: {description}")
            outcomes = _run(bench, arguments.only or list(CHECKS))
    except DeviceUnavailableError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.json is not None:
        found = {
            "device": where,
            "description": description,
            "checks": [dataclasses.asdict(outcome) for outcome in outcomes],
        }
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return int(any(outcome.verdict == "wrong" for outcome in outcomes))


def _describe(device: Any) -> str:
    python = f"Python {sys.version.split()[0]}"
    if device.name == "simulated":
        return f"simulated, {python}"
    import cupy  # noqa: PLC0415 - after the device was found

    runtime = cupy.cuda.runtime
    name = runtime.getDeviceProperties(device.ordinal)["name"].decode()
    driver = runtime.driverGetVersion()
    return f"{name}, driver for CUDA {driver}, CuPy {cupy.__version__}, {python}"


if __name__ == "__main__":
    sys.exit(main())
