"""The tools that other people's tests are built on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from memory import Blob, SyncedMemory
from memory._device.cpu import CpuDevice
from memory._device.device import Device, DeviceBuffer, Stream
from memory._errors import (
    BufferMismatchError,
    ClosedError,
    DeviceError,
    DeviceMemoryError,
    DeviceMismatchError,
    HostMemoryError,
    NoDataError,
    NotImplementedDeviceError,
    OptionValueError,
)
from memory._simulated.device import SimulatedDevice
from memory._simulated.memory import POISON
from memory._synced.head_transitions import Head
from memory.testing import (
    FAILING_OPERATIONS,
    FailingDevice,
    LiveBuffers,
    VirtualClock,
    hold,
    live_buffers,
    peek,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class TestPeek:
    def test_a_buffer_is_shown_as_it_is_now_as_a_copy(self, simulated: SimulatedDevice) -> None:
        stream, buffer = simulated.current_stream(), simulated.alloc_device(4)
        with hold(stream):
            simulated.fill(buffer, 1, stream=stream)
            shown = peek(buffer.slice(1, 2))
            shown[:] = 7
            assert peek(buffer).tolist() == [POISON] * 4
        stream.synchronize()
        assert peek(buffer).tolist() == [1] * 4

    def test_a_synced_memory_is_shown_without_moving_its_head(
        self, simulated: SimulatedDevice
    ) -> None:
        memory = SyncedMemory(4, simulated)
        memory.mutable_cpu_data()[:] = 3
        memory.gpu_data()
        memory.mutable_cpu_data()[:] = 4
        assert peek(memory).tolist() == [3] * 4
        assert memory.head is Head.HEAD_AT_CPU

    def test_a_blob_is_shown_in_its_shape_and_dtype(self, simulated: SimulatedDevice) -> None:
        blob = Blob((2, 3), dtype="float32", device=simulated)
        blob.mutable_cpu_data()[...] = np.arange(6, dtype=np.float32).reshape(2, 3)
        blob.gpu_data()
        assert peek(blob).dtype == np.float32
        assert peek(blob).tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
        blob.reshape(2, 2)  # within its capacity
        assert peek(blob).tolist() == [[0.0, 1.0], [2.0, 3.0]]

    def test_what_has_no_device_memory_yet_says_so(self, simulated: SimulatedDevice) -> None:
        for data in (SyncedMemory(4, simulated), Blob((2,), device=simulated)):
            with pytest.raises(NoDataError, match="nothing has asked for device memory yet"):
                peek(data)
        with pytest.raises(NoDataError, match="the blob has no data yet"):
            peek(Blob())

    def test_anything_else_is_refused(self) -> None:
        with pytest.raises(BufferMismatchError, match="found ndarray"):
            peek(np.zeros(3))

    def test_on_other_devices_the_bytes_are_fetched(self, simulated: SimulatedDevice) -> None:
        elsewhere: Any = _OtherDevice(simulated)
        inner = simulated.alloc_device(4)
        stream = simulated.current_stream()
        simulated.fill(inner, 6, stream=stream)
        stream.synchronize()
        buffer = DeviceBuffer(inner.ptr, 4, device=elsewhere, owner=inner)
        assert peek(buffer).tolist() == [6] * 4


class _OtherDevice:
    """A device that peek() knows nothing about."""

    def __init__(self, inner: SimulatedDevice) -> None:
        self._inner = inner

    def copy_to_host(self, dst: Any, src: DeviceBuffer, *, stream: Stream) -> None:
        inner = DeviceBuffer(src.ptr, src.nbytes, device=self._inner, owner=src)
        self._inner.copy_to_host(dst, inner, stream=stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class TestHold:
    def test_a_stream_that_cannot_be_held_is_refused(self) -> None:
        class Unstoppable:
            device = CpuDevice()

        unstoppable: Any = Unstoppable()
        with pytest.raises(NotImplementedDeviceError, match="its streams cannot be stopped"):
            hold(unstoppable)

    def test_a_closed_stream_is_refused(self, simulated: SimulatedDevice) -> None:
        stream = simulated.make_stream()
        stream.close()
        with pytest.raises(ClosedError):
            hold(stream)

    def test_releasing_twice_is_fine(self, simulated: SimulatedDevice) -> None:
        with hold(simulated.current_stream()) as held:
            held.release()
            held.release()
        simulated.current_stream().synchronize()

    def test_an_exception_releases(self, simulated: SimulatedDevice) -> None:
        with pytest.raises(KeyError), hold(simulated.current_stream()):
            raise KeyError
        simulated.current_stream().synchronize()

    def test_a_failing_devices_streams_can_be_held(self, simulated: SimulatedDevice) -> None:
        device = FailingDevice(simulated, fail={})
        with device.make_stream() as stream:
            with hold(stream):
                event = stream.record()
                assert not event.done()
            event.synchronize()


class TestLiveBuffers:
    def test_it_counts_each_side_of_a_device(self, simulated: SimulatedDevice) -> None:
        kept = [simulated.alloc_device(10), simulated.alloc_device(0), simulated.alloc_host(3)]
        expected = (
            LiveBuffers("simulated", "device", num_buffers=2, nbytes=10),
            LiveBuffers("simulated", "host", num_buffers=1, nbytes=3),
        )
        assert live_buffers(simulated) == expected
        assert str(expected[0]) == "2 device buffers of 10 bytes (simulated)"
        kept.clear()
        assert live_buffers(simulated) == ()

    def test_it_finds_what_a_collected_device_has_left(self) -> None:
        before = live_buffers()
        with SimulatedDevice() as device:
            array = device.alloc_host(12_345).array
        del device
        (left,) = set(live_buffers()) - set(before)
        assert left == LiveBuffers("simulated", "host", num_buffers=1, nbytes=12_345)
        del array
        assert live_buffers() == before


class TestVirtualClock:
    def test_it_adds_up_what_is_slept_by_all_threads(self) -> None:
        clock = VirtualClock()
        threads = [threading.Thread(target=clock.sleep, args=(0.25,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert clock.now_s == 2.0


CALLS: dict[str, Callable[[Device, Stream, DeviceBuffer], object]] = {
    "alloc_host": lambda device, _, __: device.alloc_host(4),
    "alloc_device": lambda device, _, __: device.alloc_device(4),
    "make_stream": lambda device, _, __: device.make_stream().close(),
    "copy_to_device": lambda d, s, b: d.copy_to_device(b, np.zeros(4, np.uint8), stream=s),
    "copy_to_host": lambda d, s, b: d.copy_to_host(np.zeros(4, np.uint8), b, stream=s),
    "copy_on_device": lambda d, s, b: d.copy_on_device(b, d.alloc_device(4), stream=s),
    "fill": lambda d, s, b: d.fill(b, 1, stream=s),
    "axpy": lambda d, s, b: d.axpy(b, b, alpha=1.0, dtype="float32", stream=s),
    "scale": lambda d, s, b: d.scale(b, alpha=1.0, dtype="float32", stream=s),
    "launch": lambda d, s, b: cast("Any", d).launch(lambda view: view.fill(1), b, stream=s),
    "asum": lambda d, s, b: d.asum(b, dtype="float32", stream=s),
    "sumsq": lambda d, s, b: d.sumsq(b, dtype="float32", stream=s),
    "record": lambda _, s, __: s.record(),
    "wait": lambda _, s, __: s.wait(s.record()),
    "synchronize": lambda _, s, __: s.synchronize(),
}
QUEUED = ("copy_to_device", "copy_to_host", "copy_on_device", "fill", "axpy", "scale", "launch")
KINDS: dict[str, type[Exception]] = {
    "alloc_host": HostMemoryError,
    "alloc_device": DeviceMemoryError,
}


class TestFailingDevice:
    def test_every_operation_has_a_call_here(self) -> None:
        assert set(CALLS) == set(FAILING_OPERATIONS)

    @pytest.mark.parametrize("operation", FAILING_OPERATIONS)
    @pytest.mark.parametrize("number", [1, 3])
    def test_the_nth_call_of_an_operation_fails_and_no_other(
        self, simulated: SimulatedDevice, operation: str, number: int
    ) -> None:
        device = FailingDevice(simulated, fail={operation: number})
        # Set up past the failing device, so that the calls counted are the test's own.
        inner = simulated.alloc_device(4)
        simulated.fill(inner, 0, stream=simulated.current_stream())
        buffer = DeviceBuffer(inner.ptr, 4, device=device, owner=inner)
        stream = device.current_stream()
        outcomes = []
        for _ in range(4):
            try:
                CALLS[operation](device, stream, buffer)
            except KINDS.get(operation, DeviceError):
                outcomes.append("failed")
            else:
                outcomes.append("worked")
        expected = ["worked"] * 4
        expected[number - 1] = "failed"
        assert outcomes == expected
        assert device.num_failures == 1
        assert device.calls()[operation] == 4
        simulated.current_stream().synchronize()  # nothing has failed in secret

    @pytest.mark.parametrize("operation", QUEUED)
    def test_a_failure_when_run_shows_at_the_event(
        self, simulated: SimulatedDevice, operation: str
    ) -> None:
        device = FailingDevice(simulated, fail={operation: 1}, when="run")
        buffer, stream = device.alloc_device(4), device.current_stream()
        CALLS[operation](device, stream, buffer)
        event = stream.record()
        with pytest.raises(DeviceError, match=f"{operation} failed: call 1 fails on command"):
            event.synchronize()
        with pytest.raises(DeviceError):
            stream.synchronize()
        CALLS[operation](device, stream, buffer)
        stream.synchronize()

    def test_it_is_a_device_like_the_one_behind_it(self, device: Device) -> None:
        failing = FailingDevice(device, fail={})
        assert isinstance(failing, Device)
        assert failing.name == device.name
        assert failing.has_device_memory == device.has_device_memory
        buffer = failing.alloc_host(9)
        assert failing.memory_info() == device.memory_info()
        assert live_buffers(failing)[0].nbytes == buffer.nbytes

    def test_bytes_pass_through_it(self, simulated: SimulatedDevice) -> None:
        with (
            FailingDevice(simulated, fail={}) as device,
            device.make_stream() as stream,
            device.use_stream(stream),
        ):
            assert isinstance(stream, Stream)
            assert device.current_stream() is stream
            first, second = device.alloc_device(4), device.alloc_device(4)
            device.copy_to_device(first, np.arange(4, dtype=np.uint8), stream=stream)
            device.copy_on_device(second, first.slice(0, 4), stream=stream)
            stream.synchronize()
            assert peek(second).tolist() == [0, 1, 2, 3]
            memory = SyncedMemory(4, device)
            memory.set_gpu_data(second)
            assert memory.cpu_data().tolist() == [0, 1, 2, 3]

    def test_memory_behind_it_is_freed_with_its_buffers(self, simulated: SimulatedDevice) -> None:
        device = FailingDevice(simulated, fail={})
        buffer = device.alloc_device(4)
        with hold(device.current_stream()):
            device.copy_to_device(buffer, np.zeros(4, np.uint8), stream=device.current_stream())
            event = device.current_stream().record()
            del buffer
            assert simulated.memory_info().num_buffers == 1
        event.synchronize()
        assert simulated.memory_info().num_buffers == 0

    def test_buffers_and_streams_of_the_device_behind_it_are_foreign(
        self, simulated: SimulatedDevice
    ) -> None:
        device = FailingDevice(simulated, fail={})
        with pytest.raises(DeviceMismatchError):
            device.fill(simulated.alloc_device(1), 0, stream=device.current_stream())
        with pytest.raises(DeviceMismatchError):
            device.fill(device.alloc_device(1), 0, stream=simulated.current_stream())

    def test_kernels_run_behind_it(self, simulated: SimulatedDevice) -> None:
        device = FailingDevice(simulated, fail={})
        buffer, stream = device.alloc_device(4), device.current_stream()
        device.launch(lambda view: view.fill(3), buffer, stream=stream)
        stream.synchronize()
        assert peek(buffer).tolist() == [3] * 4
        with pytest.raises(NotImplementedDeviceError, match="runs no CUDA source"):
            device.compile("", "")

    def test_a_compiled_kernel_counts_and_fails_and_gets_the_buffers_behind(self) -> None:
        launched: list[tuple[Any, ...]] = []

        class Compiling(SimulatedDevice):
            def compile(self, source: str, name: str) -> Any:
                return lambda grid, block, args, *, stream: launched.append(
                    (source, name, grid, block, args, stream)
                )

        with (
            Compiling() as inner,
            FailingDevice(inner, fail={"launch": 2}) as device,
            device.make_stream() as stream,
        ):
            kernel, buffer = device.compile("source", "name"), device.alloc_device(4)
            kernel((1,), (2,), (buffer, 7), stream=stream)
            ((source, name, grid, block, (there, seven), on),) = launched
            assert (source, name, grid, block, seven) == ("source", "name", (1,), (2,), 7)
            assert (there.ptr, there.device, on.device) == (buffer.ptr, inner, inner)
            with pytest.raises(DeviceError, match="launch failed: call 2"):
                kernel((1,), (2,), (buffer, 7), stream=stream)
            assert len(launched) == 1
            del launched[:], there, on

    def test_only_a_simulated_device_runs_functions(self) -> None:
        device = FailingDevice(CpuDevice(), fail={})
        with pytest.raises(NotImplementedDeviceError, match="launch"):
            device.launch(print, stream=cast("Any", None))

    def test_calls_are_counted_over_all_threads(self, simulated: SimulatedDevice) -> None:
        device = FailingDevice(simulated, fail={"alloc_host": 150})
        failed: list[HostMemoryError] = []

        def allocate() -> None:
            for _ in range(50):
                try:
                    device.alloc_host(1)
                except HostMemoryError as error:
                    failed.append(error.with_traceback(None))

        threads = [threading.Thread(target=allocate) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(failed) == device.num_failures == 1
        assert device.calls()["alloc_host"] == 200

    @pytest.mark.parametrize("fail", [{"alloc": 1}, {"alloc_host": 0}])
    def test_a_plan_that_cannot_be_is_refused(self, fail: dict[str, int]) -> None:
        with pytest.raises(OptionValueError, match="fail: expected a call, counted from 1, of"):
            FailingDevice(CpuDevice(), fail=fail)

    def test_failing_when_run_needs_a_device_that_can(self) -> None:
        with pytest.raises(OptionValueError, match="when: expected 'called' on this device"):
            FailingDevice(CpuDevice(), fail={}, when="run")
