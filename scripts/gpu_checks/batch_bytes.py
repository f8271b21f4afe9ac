"""The checks of gpu_check.py that find wrong bytes, and memory that grows."""

from __future__ import annotations

import importlib.util
import itertools
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import prefetch
from gpu_checks.bench import BATCH, RECORDS, NotHereError, Outcome
from memory import DeviceBuffer
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpu_checks.bench import Bench
    from memory import Blob, Stream

_DEPTH: Final = 8  # batches that the slow stream may be behind


def check_torn(bench: Bench) -> Outcome:
    """Hunt for torn batches with a consumer whose stream is always behind."""
    device = bench.device
    ballast = [device.alloc_device(64 << 20 if not bench.on_fake else 64) for _ in range(2)]
    hosts = [
        (device.alloc_host(bench.batch_bytes).array, device.alloc_host(BATCH * 8).array)
        for _ in range(_DEPTH)
    ]
    waiting: list[tuple[int, NDArray[np.uint8], NDArray[np.uint8], Any]] = []
    wrong = behind = num = 0

    def settle(keep: int) -> int:
        found = 0
        while len(waiting) > keep:
            number, data, labels, event = waiting.pop(0)
            event.synchronize()
            found += not _is_whole(number, data, labels)
        return found

    with (
        bench.open(prefetch=2, threads=8) as feed,
        device.make_stream("slow") as stream,
        device.use_stream(stream),
    ):
        batches = iter(feed)
        copies = 0 if bench.on_fake else _copies_for_slowness(bench, batches, ballast, stream)
        start = next(batches).number + 1
        while num < bench.batches and time.monotonic() < bench.until:
            number, num = start + num, num + 1
            batch = next(batches)
            for _ in range(copies):  # what makes it slow
                device.copy_on_device(ballast[0], ballast[1], stream=stream)
            data, labels = hosts[number % _DEPTH]
            wrong += settle(_DEPTH - 1)
            _read_later(bench, data, batch.data, stream)
            _read_later(bench, labels, batch.label, stream)
            behind += bool(waiting) and not waiting[-1][3].done()
            waiting.append((number, data, labels, stream.record()))
            del batch
        wrong += settle(0)
    short = "" if num >= bench.batches else f", of {bench.batches} wanted: time was up"
    return Outcome(
        "torn batches",
        "wrong" if wrong else "right",
        f"{wrong} of {num} batches were torn{short}; the stream was behind at {behind} of them",
        {"batches": num, "torn": wrong, "behind": behind, "ballast_copies": copies},
    )


def _read_later(bench: Bench, host: NDArray[np.uint8], blob: Blob, stream: Stream) -> None:
    """Queue a read of a batch as a kernel reads it: by its address, which keeps nothing alive."""
    buffer = blob.gpu_data()
    bare = DeviceBuffer(buffer.ptr, buffer.nbytes, device=bench.device)
    bench.device.copy_to_host(host, bare, stream=stream)


def _is_whole(number: int, data: NDArray[np.uint8], labels: NDArray[np.uint8]) -> bool:
    records = (number * BATCH + np.arange(BATCH)) % RECORDS
    # Eight pixels at a time: the comparison must not be what holds up the loop.
    pixels = (records % 251).astype(np.uint64) * np.uint64(0x0101010101010101)
    whole = data.view(np.uint64).reshape(BATCH, -1) == pixels[:, None]
    return bool(whole.all() and (labels.view(np.int64) == records).all())


def _copies_for_slowness(bench: Bench, batches: Any, ballast: list[Any], stream: Any) -> int:
    """Return how many copies of the ballast take longer than the feed takes for a batch."""
    device = bench.device

    def copy(count: int) -> None:
        for _ in range(count):
            device.copy_on_device(ballast[0], ballast[1], stream=stream)
        stream.synchronize()

    def feed(count: int) -> None:
        for _ in range(count):
            next(batches)
        stream.synchronize()

    times = []
    for run in (copy, feed):
        run(20)
        began = time.perf_counter()
        run(50)
        times.append((time.perf_counter() - began) / 50)
    copy_s, batch_s = times
    return min(200, 1 + int(1.5 * batch_s / copy_s))


def check_held(bench: Bench) -> Outcome:
    """Hold the consumer's stream until the ring is full, and look at what it reads then."""
    from memory.testing import hold  # noqa: PLC0415 - of this check alone

    device, read = bench.device, []
    hosts = [device.alloc_host(bench.batch_bytes).array for _ in range(3)]
    with (
        bench.open(prefetch=2, threads=2) as feed,
        device.make_stream("held") as stream,
        device.use_stream(stream),
    ):
        batches = iter(feed)
        for _ in range(8):  # the ring has its memory then: allocating may wait for the GPU
            next(batches)
        # Whatever waits for the stream has to be done with it before it is held.
        while (stats := feed.stats()).slots_leased or stats.slots_draining:
            stream.synchronize()
            if time.monotonic() > bench.until:
                raise TimeoutError("the ring does not come to rest")
        with hold(stream):
            for host in hosts:
                batch = next(batches)
                _read_later(bench, host, batch.data, stream)
                read.append((batch.indices, host))
                del batch
        stream.synchronize()
    right = all(
        records[0] == number * BATCH % RECORDS
        and (host.reshape(BATCH, -1) == records[:, None] % 251).all()
        for number, (records, host) in enumerate(read, start=8)
    )
    return Outcome("held stream", "right" if right else "wrong", f"{len(read)} batches read late")


def check_memory(bench: Bench) -> Outcome:
    """See that neither side's memory outgrows the ring over the epochs."""
    device = bench.device

    def taken() -> tuple[int, int]:
        info = device.memory_info()
        return info.allocated_bytes, info.host_allocated_bytes

    before = most = taken()
    free: list[int] = []
    with bench.open(last_batch="drop", epochs=bench.epochs) as feed:
        for _ in range(bench.epochs):
            for batch in feed:
                del batch
            most = max(most[0], taken()[0]), max(most[1], taken()[1])
            free.append(_free_bytes(bench))
        stats = feed.stats()
    on_device, on_host = most[0] - before[0], most[1] - before[1]
    flat = on_device <= (stats.ring_device_bytes or 0) and on_host <= (stats.ring_host_bytes or 0)
    # What the driver says, whoever has taken it: after the first epochs everything is there.
    grown = free[min(2, len(free) - 1)] - free[-1]
    return Outcome(
        "memory",
        "right" if flat and grown <= bench.batch_bytes + (2 << 20) else "wrong",
        f"at most {on_device} bytes on the device and {on_host} on the host in {bench.epochs} "
        f"epochs; the ring is {stats.ring_device_bytes} and {stats.ring_host_bytes}; the driver "
        f"has {grown} bytes less than after the first epochs",
        {
            "most_device_bytes": on_device,
            "most_host_bytes": on_host,
            "driver_grown_bytes": grown,
            "epochs": bench.epochs,
        },
    )


def _free_bytes(bench: Bench) -> int:
    if bench.device.name == "simulated":
        return 0
    import cupy  # noqa: PLC0415 - on a CUDA device alone

    with cupy.cuda.Device(bench.device.ordinal):
        return int(cupy.cuda.runtime.memGetInfo()[0])


WHOLE: Final[dict[str, Any]] = {"scale": 1 / 255, "mean_value": (104.0, 117.0, 123.0)}


def transforms(side: int) -> dict[str, dict[str, Any]]:
    """Return transformations to compare, by their names; crops are 200 to 227 of 256."""
    chosen = {
        "float32": WHOLE,
        "float32, crop and mirror": {
            "scale": (0.017, 0.018, 0.019),
            "mean_value": (104.0, 117.0, 123.0),
            "crop_size": side * 227 // 256,
            "mirror": True,
        },
        "float16, crop, nhwc, rgb": {
            "dtype": "float16",
            "scale": 0.017,
            "crop_size": side * 200 // 256,
            "layout": "nhwc",
            "channels": "rgb",
        },
        "float32, a drawn box resized": {
            **WHOLE,
            "random_resized_crop": {"size": side * 224 // 256},
            "mirror": True,
        },
        "float16, bicubic to the shorter side, crop, nhwc, erased in": {
            "dtype": "float16",
            "scale": 0.017,
            "resize": {"shorter": side * 240 // 256, "interpolation": "bicubic"},
            "crop_size": side * 224 // 256,
            "random_erasing": {"probability": 0.5, "mode": "pixel"},
            "layout": "nhwc",
        },
    }
    if importlib.util.find_spec("ml_dtypes") is not None:  # without it the others still count
        chosen["bfloat16, crop"] = {**WHOLE, "dtype": "bfloat16", "crop_size": side * 200 // 256}
    return chosen


def transforming(
    bench: Bench, transform: dict[str, Any], where: str, **options: Any
) -> prefetch.Feed:
    """Open a feed that transforms on one side.

    Raises:
        NotHereError: It cannot be done there.
    """
    try:
        return bench.open(transform={**transform, "where": where}, seed=1, **options)
    except prefetch.ConfigError as error:
        raise NotHereError(str(error)) from error


def check_transform(bench: Bench) -> Outcome:
    """Compare the bytes of the transformation on the device with those of the host."""
    wrong = []
    chosen = transforms(bench.side)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        noise = _write_noise(Path(folder) / "lmdb", bench.shape)
        for name, transform in chosen.items():
            made = []
            for where in ("host", "device"):
                with transforming(bench, transform, where, source=noise) as feed:
                    batches = itertools.islice(iter(feed), 4)
                    made.append([batch.data.numpy().tobytes() for batch in batches])
            if made[0] != made[1]:
                wrong.append(name)
    if wrong:
        return Outcome("device transform", "wrong", f"DIFFERENT BYTES: {'; '.join(wrong)}")
    same = f"the same bytes as on the host in {len(chosen)} configurations"
    return Outcome("device transform", "right", same)


def _write_noise(path: Path, shape: tuple[int, int, int]) -> Path:
    """Write a database in which every pixel taken from a wrong place shows."""
    rng = np.random.default_rng(1)
    images = (rng.integers(0, 256, shape, np.uint8) for _ in range(2 * BATCH))
    return write_database(
        path,
        ((b"%08d" % i, encode_image(image, label=i)) for i, image in enumerate(images)),
    )


BYTES: Final[dict[str, Callable[[Bench], Outcome]]] = {
    "torn batches": check_torn,
    "held stream": check_held,
    "device transform": check_transform,
    "memory": check_memory,
}
