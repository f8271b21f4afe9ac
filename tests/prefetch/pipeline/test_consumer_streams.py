"""feed.to_stream: batches are handed over on the consumer's stream, whichever is current."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import (
    BufferMismatchError,
    DeviceBuffer,
    DeviceMismatchError,
    NoDeviceMemoryError,
    open_device,
)
from memory.testing import hold, peek

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from memory import Device, Stream

BATCH = 4


source = images_fixture(60)


@pytest.fixture
def device() -> Iterator[Device]:
    with open_device("simulated") as device:
        yield device


@pytest.fixture
def stream(device: Device) -> Iterator[Stream]:
    with device.make_stream("consumer") as stream:
        yield stream


def opened(source: Path, device: Any, **options: Any) -> prefetch.Feed:
    return prefetch.open(
        {"source": source, "batch_size": BATCH, "prefetch": 2, "threads": 1, **options},
        device=device,
    )


def read_later(device: Device, batch: prefetch.Batch, stream: Stream) -> npt.NDArray[np.uint8]:
    """Queue a read of a batch as a kernel does it: by an address, which keeps nothing alive.

    Returns:
        What will hold the bytes of the batch's data.
    """
    out = np.zeros(batch.data.nbytes, dtype=np.uint8)
    buffer = batch.data.data._gpu
    assert buffer is not None
    device.copy_to_host(out, DeviceBuffer(buffer.ptr, out.nbytes, device=device), stream=stream)
    return out


def check(number: int, out: npt.NDArray[np.uint8]) -> None:
    expected = np.arange(BATCH)[:, None] + BATCH * number
    assert (out.view(np.float32).reshape(BATCH, -1) == expected).all()


def drains(feed: prefetch.Feed) -> bool:
    """Take a batch whose copies have run, drop it, and see whether something is waited for."""
    batch = next(iter(feed))
    peek(batch.data)
    peek(batch.label)
    del batch
    return feed.stats().slots_draining > 0


def test_the_stream_waits_for_the_copies_and_neither_the_host_nor_the_current_stream_does(
    source: Path,
) -> None:
    gate = threading.Event()
    with (
        open_device("simulated", latency_s=1.0, sleep=lambda _: gate.wait(30)) as device,
        device.make_stream("consumer") as stream,
        opened(source, device) as feed,
    ):
        feed.to_stream(stream)
        batch = next(iter(feed))  # its copies have not run
        out = read_later(device, batch, stream)
        device.current_stream().synchronize()
        assert not stream.record().done()
        gate.set()
        stream.synchronize()
        check(0, out)
        del batch


def test_a_slot_is_not_refilled_before_what_the_stream_was_given_has_run(
    source: Path, device: Device, stream: Stream
) -> None:
    read = []
    with opened(source, device, max_batches_held=3) as feed:
        feed.to_stream(stream)
        batches = iter(feed)
        with hold(stream):
            for _ in range(3):
                batch = next(batches)
                read.append(read_later(device, batch, stream))
                del batch
            stats = feed.stats()
            assert (stats.slots_leased, stats.slots_draining, stats.slots) == (0, 3, 3)
        stream.synchronize()
        assert next(batches).number == 3
    for number, out in enumerate(read):
        check(number, out)


def test_it_holds_from_the_next_batch_on_until_it_is_taken_back(
    source: Path, device: Device, stream: Stream
) -> None:
    with opened(source, device) as feed:
        with hold(device.current_stream()):
            assert drains(feed)
        feed.to_stream(stream)
        with hold(stream):
            assert drains(feed)
        feed.to_stream(None)
        with hold(device.current_stream()):
            assert drains(feed)


async def test_it_holds_for_asynchronous_iteration_too(
    source: Path, device: Device, stream: Stream
) -> None:
    with opened(source, device) as feed:
        feed.to_stream(stream)
        with hold(stream):
            batch = await anext(aiter(feed))
            peek(batch.data)
            peek(batch.label)
            del batch
            assert feed.stats().slots_draining == 1


def test_it_outlasts_a_loaded_state(source: Path, device: Device, stream: Stream) -> None:
    with opened(source, device) as feed:
        feed.to_stream(stream)
        feed.load_state_dict(feed.state_dict())
        with hold(stream):
            assert drains(feed)


def test_a_stream_of_the_feeds_own_device_does_not_and_that_is_said_before_anything_changes(
    source: Path,
) -> None:
    with opened(source, "simulated") as feed, feed.device.make_stream() as stream:
        feed.to_stream(stream)
        batches = iter(feed)
        next(batches)
        with pytest.raises(DeviceMismatchError):
            feed.load_state_dict(feed.state_dict())
        assert next(batches).number == 1
        feed.to_stream(None)
        feed.load_state_dict(feed.state_dict())
        assert next(iter(feed)).number == 2


def test_a_stream_of_another_device_is_refused(source: Path, device: Device) -> None:
    with (
        open_device("simulated") as other,
        other.make_stream() as theirs,
        opened(source, device) as feed,
    ):
        with pytest.raises(DeviceMismatchError, match="stream"):
            feed.to_stream(theirs)
        assert next(iter(feed)).number == 0


def test_a_feed_on_the_cpu_has_no_streams(source: Path) -> None:
    with opened(source, "cpu") as feed:
        feed.to_stream(None)
        with pytest.raises(NoDeviceMemoryError, match="stream_from"):
            feed.to_stream(7)
        assert next(iter(feed)).number == 0


@pytest.mark.parametrize("what", ["x", 3.5, 7, True, object()])
def test_what_is_no_stream_is_refused_as_such(source: Path, device: Device, what: object) -> None:
    with (
        prefetch.open({"source": source}, device=device) as feed,
        pytest.raises(BufferMismatchError, match="stream: expected a stream of this device, found"),
    ):
        feed.to_stream(what)
