"""The checks of gpu_check.py that measure; on a GPU only.

Every loop ends by waiting for the GPU, and the two sides of a comparison are the same loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpu_checks.batch_bytes import transforming, transforms
from gpu_checks.bench import BATCH, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    import prefetch
    from gpu_checks.bench import Bench


def _feed_s(bench: Bench, feed: prefetch.Feed) -> float:
    """Return the seconds that a feed takes for a batch, if nobody does anything with it."""
    batches = iter(feed)
    on_device = feed.device.has_device_memory

    def take(count: int) -> None:
        for _ in range(count):
            batch = next(batches)
            if on_device:
                batch.data.gpu_data()
            del batch
        if on_device:
            feed.device.current_stream().synchronize()

    return bench.seconds_each(take)


def _bare_s(bench: Bench) -> float:
    """Return the seconds of a bare copy of a batch from pinned memory."""
    import cupy  # noqa: PLC0415 - of the checks on a GPU alone

    device, runtime = bench.device, cupy.cuda.runtime
    nbytes = bench.batch_bytes
    # As many buffers as the feed's ring has: one alone would stay in the processor's cache.
    pairs = [(device.alloc_host(nbytes).array, device.alloc_device(nbytes)) for _ in range(5)]
    for host, _ in pairs:
        host[:] = 1
    with device.make_stream("bare") as stream:

        def bare(count: int) -> None:
            for number in range(count):
                host, there = pairs[number % len(pairs)]
                runtime.memcpyAsync(
                    there.ptr, host.ctypes.data, nbytes, runtime.memcpyHostToDevice, stream.handle
                )
            stream.synchronize()

        return bench.seconds_each(bare)


def check_bandwidth(bench: Bench) -> Outcome:
    """Compare the feed's rate to the device with bare copies of the same sizes."""
    bench.on_gpu_only()
    nbytes = bench.batch_bytes
    bare_s = _bare_s(bench)
    with bench.open() as feed:
        feed_s = _feed_s(bench, feed)
    with bench.open(threads=8) as feed:
        eight_s = _feed_s(bench, feed)
    with bench.open(device="cpu") as feed:
        host_s = _feed_s(bench, feed)
    rates = {
        "bare_bytes_per_s": nbytes / bare_s,
        "feed_bytes_per_s": nbytes / feed_s,
        "feed_8_threads_bytes_per_s": nbytes / eight_s,
        "host_feed_bytes_per_s": nbytes / host_s,
    }
    return Outcome(
        "bandwidth",
        "measured",
        f"GB/s: feed {nbytes / feed_s / 1e9:.2f}, with 8 readers {nbytes / eight_s / 1e9:.2f}, to "
        f"the host only {nbytes / host_s / 1e9:.2f}; bare copies {nbytes / bare_s / 1e9:.2f}; "
        f"feed to bare {bare_s / feed_s:.3f}",
        {**rates, "ratio": bare_s / feed_s},
    )


def check_step_time(bench: Bench) -> Outcome:
    """Compare a compute-bound step on the feed's batches with the same on resident data."""
    bench.on_gpu_only()
    torch = bench.torch()
    there = f"cuda:{bench.device.ordinal}"
    # Divided so that the products stay finite.
    weights = torch.randn(4096, 4096, device=there) / 64

    def step(data: Any) -> None:
        hidden = weights
        for _ in range(12):
            hidden = hidden @ weights
        hidden[:1, :1] += data.reshape(BATCH, -1)[:1, :1].float()

    resident = torch.zeros((BATCH, *bench.shape), dtype=torch.uint8, device=there)

    def without(count: int) -> None:
        for _ in range(count):
            step(resident)
        torch.cuda.synchronize()

    with bench.open() as feed:
        feed.to_stream(torch.cuda.current_stream())
        batches = iter(feed)

        def fed(count: int) -> None:
            for _ in range(count):
                batch = next(batches)
                step(torch.from_dlpack(batch.data))
                del batch
            torch.cuda.synchronize()

        # Before and after, as the GPU's clocks change while it is at work.
        before_s = bench.seconds_each(without)
        fed_s = bench.seconds_each(fed)
    after_s = bench.seconds_each(without)
    alone_s = (before_s + after_s) / 2
    return Outcome(
        "step time",
        "measured",
        f"{fed_s * 1e3:.3f} ms with the feed, {before_s * 1e3:.3f} and {after_s * 1e3:.3f} ms on "
        f"resident data before and after, ratio {fed_s / alone_s:.4f}",
        {"feed_s": fed_s, "resident_s": alone_s, "ratio": fed_s / alone_s},
    )


def check_transform_speed(bench: Bench) -> Outcome:
    """Compare the transformation on the device with that on the host in images a second."""
    bench.on_gpu_only()
    numbers: dict[str, float] = {}
    texts = []
    for name, transform in transforms(bench.side).items():
        rates = []
        for where in ("host", "device"):
            with transforming(bench, transform, where) as feed:
                rates.append(BATCH / _feed_s(bench, feed))
            numbers[f"{name}: {where}_images_per_s"] = rates[-1]
        texts.append(f"{name}: {rates[0]:.0f} and {rates[1]:.0f}")
    return Outcome(
        "transform speed",
        "measured",
        f"images/s on host and device: {'; '.join(texts)}",
        numbers,
    )


SPEED: Final[dict[str, Callable[[Bench], Outcome]]] = {
    "bandwidth": check_bandwidth,
    "step time": check_step_time,
    "transform speed": check_transform_speed,
}
