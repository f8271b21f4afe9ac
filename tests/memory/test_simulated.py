"""What the simulated device promises beyond the contract: the races of a GPU, on command."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pytest

from memory._device.device import DeviceBuffer
from memory._device.event import HostEvent
from memory._errors import (
    BufferMismatchError,
    ClosedError,
    DeviceError,
    DeviceMemoryError,
    NotImplementedDeviceError,
    OptionValueError,
)
from memory._simulated.device import HOST_POISON, SimulatedDevice
from memory._simulated.memory import POISON
from memory.testing import TransferStats, VirtualClock, hold, peek
from memory.threads import ThreadStart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory._simulated.stream import SimulatedStream

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stream(simulated: SimulatedDevice) -> Iterator[SimulatedStream]:
    with simulated.make_stream("under test") as stream:
        yield stream


def fail(*_: object) -> NoReturn:
    raise ValueError("a kernel's own")


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


class TestMemory:
    def test_fresh_memory_is_poisoned_on_both_sides(self, simulated: SimulatedDevice) -> None:
        assert peek(simulated.alloc_device(5)).tolist() == [POISON] * 5
        assert simulated.alloc_host(5).array.tolist() == [HOST_POISON] * 5
        assert (POISON, HOST_POISON) == (0xCB, 0xCD)

    def test_memory_that_was_freed_comes_back_poisoned(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        for _ in range(4):
            buffer = simulated.alloc_device(4096)
            simulated.fill(buffer, 0, stream=stream)
            stream.synchronize()
            del buffer
            assert (peek(simulated.alloc_device(4096)) == POISON).all()

    def test_an_address_is_none_that_a_process_can_have(self, simulated: SimulatedDevice) -> None:
        pointers = [simulated.alloc_device(64).ptr for _ in range(4)]
        assert all(2**48 <= pointer < 2**63 for pointer in pointers)
        assert len(set(pointers)) == 4

    def test_an_address_is_never_used_again_nor_by_another_device(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        gone = DeviceBuffer(simulated.alloc_device(64).ptr, 64, device=simulated)
        with SimulatedDevice() as other:
            theirs = DeviceBuffer(other.alloc_device(64).ptr, 64, device=simulated)
            kept = other.alloc_device(64)
            elsewhere = DeviceBuffer(kept.ptr, 64, device=simulated)
            for buffer in (gone, theirs, elsewhere):
                with pytest.raises(BufferMismatchError, match="no allocated block"):
                    simulated.fill(buffer, 0, stream=stream)

    def test_a_range_that_leaves_its_block_is_refused(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        block, _neighbour = simulated.alloc_device(64), simulated.alloc_device(64)
        for offset, nbytes in ((0, 65), (60, 5), (-1, 2), (64, 1)):
            wrong = DeviceBuffer(block.ptr + offset, nbytes, device=simulated, owner=block)
            with pytest.raises(BufferMismatchError, match="within one allocated block"):
                simulated.fill(wrong, 0, stream=stream)

    def test_memory_freed_under_queued_work_fails_the_stream(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        owned = simulated.alloc_device(64)
        # Somebody passes an address on and forgets who keeps it alive.
        borrowed = DeviceBuffer(owned.ptr, 64, device=simulated)
        with hold(stream):
            simulated.copy_to_device(borrowed, np.zeros(64, np.uint8), stream=stream)
            del owned
        with pytest.raises(DeviceError, match=r"copy_to_device of 64 bytes failed.*no allocated"):
            stream.synchronize()

    def test_beyond_its_limit_there_is_none(self) -> None:
        with SimulatedDevice(limit_bytes=700_000) as device:
            kept = device.alloc_device(400_000)
            with pytest.raises(DeviceMemoryError) as caught:
                device.alloc_device(300_001)
            error = caught.value
            assert isinstance(error, MemoryError)
            assert (error.requested_bytes, error.used_bytes, error.limit_bytes) == (
                300_001,
                400_000,
                700_000,
            )
            assert "300001 bytes were asked for, 400000 bytes are used of 700000 bytes" in str(
                error
            )
            device.alloc_device(300_000)
            del kept
            device.alloc_device(700_000)
            assert device.memory_info().peak_bytes == 700_000

    def test_what_the_machine_does_not_have_is_the_devices_error(
        self, simulated: SimulatedDevice
    ) -> None:
        with pytest.raises(DeviceMemoryError, match=f"{1 << 60} bytes were asked for"):
            simulated.alloc_device(1 << 60)
        assert simulated.memory_info().num_buffers == 0

    def test_an_unaligned_slice_can_be_computed_on(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        part = simulated.alloc_device(9).slice(1, 8)
        simulated.fill(part, 0, stream=stream)
        assert simulated.asum(part, dtype="float64", stream=stream) == 0.0


class TestHold:
    def test_a_held_copy_has_not_run(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        buffer = simulated.alloc_device(4)
        with hold(stream) as held:
            simulated.copy_to_device(buffer, np.full(4, 1, np.uint8), stream=stream)
            event = stream.record()
            assert not event.done()
            assert not event.wait_for(0.01)
            assert peek(buffer).tolist() == [POISON] * 4
            released = [held.released]
        assert [*released, held.released] == [False, True]
        event.synchronize()
        assert peek(buffer).tolist() == [1] * 4

    def test_work_given_before_the_hold_runs_on(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        buffer = simulated.alloc_device(4)
        simulated.fill(buffer, 1, stream=stream)
        before = stream.record()
        with hold(stream):
            before.synchronize()
            assert peek(buffer).tolist() == [1] * 4

    def test_other_streams_run_on(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        with hold(stream), simulated.make_stream() as other:
            other.synchronize()

    def test_a_stream_that_waits_for_a_held_one_stands_too_and_the_host_does_not(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        buffer, back = simulated.alloc_device(4), np.zeros(4, np.uint8)
        with simulated.make_stream() as reader, hold(stream):
            simulated.fill(buffer, 9, stream=stream)
            reader.wait(stream.record())
            simulated.copy_to_host(back, buffer, stream=reader)
            copied = reader.record()
            assert not copied.wait_for(0.01)
            assert back.tolist() == [0] * 4
        copied.synchronize()
        assert back.tolist() == [9] * 4

    def test_without_the_event_the_reader_does_not_wait(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        buffer, back = simulated.alloc_device(4), np.zeros(4, np.uint8)
        with simulated.make_stream() as reader, hold(stream):
            simulated.fill(buffer, 9, stream=stream)
            simulated.copy_to_host(back, buffer, stream=reader)
            reader.synchronize()
        assert back.tolist() == [POISON] * 4

    def test_holds_are_passed_one_after_the_other(self, stream: SimulatedStream) -> None:
        first, second = hold(stream), hold(stream)
        event = stream.record()
        second.release()
        assert not event.wait_for(0.01)
        first.release()
        event.synchronize()

    def test_a_hold_that_is_dropped_is_released(self, stream: SimulatedStream) -> None:
        hold(stream)
        stream.synchronize()

    def test_a_test_that_waits_for_what_it_holds_ends_with_an_error(
        self, stream: SimulatedStream
    ) -> None:
        with (
            hold(stream, limit_s=0.01),
            pytest.raises(DeviceError, match=r"held for 0\.01 s and not released"),
        ):
            stream.synchronize()

    def test_a_host_event_can_stop_a_stream_too(self, stream: SimulatedStream) -> None:
        latch = HostEvent()
        stream.wait(latch)
        event = stream.record()
        assert not event.wait_for(0.01)
        latch.complete()
        event.synchronize()


class TestCopiesInFlight:
    def test_a_host_buffer_refilled_too_early_reaches_the_device(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        host, buffer = simulated.alloc_host(4096).array, simulated.alloc_device(4096)
        host[:] = 1
        with hold(stream):
            simulated.copy_to_device(buffer, host, stream=stream)
            host[2048:] = 2  # the next batch's pixels
        stream.synchronize()
        assert sorted(set(peek(buffer).tolist())) == [1, 2]

    def test_one_refilled_after_the_event_does_not(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        host, buffer = simulated.alloc_host(4096).array, simulated.alloc_device(4096)
        host[:] = 1
        simulated.copy_to_device(buffer, host, stream=stream)
        stream.record().synchronize()
        host[:] = 2
        assert (peek(buffer) == 1).all()

    def test_bytes_move_at_the_end_of_the_time_that_a_copy_takes(self) -> None:
        started, check_cancelled = threading.Event(), threading.Event()

        def sleep(_seconds: float) -> None:
            started.set()
            check_cancelled.wait(10)

        with SimulatedDevice(latency_s=1.0, sleep=sleep) as device:
            host, buffer = np.full(4, 1, np.uint8), device.alloc_device(4)
            device.copy_to_device(buffer, host, stream=device.current_stream())
            assert started.wait(10)
            assert peek(buffer).tolist() == [POISON] * 4
            host[:] = 2
            check_cancelled.set()
            device.current_stream().synchronize()
            assert peek(buffer).tolist() == [2] * 4

    def test_both_ends_live_until_the_copy_has_run_and_no_longer(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        buffer, host = simulated.alloc_device(64), simulated.alloc_host(64)
        with hold(stream):
            simulated.copy_to_device(buffer, host.array, stream=stream)
            simulated.copy_to_host(host.array, buffer, stream=stream)
            done = stream.record()
            del buffer, host
            info = simulated.memory_info()
            assert (info.num_buffers, info.num_host_buffers) == (1, 1)
        done.synchronize()
        info = simulated.memory_info()
        assert (info.num_buffers, info.num_host_buffers) == (0, 0)

    def test_an_idle_stream_keeps_nothing_alive(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        class Anything:
            def __call__(self) -> None:
                pass

        anything, gone = Anything(), threading.Event()
        weakref.finalize(anything, gone.set)
        simulated.launch(anything, stream=stream)
        del anything
        assert gone.wait(10)  # and nothing comes after it on the stream


class TestFailures:
    def test_a_failure_shows_at_later_events_and_not_at_earlier_ones(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        before = stream.record()
        simulated.launch(fail, stream=stream)
        after, later = stream.record(), stream.record()
        before.synchronize()
        for event in (after, later, after):
            with pytest.raises(DeviceError, match="launch failed: ValueError: a kernel's own"):
                event.synchronize()
            assert event.done()

    def test_the_stream_reports_it_once_and_is_good_again(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        simulated.launch(fail, stream=stream)
        with pytest.raises(DeviceError) as caught:
            stream.synchronize()
        assert isinstance(caught.value, RuntimeError)
        assert isinstance(caught.value.__cause__, ValueError)
        assert (caught.value.device, caught.value.operation) == ("simulated", "launch")
        stream.synchronize()
        stream.record().synchronize()

    def test_the_first_of_several_failures_is_reported(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        simulated.launch(fail, stream=stream)
        simulated.launch(lambda: 1 / 0, stream=stream)
        with pytest.raises(DeviceError, match="ValueError"):
            stream.synchronize()

    def test_work_after_a_failure_still_runs(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        buffer = simulated.alloc_device(4)
        simulated.launch(fail, stream=stream)
        simulated.fill(buffer, 3, stream=stream)
        with pytest.raises(DeviceError):
            stream.synchronize()
        assert peek(buffer).tolist() == [3] * 4

    def test_whoever_waits_for_a_failed_stream_has_failed_too(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        simulated.launch(fail, stream=stream)
        with simulated.make_stream() as reader:
            reader.wait(stream.record())
            with pytest.raises(DeviceError, match="launch failed: ValueError") as caught:
                reader.synchronize()
            assert isinstance(caught.value.__cause__, ValueError)

    def test_not_even_an_exit_ends_the_worker(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        simulated.launch(sys.exit, stream=stream)
        with pytest.raises(DeviceError, match="SystemExit"):
            stream.synchronize()
        stream.synchronize()

    def test_a_callback_that_raises_is_logged_and_keeps_nobody_from_waking(
        self, stream: SimulatedStream, caplog: pytest.LogCaptureFixture
    ) -> None:
        woken = threading.Event()
        with hold(stream):
            event = stream.record()
            event.notify(sys.exit)
            event.notify(fail)
            event.notify(woken.set)
        assert woken.wait(10)
        stream.synchronize()
        assert [record.message for record in caplog.records] == [
            "a callback of an event failed"
        ] * 2

    def test_a_failure_keeps_no_buffer_alive(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        def kernel(array: np.ndarray[Any, Any]) -> None:
            raise ValueError(len(array))

        simulated.launch(kernel, simulated.alloc_device(64), stream=stream)
        event = stream.record()
        with pytest.raises(DeviceError):
            event.synchronize()
        assert simulated.memory_info().num_buffers == 0

    def test_a_failure_that_nobody_saw_is_logged_at_the_end(
        self, simulated: SimulatedDevice, caplog: pytest.LogCaptureFixture
    ) -> None:
        with simulated.make_stream("unseen") as stream:
            simulated.launch(fail, stream=stream)
        assert "stream 'unseen' ended; a failure had not been raised yet" in caplog.text
        caplog.clear()
        with simulated.make_stream("seen") as stream:
            simulated.launch(fail, stream=stream)
            with pytest.raises(DeviceError):
                stream.record().synchronize()
        assert caplog.text == ""

    def test_a_sum_raises_what_failed_before_it(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        simulated.launch(fail, stream=stream)
        with pytest.raises(DeviceError, match="ValueError"):
            simulated.asum(simulated.alloc_device(4), dtype="float32", stream=stream)

    def test_a_thread_that_the_system_refuses_is_the_devices_error(
        self, simulated: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(DeviceError, match="can't start new thread; close streams"):
            simulated.make_stream()
        null = simulated.current_stream()
        with pytest.raises(DeviceError, match="starting stream 'null' failed"):
            null.record()
        monkeypatch.undo()
        null.synchronize()

    @pytest.mark.parametrize("starts_before", [True, False])
    def test_a_stream_works_on_after_ctrl_c_while_its_thread_was_started(
        self, simulated: SimulatedDevice, monkeypatch: pytest.MonkeyPatch, *, starts_before: bool
    ) -> None:
        run = ThreadStart.run

        def interrupted(start: ThreadStart) -> None:
            if starts_before:
                run(start)
            raise KeyboardInterrupt

        stream = simulated.current_stream()
        with monkeypatch.context() as patch:
            patch.setattr(ThreadStart, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                stream.record()
        event = stream.record()
        assert event.wait_for(10)
        assert [thread.name for thread in threading.enumerate()].count(stream.name) == 1


class TestTime:
    def test_every_copy_takes_its_latency_and_its_bytes(self) -> None:
        clock = VirtualClock()
        with SimulatedDevice(
            latency_s=0.5, bandwidth_bytes_per_s=1000, sleep=clock.sleep
        ) as device:
            stream, buffer = device.current_stream(), device.alloc_device(2000)
            host = np.zeros(2000, np.uint8)
            device.copy_to_device(buffer, host, stream=stream)
            stream.synchronize()
            assert clock.now_s == 2.5
            device.copy_to_host(host[:1000], buffer.slice(0, 1000), stream=stream)
            stream.synchronize()
            assert clock.now_s == 4.0

    def test_work_on_the_device_takes_none(self) -> None:
        clock = VirtualClock()
        with SimulatedDevice(latency_s=0.5, sleep=clock.sleep) as device:
            stream, buffer = device.current_stream(), device.alloc_device(8)
            device.fill(buffer, 0, stream=stream)
            device.copy_on_device(buffer.slice(0, 4), buffer.slice(4, 4), stream=stream)
            stream.synchronize()
        assert clock.now_s == 0.0

    def test_it_is_real_time_without_a_clock(self) -> None:
        with SimulatedDevice(latency_s=0.003) as device:
            buffer, stream = device.alloc_device(1), device.current_stream()
            start_s = time.monotonic()
            device.copy_to_device(buffer, np.zeros(1, np.uint8), stream=stream)
            stream.synchronize()
            assert time.monotonic() - start_s >= 0.003

    @pytest.mark.parametrize(
        "options",
        [
            {"latency_s": -1.0},
            {"latency_s": float("nan")},
            {"latency_s": float("inf")},
            {"bandwidth_bytes_per_s": 0},
            {"bandwidth_bytes_per_s": float("nan")},
            {"limit_bytes": -1},
        ],
    )
    def test_values_that_cannot_be_are_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises(OptionValueError, match=next(iter(options))):
            SimulatedDevice(**options)


class TestLaunch:
    def test_a_function_sees_device_memory_in_stream_order(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        def double(source: np.ndarray[Any, Any], sink: np.ndarray[Any, Any]) -> None:
            sink[:] = source * 2

        source, sink = simulated.alloc_device(4), simulated.alloc_device(4)
        simulated.fill(source, 21, stream=stream)
        simulated.launch(double, source, sink, stream=stream)
        stream.synchronize()
        assert peek(sink).tolist() == [42] * 4

    def test_it_runs_on_the_streams_thread(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        names: list[str] = []
        simulated.launch(lambda: names.append(threading.current_thread().name), stream=stream)
        stream.synchronize()
        assert names == ["under test"]

    def test_cuda_source_is_refused(self, simulated: SimulatedDevice) -> None:
        with pytest.raises(NotImplementedDeviceError, match="give the kernel's NumPy twin"):
            simulated.compile("__global__ void kernel() {}", "kernel")


class TestStats:
    def test_copies_are_counted_by_their_way(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        buffer, host = simulated.alloc_device(10), np.zeros(10, np.uint8)
        simulated.copy_to_device(buffer, host, stream=stream)
        simulated.copy_to_device(buffer, host, stream=stream)
        simulated.copy_to_host(host, buffer, stream=stream)
        simulated.copy_on_device(buffer.slice(0, 3), buffer.slice(3, 3), stream=stream)
        assert simulated.stats() == TransferStats(
            num_to_device=2,
            bytes_to_device=20,
            num_to_host=1,
            bytes_to_host=10,
            num_on_device=1,
            bytes_on_device=3,
        )

    def test_a_repr_shows_the_state_on_a_line(
        self, simulated: SimulatedDevice, stream: SimulatedStream
    ) -> None:
        buffer = simulated.alloc_device(10)
        assert repr(simulated) == "<SimulatedDevice 10 bytes, no limit>"
        with hold(stream):
            stream.record()
            assert repr(stream).startswith("<SimulatedStream 'under test' handle 1, ")
        assert repr(buffer) == f"<DeviceBuffer 10 bytes at {buffer.ptr:#x} on simulated>"
        stream.close()
        assert repr(stream) == "<SimulatedStream 'under test' handle 1, closed>"


class TestLifetime:
    def test_closing_joins_the_thread(self, simulated: SimulatedDevice) -> None:
        stream = simulated.make_stream("short")
        (thread,) = (t for t in threading.enumerate() if t.name == "short")
        assert thread.daemon
        stream.close()
        assert not thread.is_alive()

    def test_the_null_streams_thread_starts_with_its_first_work(self) -> None:
        threads = threading.active_count()
        with SimulatedDevice() as device:
            null = device.current_stream()
            assert threading.active_count() == threads
            null.synchronize()
            assert threading.active_count() == threads + 1
        assert threading.active_count() == threads

    def test_200_streams_leave_no_thread(self, simulated: SimulatedDevice) -> None:
        threads = threading.active_count()
        buffer = simulated.alloc_device(1)
        for _ in range(200):
            with simulated.make_stream() as stream:
                simulated.fill(buffer, 1, stream=stream)
        assert threading.active_count() == threads

    def test_a_stream_that_is_collected_open_warns_and_ends_after_its_work(
        self, simulated: SimulatedDevice
    ) -> None:
        buffer, stream = simulated.alloc_device(4), simulated.make_stream("forgotten")
        (thread,) = (t for t in threading.enumerate() if t.name == "forgotten")
        simulated.fill(buffer, 8, stream=stream)
        with pytest.warns(ResourceWarning, match="stream 'forgotten' .* was collected open"):
            del stream
        thread.join(10)
        assert not thread.is_alive()
        assert peek(buffer).tolist() == [8] * 4

    @pytest.mark.filterwarnings("error::ResourceWarning")
    def test_it_ends_as_well_where_the_warning_is_an_error(
        self, simulated: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ignored: list[type[BaseException] | None] = []
        monkeypatch.setattr(sys, "unraisablehook", lambda args: ignored.append(args.exc_type))
        stream = simulated.make_stream("forgotten")
        (thread,) = (t for t in threading.enumerate() if t.name == "forgotten")
        del stream
        thread.join(10)
        assert not thread.is_alive()
        assert ignored == [ResourceWarning]

    def test_a_collected_device_ends_its_null_stream_without_the_garbage_collector(self) -> None:
        gc.disable()
        try:
            device = SimulatedDevice()
            device.current_stream().synchronize()
            (thread,) = (t for t in threading.enumerate() if t.name == "null")
            del device
            thread.join(10)
            assert not thread.is_alive()
        finally:
            gc.enable()

    def test_a_stream_may_be_dropped_by_its_own_thread(self, simulated: SimulatedDevice) -> None:
        streams = [simulated.make_stream("suicidal")]
        (thread,) = (t for t in threading.enumerate() if t.name == "suicidal")

        def drop() -> bool:
            simulated.launch(streams.clear, stream=streams[0])
            thread.join(10)
            return thread.is_alive()

        with pytest.warns(ResourceWarning, match="suicidal"):
            alive = drop()
        assert not alive

    def test_a_stream_may_be_closed_by_its_own_thread(
        self, simulated: SimulatedDevice, caplog: pytest.LogCaptureFixture
    ) -> None:
        stream = simulated.make_stream("modest")
        (thread,) = (t for t in threading.enumerate() if t.name == "modest")
        simulated.launch(stream.close, stream=stream)
        thread.join(10)
        assert not thread.is_alive()
        assert caplog.text == ""  # or the join of itself would have failed

    def test_whoever_closes_waits_for_the_work(self, simulated: SimulatedDevice) -> None:
        stream = simulated.make_stream()
        sink, source = np.zeros(4, np.uint8), simulated.alloc_device(4)
        seen: list[int] = []

        def close() -> None:
            stream.close()
            seen.append(int(sink[0]))

        closers = [threading.Thread(target=close) for _ in range(4)]
        with hold(stream):
            simulated.copy_to_host(sink, source, stream=stream)
            for closer in closers:
                closer.start()
        for closer in closers:
            closer.join(10)
        assert seen == [POISON] * 4

    def test_work_given_while_the_stream_closes_runs_or_is_refused(
        self, simulated: SimulatedDevice
    ) -> None:
        for _ in range(20):
            stream = simulated.make_stream()
            events: list[HostEvent] = []

            thread = threading.Thread(target=_record_until_closed, args=(stream, events))
            thread.start()
            stream.close()
            thread.join(10)
            assert all(event.done() for event in events)


def _record_until_closed(stream: SimulatedStream, events: list[HostEvent]) -> None:
    with contextlib.suppress(ClosedError):
        while True:
            events.append(stream.record())


class TestProcessEnd:
    def test_streams_left_open_held_and_busy_do_not_hold_up_the_exit(self) -> None:
        code = """
            import time
            import numpy as np
            from memory import open_device
            from memory.testing import hold
            device = open_device("simulated", latency_s=0.01)
            held, busy, waiting = (device.make_stream() for _ in range(3))
            hold_of_it = hold(held)
            waiting.wait(held.record())
            buffer = device.alloc_device(1)
            for _ in range(2000):
                device.copy_to_device(buffer, np.zeros(1, np.uint8), stream=busy)
            print("end", time.monotonic())
        """
        result = run_python(code)
        assert (result.returncode, result.stderr) == (0, "")
        assert time.monotonic() - float(result.stdout.split()[1]) < 15  # the copies take 20

    def test_ctrl_c_ends_a_wait(self) -> None:
        code = """
            import signal, threading, os
            from memory import open_device
            from memory.testing import hold
            device = open_device("simulated")
            with device.make_stream() as stream, hold(stream) as held:
                event = stream.record()
                try:
                    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
                    event.synchronize()
                except KeyboardInterrupt:
                    held.release()
                    event.synchronize()
                    print("interrupted", event.done())
        """
        result = run_python(code)
        assert (result.returncode, result.stdout) == (0, "interrupted True\n"), result.stderr

    def test_a_forked_child_is_told_instead_of_waiting_for_threads_it_has_not(self) -> None:
        code = """
            import os, signal, sys
            from memory import DeviceError, open_device
            from memory._device import accounting as _ledger
            from memory._simulated import stream_thread as _simulated_worker
            device, cpu = open_device("simulated"), open_device("cpu")
            stream, dropped = device.make_stream("parents"), device.make_stream("dropped")
            stream.synchronize()
            buffer = device.alloc_device(4)
            # Whatever lock another thread may hold at the moment of the fork.
            streams = device._streams
            locks = [streams._lock, stream._worker._lock, streams._null_worker._lock]
            locks += [ledger._lock for ledger in _ledger.all_ledgers()]
            locks += [_ledger._ledgers_lock, _simulated_worker._running_lock]
            for lock in locks:
                lock.acquire()
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                for call in (
                    stream.record,
                    stream.synchronize,
                    lambda: device.fill(buffer, 0, stream=stream),
                    lambda: device.alloc_device(1),
                    device.make_stream,
                    device.current_stream,
                ):
                    try:
                        call()
                    except DeviceError as error:
                        assert "'spawn'" in str(error), error
                    else:
                        raise AssertionError(call)
                cpu.alloc_host(16)
                device.memory_info()
                with open_device("simulated") as own, own.make_stream() as working:
                    working.synchronize()
                stream.close()
                device.close()
                del stream, dropped, device
                sys.exit(7)
            for lock in locks:
                lock.release()
            status = os.waitpid(child, 0)[1]
            stream.synchronize()
            for opened in (stream, dropped, device):
                opened.close()
            print(os.waitstatus_to_exitcode(status))
        """
        result = run_python(code, "-W", "ignore:This process:DeprecationWarning")
        assert (result.returncode, result.stdout) == (0, "7\n"), result.stderr
