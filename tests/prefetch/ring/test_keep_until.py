"""batch.keep_until and batch.record_stream: memory that others use without saying so."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import (
    BufferMismatchError,
    DeviceError,
    DeviceMismatchError,
    NoDeviceMemoryError,
    open_device,
)
from memory.testing import hold, peek
from prefetch._ring import keep_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from memory import Device

BATCH = 4


source = images_fixture(400)


@pytest.fixture(params=["cpu", "simulated"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    with open_device(request.param) as device:
        yield device


@pytest.fixture
def simulated() -> Iterator[Device]:
    with open_device("simulated") as device:
        yield device


def opened(source: Path, device: Any, **options: Any) -> prefetch.Feed:
    return prefetch.open(
        {"source": source, "batch_size": BATCH, "prefetch": 2, "threads": 1, **options},
        device=device,
    )


class Result:
    """What a library gives for work that it does by address: over when it is let."""

    def __init__(self, error: Exception | None = None) -> None:
        self._over = threading.Event()
        self._error = error

    def finish(self) -> None:
        self._over.set()

    def block_until_ready(self) -> Result:
        assert self._over.wait(30)
        if self._error is not None:
            raise self._error
        return self


class Reader:
    """Looks at a batch's memory, of its device if it has any, by address, which keeps nothing."""

    def __init__(self, batch: prefetch.Batch) -> None:
        device: Any = batch.data.device
        if device.has_device_memory:
            peek(batch.data)  # the copy has run
            buffer = batch.data.gpu_data()
            self._bytes = device._memory.view(buffer.ptr, buffer.nbytes)
            self._before = self._bytes.copy()
            return
        array = batch.data.numpy(writable=False)
        address, nbytes = array.__array_interface__["data"][0], array.nbytes
        interface = {"data": (address, True), "shape": (nbytes,), "typestr": "|u1", "version": 3}
        self._bytes = np.asarray(SimpleNamespace(__array_interface__=interface))
        self._before = self._bytes.copy()

    def is_whole(self) -> bool:
        return bool((self._bytes == self._before).all())


def test_it_is_not_filled_again_before_that_is_over_and_counts_as_none_held(
    source: Path, device: Device, until: Callable[[Callable[[], bool]], None]
) -> None:
    with opened(source, device, max_batches_held=1) as feed:
        batches, results, readers = iter(feed), [], []
        for _ in range(3):  # as many as the ring has slots
            batch = next(batches)
            readers.append(Reader(batch))
            results.append(Result())
            batch.keep_until(results[-1])
            del batch
        stats = feed.stats()
        assert (stats.slots_leased, stats.slots_draining, stats.slots) == (0, 3, 3)
        assert all(reader.is_whole() for reader in readers)
        results[0].finish()
        until(lambda: feed.stats().slots_ready == 1)
        assert all(reader.is_whole() for reader in readers[1:])
        for result in results:
            result.finish()
        assert [next(batches).number for _ in range(4)] == [3, 4, 5, 6]


def test_a_batch_that_is_held_for_longer_stays_held(source: Path, device: Device) -> None:
    with opened(source, device) as feed:
        batches = iter(feed)
        batch, result = next(batches), Result()
        batch.keep_until(result)
        result.finish()
        for _ in range(8):
            next(batches)
        assert (batch.data.numpy()[:, 0, 0, 0] == np.arange(BATCH)).all()


def test_all_of_several_and_of_what_lies_in_lists_and_mappings_have_to_be_over(
    source: Path, device: Device, until: Callable[[Callable[[], bool]], None]
) -> None:
    first, second, event = Result(), Result(), threading.Event()
    with opened(source, device) as feed:
        batch = next(iter(feed))
        batch.keep_until({"loss": first, "rest": [np.zeros(3), 1.5, None, (event,)]})
        batch.keep_until(second)
        del batch
        for is_over in (first.finish, event.set):
            is_over()
            assert feed.stats().slots_draining == 1
        second.finish()
        until(lambda: feed.stats().slots_draining == 0)


@pytest.mark.parametrize("name", ["block_until_ready", "synchronize", "wait"])
def test_what_is_called_is_the_first_that_there_is(source: Path, device: Device, name: str) -> None:
    called = threading.Event()
    with opened(source, device) as feed:
        next(iter(feed)).keep_until(SimpleNamespace(**{name: called.set}))
        assert called.wait(10)


@pytest.mark.parametrize("what", [object(), [[object()]], asyncio.Event()])
def test_what_cannot_be_waited_for_is_refused(source: Path, device: Device, what: Any) -> None:
    with opened(source, device) as feed:
        batch = next(iter(feed))
        with pytest.raises(TypeError, match=r"keep_until: .* found an object of type (object|Ev)"):
            batch.keep_until(what)


def test_a_released_batch_says_so(source: Path, device: Device) -> None:
    with opened(source, device) as feed:
        batch = next(iter(feed))
        batch.release()
        with pytest.raises(prefetch.BatchReleasedError, match=r"keep_until\(\) before release"):
            batch.keep_until(None)
        with pytest.raises(prefetch.BatchReleasedError, match=r"record_stream\(\) before release"):
            batch.record_stream(None)


@pytest.mark.parametrize("held", [True, False], ids=["fails first", "let go first"])
def test_what_fails_is_logged_and_raised_and_the_memory_is_not_filled_again(
    source: Path,
    device: Device,
    caplog: pytest.LogCaptureFixture,
    until: Callable[[Callable[[], bool]], None],
    *,
    held: bool,
) -> None:
    what = r"waiting for what batch 0 of epoch 0 is kept until failed: RuntimeError: it was donated"
    with opened(source, device) as feed:
        batches = iter(feed)
        batch, result = next(batches), Result(RuntimeError("it was donated"))
        reader = Reader(batch)
        batch.keep_until(result)
        if held:
            result.finish()
            until(lambda: "it was donated" in caplog.text)
        del batch
        result.finish()

        def fails() -> bool:
            assert reader.is_whole()  # afterwards the feed is closed, and its memory gone
            try:
                next(batches)
            except DeviceError as error:
                assert what in str(error)  # noqa: PT017 - one of several calls
                return True
            return False

        until(fails)
        assert feed.closed
    assert what in caplog.text


def test_closing_waits_for_it(source: Path, device: Device) -> None:
    with opened(source, device) as feed:
        batch, result = next(iter(feed)), Result()
        batch.keep_until(result)
        del batch
        timer = threading.Timer(0.2, result.finish)
        timer.start()
        feed.close()
        assert result._over.is_set()
        timer.join()


def test_closing_waits_for_a_while_only_and_the_memory_stays(
    source: Path,
    device: Device,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keep_until, "LIMIT_S", 0.05)
    result = Result()
    with opened(source, device) as feed:
        batch = next(iter(feed))
        reader = Reader(batch)
        batch.keep_until(result)
        del batch
    assert "their memory stays until it is" in caplog.text
    del feed
    gc.collect()
    assert reader.is_whole()
    result.finish()


def test_ctrl_c_ends_the_wait_of_closing(source: Path, device: Device) -> None:
    result = Result()
    feed = opened(source, device)
    batch = next(iter(feed))
    batch.keep_until(result)
    del batch

    def interrupt() -> None:
        import signal  # noqa: PLC0415

        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    timer = threading.Timer(0.2, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        feed.close()
    timer.join()
    result.finish()
    feed.close()


def test_a_batch_of_a_closed_feed_is_kept_too(source: Path, device: Device) -> None:
    with opened(source, device) as feed:
        batch = next(iter(feed))
    result = Result()
    array = weakref.ref(batch.data.numpy().base)
    batch.keep_until(result)
    del batch
    gc.collect()
    assert array() is not None
    result.finish()


def test_nothing_keeps_what_it_was_kept_until(
    source: Path, device: Device, until: Callable[[Callable[[], bool]], None]
) -> None:
    with opened(source, device) as feed:
        result = Result()
        gone = weakref.ref(result)
        next(iter(feed)).keep_until(result)
        result.finish()
        del result
        until(lambda: gone() is None)


def test_without_a_thread_the_caller_waits(
    source: Path,
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with opened(source, device) as feed:
        batch, result = next(iter(feed)), Result()
        result.finish()

        def refuse(_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr("prefetch._ring.keep_until.ThreadStart.run", refuse)
        batch.keep_until(result)
        del batch
        assert "no thread to keep batch 0 of epoch 0" in caplog.text
    assert feed.closed


def test_a_feed_that_is_dropped_ends_the_thread(
    source: Path, device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    feed = opened(source, device)
    result = Result()
    next(iter(feed)).keep_until(result)
    with pytest.warns(ResourceWarning):
        del feed
    result.finish()  # the test's own guard sees that no thread is left


def test_a_process_ends_although_it_is_never_over(source: Path) -> None:
    code = """
import sys, threading
import prefetch
from prefetch._ring import keep_until
keep_until.LIMIT_S = 0.2
feed = prefetch.open({"source": sys.argv[1], "batch_size": 4})
next(iter(feed)).keep_until(threading.Event())
"""
    command = [sys.executable, "-c", code, str(source)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_recorded_stream_is_waited_for(source: Path, simulated: Device) -> None:
    with opened(source, simulated) as feed, simulated.make_stream("side") as side:
        batches = iter(feed)
        with hold(side):
            for _ in range(2):
                batch = next(batches)
                batch.record_stream(side)
                del batch
            assert feed.stats().slots_draining == 2
        assert next(batches).number == 2


def test_a_recorded_stream_is_put_behind_the_copies(source: Path) -> None:
    gate = threading.Event()
    with (
        open_device("simulated", latency_s=1.0, sleep=lambda _: gate.wait(30)) as device,
        device.make_stream("side") as side,
        opened(source, device) as feed,
    ):
        batch = next(iter(feed))
        batch.record_stream(side)
        passed = side.record()
        assert not passed.done()
        gate.set()
        passed.synchronize()
        del batch


def test_what_is_no_stream_of_the_device_is_not_recorded(source: Path, simulated: Device) -> None:
    with opened(source, simulated) as feed, open_device("simulated") as other:
        batch = next(iter(feed))
        with pytest.raises(BufferMismatchError):
            batch.record_stream("stream")
        with pytest.raises(DeviceMismatchError):
            batch.record_stream(other.current_stream())
    with opened(source, "cpu") as feed, pytest.raises(NoDeviceMemoryError):
        next(iter(feed)).record_stream(0)
