"""What every device promises; see ``memory._device.device``."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memory._device.cpu import CpuDevice
from memory._device.device import Device, DeviceBuffer, Stream
from memory._device.event import Event
from memory._device.host_memory import HostBuffer
from memory._errors import (
    BufferMismatchError,
    ClosedError,
    DeviceMismatchError,
    DtypeError,
    HostMemoryError,
    NoDeviceMemoryError,
    OptionValueError,
)
from memory._open_device import open_device
from memory._simulated.device import SimulatedDevice

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def ramp(nbytes: int, *, start: int = 0) -> NDArray[np.uint8]:
    return (np.arange(nbytes) + start).astype(np.uint8)


def on_device(device: Device, values: NDArray[Any], stream: Stream) -> DeviceBuffer:
    buffer = device.alloc_device(values.nbytes)
    device.copy_to_device(buffer, values.reshape(-1).view(np.uint8), stream=stream)
    return buffer


def fetched(device: Device, buffer: DeviceBuffer, stream: Stream) -> NDArray[np.uint8]:
    host = device.alloc_host(buffer.nbytes, zero=True).array
    device.copy_to_host(host, buffer, stream=stream)
    stream.synchronize()
    return host.copy()


class TestHostMemoryOfEveryDevice:
    def test_it_is_a_device_and_its_buffers_are_host_buffers(self, device: Device) -> None:
        assert isinstance(device, Device)
        assert isinstance(device.alloc_host(1), HostBuffer)

    def test_an_array_is_writable_contiguous_aligned_bytes_of_the_size_asked_for(
        self, device: Device
    ) -> None:
        for nbytes in (1, 63, 64, 65, 4096, 1_000_003):
            array = device.alloc_host(nbytes).array
            assert array.shape == (nbytes,)
            assert array.dtype == np.uint8
            assert array.flags.writeable
            assert array.flags.c_contiguous
            assert array.ctypes.data % 64 == 0

    def test_zero_means_zeros_also_where_the_memory_was_dirty(self, device: Device) -> None:
        for _ in range(8):
            device.alloc_host(4096).array.fill(0xFF)
            assert not device.alloc_host(4096, zero=True).array.any()

    def test_a_buffer_of_no_bytes_is_an_empty_array(self, device: Device) -> None:
        assert device.alloc_host(0).array.shape == (0,)

    def test_sizes_that_are_none_are_refused(self, device: Device) -> None:
        with pytest.raises(BufferMismatchError, match="found -5 bytes"):
            device.alloc_host(-5)
        with pytest.raises(TypeError):
            device.alloc_host(1.5)  # type: ignore[arg-type]

    @pytest.mark.parametrize("nbytes", [1 << 55, 1 << 63, 1 << 70])
    def test_memory_that_nobody_has_is_an_error_with_the_numbers(
        self, device: Device, nbytes: int
    ) -> None:
        kept = device.alloc_host(100)
        with pytest.raises(HostMemoryError, match=f"{nbytes} bytes were asked for") as caught:
            device.alloc_host(nbytes)
        assert isinstance(caught.value, MemoryError)
        assert caught.value.requested_bytes == nbytes
        assert caught.value.used_bytes == kept.nbytes
        assert device.memory_info().host_allocated_bytes == kept.nbytes

    def test_the_last_slice_keeps_the_memory_alive(self, device: Device) -> None:
        buffer = device.alloc_host(1000)
        part = buffer.array[10:20].reshape(2, 5)[1:]
        part[:] = 7
        buffer.close()
        del buffer
        for _ in range(8):
            device.alloc_host(1000).array.fill(0xFF)
        assert part.tolist() == [[7] * 5]
        assert device.memory_info().host_allocated_bytes == 1000
        del part
        assert device.memory_info().host_allocated_bytes == 0

    def test_the_memory_is_held_by_an_object_that_is_no_ndarray(self, device: Device) -> None:
        array = device.alloc_host(8).array
        base: object = array.base
        assert base is not None
        assert not isinstance(base, np.ndarray)
        assert array[1:].base is array

    def test_close_gives_up_the_buffers_own_hold_and_may_be_repeated(self, device: Device) -> None:
        buffer = device.alloc_host(8)
        buffer.close()
        buffer.close()
        assert device.memory_info().num_host_buffers == 0
        with pytest.raises(ClosedError, match="host buffer of 8 bytes is closed"):
            _ = buffer.array

    def test_what_is_allocated_is_counted_over_all_threads(self, device: Device) -> None:
        def churn() -> None:
            for _ in range(50):
                kept.append(device.alloc_host(3))
                device.alloc_host(1000)

        kept: list[HostBuffer] = []
        threads = [threading.Thread(target=churn) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        info = device.memory_info()
        assert (info.num_host_buffers, info.host_allocated_bytes) == (200, 600)
        kept.clear()
        assert device.memory_info().host_allocated_bytes == 0

    def test_opening_a_device_returns_it_unchanged(self, device: Device) -> None:
        assert open_device(device) is device

    def test_a_thread_that_is_given_to_it_works_as_any_other(self, device: Device) -> None:
        def work() -> None:
            device.dedicate_thread()
            found.append(device.alloc_host(4, zero=True).array.tolist())

        found: list[list[int]] = []
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert found == [[0, 0, 0, 0]]

    def test_closing_may_be_repeated(self, device: Device) -> None:
        device.close()
        device.close()


BUFFER = DeviceBuffer(0, 4, device=CpuDevice())
ON_A_SECOND_MEMORY: dict[str, Callable[[CpuDevice, Any], object]] = {
    "alloc_device": lambda device, _: device.alloc_device(4),
    "make_stream": lambda device, _: device.make_stream("copies"),
    "current_stream": lambda device, _: device.current_stream(),
    "stream_from": lambda device, stream: device.stream_from(stream),
    "use_stream": lambda device, stream: device.use_stream(stream),
    "copy_to_device": lambda device, s: device.copy_to_device(BUFFER, ramp(4), stream=s),
    "copy_to_host": lambda device, s: device.copy_to_host(ramp(4), BUFFER, stream=s),
    "copy_on_device": lambda device, s: device.copy_on_device(BUFFER, BUFFER, stream=s),
    "fill": lambda device, s: device.fill(BUFFER, 0, stream=s),
    "axpy": lambda device, s: device.axpy(BUFFER, BUFFER, alpha=1, dtype="f4", stream=s),
    "scale": lambda device, s: device.scale(BUFFER, alpha=1, dtype="f4", stream=s),
    "asum": lambda device, s: device.asum(BUFFER, dtype="f4", stream=s),
    "sumsq": lambda device, s: device.sumsq(BUFFER, dtype="f4", stream=s),
    "compile": lambda device, _: device.compile("", "kernel"),
}


class TestTheDeviceWithoutASecondMemory:
    @pytest.mark.parametrize("operation", ON_A_SECOND_MEMORY)
    def test_whatever_needs_one_is_refused_with_what_to_do(self, operation: str) -> None:
        with pytest.raises(
            NoDeviceMemoryError, match=f"cpu device has no second memory: {operation} needs one"
        ) as caught:
            ON_A_SECOND_MEMORY[operation](CpuDevice(), None)
        assert isinstance(caught.value, RuntimeError)
        assert "open_device('simulated')" in str(caught.value)
        assert caught.value.operation == operation

    def test_it_says_so_and_counts_no_device_memory(self) -> None:
        device = CpuDevice()
        info = device.memory_info()
        assert not device.has_device_memory
        assert (info.allocated_bytes, info.num_buffers, info.limit_bytes) == (0, 0, None)


class TestCopies:
    def test_streams_and_events_are_what_the_protocols_say(
        self, second_memory: Device, stream: Stream
    ) -> None:
        assert second_memory.has_device_memory
        assert isinstance(stream, Stream)
        assert isinstance(stream.record(), Event)
        assert stream.device is second_memory
        assert stream.name == "under test"

    @pytest.mark.parametrize("nbytes", [0, 1, 4096, 1_000_003])
    def test_bytes_come_back_as_they_went(
        self, second_memory: Device, stream: Stream, nbytes: int
    ) -> None:
        buffer = on_device(second_memory, ramp(nbytes), stream)
        assert fetched(second_memory, buffer, stream).tolist() == ramp(nbytes).tolist()

    def test_a_host_array_may_have_any_shape(self, second_memory: Device, stream: Stream) -> None:
        buffer = second_memory.alloc_device(12)
        second_memory.copy_to_device(buffer, ramp(12).reshape(3, 4), stream=stream)
        back = np.zeros((2, 6), np.uint8)
        second_memory.copy_to_host(back, buffer, stream=stream)
        stream.synchronize()
        assert back.tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]

    def test_copies_of_one_stream_run_in_order(self, second_memory: Device, stream: Stream) -> None:
        buffer = second_memory.alloc_device(1)
        sources = [np.array([value], np.uint8) for value in range(100)]
        sinks = [np.zeros(1, np.uint8) for _ in range(100)]
        for source, sink in zip(sources, sinks, strict=True):
            second_memory.copy_to_device(buffer, source, stream=stream)
            second_memory.copy_to_host(sink, buffer, stream=stream)
        stream.synchronize()
        assert [int(sink[0]) for sink in sinks] == list(range(100))

    def test_an_event_orders_two_streams(self, second_memory: Device, stream: Stream) -> None:
        buffer = second_memory.alloc_device(1 << 20)
        back = np.zeros(1 << 20, np.uint8)
        with second_memory.make_stream("reader") as reader:
            for value in range(20):
                source = np.full(1 << 20, value, np.uint8)
                second_memory.copy_to_device(buffer, source, stream=stream)
                reader.wait(stream.record())
                second_memory.copy_to_host(back, buffer, stream=reader)
                stream.wait(reader.record())
                reader.record().synchronize()
                assert (back == value).all()

    def test_a_slice_is_a_part_of_its_buffer(self, second_memory: Device, stream: Stream) -> None:
        buffer = on_device(second_memory, ramp(10), stream)
        part = buffer.slice(2, 6).slice(1, 3)
        assert part.ptr == buffer.ptr + 3
        second_memory.fill(part, 99, stream=stream)
        expected = [0, 1, 2, 99, 99, 99, 6, 7, 8, 9]
        assert fetched(second_memory, buffer, stream).tolist() == expected

    def test_a_copy_on_the_device_moves_bytes(self, second_memory: Device, stream: Stream) -> None:
        source = on_device(second_memory, ramp(8, start=50), stream)
        sink = second_memory.alloc_device(8)
        second_memory.copy_on_device(sink, source, stream=stream)
        assert fetched(second_memory, sink, stream).tolist() == ramp(8, start=50).tolist()

    def test_ends_of_different_sizes_are_refused(
        self, second_memory: Device, stream: Stream
    ) -> None:
        buffer = second_memory.alloc_device(8)
        with pytest.raises(BufferMismatchError, match=r"src: expected 8 bytes.*found 7 bytes"):
            second_memory.copy_to_device(buffer, ramp(7), stream=stream)
        with pytest.raises(BufferMismatchError, match=r"dst: expected 8 bytes.*found 9 bytes"):
            second_memory.copy_to_host(ramp(9), buffer, stream=stream)
        with pytest.raises(BufferMismatchError, match=r"dst: expected 4 bytes.*found 8 bytes"):
            second_memory.copy_on_device(buffer, buffer.slice(0, 4), stream=stream)

    def test_host_arrays_of_another_kind_are_refused(
        self, second_memory: Device, stream: Stream
    ) -> None:
        buffer = second_memory.alloc_device(8)
        wrong: list[Any] = [np.zeros(2, np.float32), np.zeros(8, np.int8), bytes(8)]
        for source in wrong:
            with pytest.raises(BufferMismatchError, match="expected an array of uint8"):
                second_memory.copy_to_device(buffer, source, stream=stream)
        with pytest.raises(BufferMismatchError, match="expected a C-contiguous array"):
            second_memory.copy_to_device(buffer, ramp(16)[::2], stream=stream)
        read_only = ramp(8)
        read_only.flags.writeable = False
        second_memory.copy_to_device(buffer, read_only, stream=stream)
        with pytest.raises(BufferMismatchError, match="expected a writable array"):
            second_memory.copy_to_host(read_only, buffer, stream=stream)

    def test_what_is_another_devices_is_refused(
        self, second_memory: Device, stream: Stream
    ) -> None:
        with SimulatedDevice() as other, other.make_stream() as foreign:
            buffer, theirs = second_memory.alloc_device(4), other.alloc_device(4)
            with pytest.raises(DeviceMismatchError, match="dst belongs to"):
                second_memory.copy_to_device(theirs, ramp(4), stream=stream)
            with pytest.raises(DeviceMismatchError, match="src belongs to"):
                second_memory.copy_on_device(buffer, theirs, stream=stream)
            with pytest.raises(DeviceMismatchError, match="stream belongs to"):
                second_memory.copy_to_device(buffer, ramp(4), stream=foreign)
            with (
                pytest.raises(DeviceMismatchError, match="stream belongs to"),
                second_memory.use_stream(foreign),
            ):
                pytest.fail("a foreign stream became current")

    def test_a_part_outside_of_a_buffer_is_refused(self, second_memory: Device) -> None:
        buffer = second_memory.alloc_device(8)
        for offset, nbytes in ((-1, 2), (0, -1), (0, 9), (8, 1)):
            with pytest.raises(BufferMismatchError, match="a part of the buffer's 8 bytes"):
                buffer.slice(offset, nbytes)
        assert buffer.slice(8, 0).nbytes == 0

    def test_a_value_that_is_no_byte_is_refused(
        self, second_memory: Device, stream: Stream
    ) -> None:
        with pytest.raises(OptionValueError, match="value: expected a byte, 0 to 255, found 256"):
            second_memory.fill(second_memory.alloc_device(1), 256, stream=stream)

    def test_a_host_array_lives_until_its_copy_has_run(
        self, second_memory: Device, stream: Stream
    ) -> None:
        buffer = second_memory.alloc_device(4096)
        second_memory.copy_to_device(
            buffer, np.full(4096, 42, np.uint8), stream=stream
        )  # a temporary
        assert (fetched(second_memory, buffer, stream) == 42).all()


class TestDeviceMemory:
    def test_it_is_freed_with_the_last_buffer_or_slice(self, second_memory: Device) -> None:
        buffer = second_memory.alloc_device(100)
        part = buffer.slice(10, 20)
        assert second_memory.memory_info().allocated_bytes == 100
        del buffer
        assert second_memory.memory_info().num_buffers == 1
        del part
        info = second_memory.memory_info()
        assert (info.allocated_bytes, info.num_buffers, info.peak_bytes) == (0, 0, 100)

    def test_a_slice_with_an_owner_of_its_own_keeps_the_memory_too(
        self, second_memory: Device
    ) -> None:
        lease = object()
        part = second_memory.alloc_device(100).slice(0, 50, lease)
        assert part.owner is lease
        assert second_memory.memory_info().allocated_bytes == 100

    def test_sizes_that_are_none_are_refused(self, second_memory: Device) -> None:
        with pytest.raises(BufferMismatchError, match="found -1 bytes"):
            second_memory.alloc_device(-1)
        with pytest.raises(TypeError):
            second_memory.alloc_device(1.5)  # type: ignore[arg-type]

    def test_an_owner_that_observes_is_told_of_streams(
        self, second_memory: Device, stream: Stream
    ) -> None:
        class Owner:
            def __init__(self) -> None:
                self.streams: list[Stream] = []

            def note_use(self, stream: Stream, /) -> None:
                self.streams.append(stream)

        owner = Owner()
        second_memory.alloc_device(4).slice(0, 4, owner).slice(1, 2).note_use(stream)
        second_memory.alloc_device(4).note_use(stream)
        assert owner.streams == [stream]

    def test_buffers_of_a_closed_device_are_freed_as_ever(self, second_memory: Device) -> None:
        buffer = second_memory.alloc_device(10)
        second_memory.close()
        assert second_memory.memory_info().allocated_bytes == 10
        del buffer
        assert second_memory.memory_info().allocated_bytes == 0


class TestEvents:
    def test_an_event_has_passed_once_it_was_waited_for(self, stream: Stream) -> None:
        event = stream.record()
        event.synchronize()
        assert event.done()
        event.synchronize()

    def test_a_callback_is_called_once(self, stream: Stream) -> None:
        called: list[int] = []
        again = threading.Event()
        event = stream.record()

        def note() -> None:
            called.append(1)
            again.set()  # here, since another callback may be called on another thread, and before

        event.notify(note)
        event.synchronize()
        assert again.wait(10)
        event.notify(lambda: called.append(2))  # at once, on this thread
        assert called[-1] == 2
        stream.synchronize()
        assert sorted(called) == [1, 2]

    def test_an_event_outlives_its_stream(self, second_memory: Device) -> None:
        with second_memory.make_stream() as stream:
            event = stream.record()
        assert event.done()
        event.synchronize()

    def test_many_threads_may_wait_for_one_event(self, stream: Stream) -> None:
        event = stream.record()
        threads = [threading.Thread(target=event.synchronize) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads)


class TestStreams:
    def test_the_null_stream_is_current_at_first(self, second_memory: Device) -> None:
        assert second_memory.current_stream().handle == 0
        assert second_memory.current_stream() is second_memory.current_stream()

    def test_the_null_stream_works_and_stays_open(self, second_memory: Device) -> None:
        null = second_memory.current_stream()
        buffer = on_device(second_memory, ramp(4), null)
        null.close()
        assert fetched(second_memory, buffer, null).tolist() == [0, 1, 2, 3]

    def test_handles_of_open_streams_differ(self, second_memory: Device) -> None:
        with second_memory.make_stream() as first, second_memory.make_stream() as second:
            assert len({0, first.handle, second.handle}) == 3

    def test_a_stream_of_the_device_stands_for_itself(
        self, second_memory: Device, stream: Stream
    ) -> None:
        assert second_memory.stream_from(stream) is stream
        null = second_memory.current_stream()
        assert second_memory.stream_from(null) is null

    def test_a_stream_of_another_device_stands_for_none(self, second_memory: Device) -> None:
        with (
            open_device("simulated") as other,
            other.make_stream() as theirs,
            pytest.raises((DeviceMismatchError, BufferMismatchError)),
        ):
            second_memory.stream_from(theirs)

    def test_use_stream_nests_and_ends_with_its_block(
        self, second_memory: Device, stream: Stream
    ) -> None:
        with second_memory.make_stream() as inner, second_memory.use_stream(stream):
            assert second_memory.current_stream() is stream
            with second_memory.use_stream(inner):
                assert second_memory.current_stream() is inner
            assert second_memory.current_stream() is stream
            with pytest.raises(KeyError), second_memory.use_stream(inner):
                raise KeyError
            assert second_memory.current_stream() is stream
        assert second_memory.current_stream().handle == 0

    def test_the_current_stream_is_the_threads_own(
        self, second_memory: Device, stream: Stream
    ) -> None:
        seen: list[int] = []
        with second_memory.use_stream(stream):
            thread = threading.Thread(
                target=lambda: seen.append(second_memory.current_stream().handle)
            )
            thread.start()
            thread.join()
        assert seen == [0]

    def test_closing_finishes_the_queued_work(self, second_memory: Device, stream: Stream) -> None:
        sinks = [np.zeros(1 << 16, np.uint8) for _ in range(20)]
        buffer = second_memory.alloc_device(1 << 16)
        second_memory.fill(buffer, 5, stream=stream)
        for sink in sinks:
            second_memory.copy_to_host(sink, buffer, stream=stream)
        stream.close()
        stream.close()
        assert all((sink == 5).all() for sink in sinks)

    def test_a_closed_stream_is_refused(self, second_memory: Device, stream: Stream) -> None:
        event = stream.record()
        buffer = second_memory.alloc_device(4)
        stream.close()
        calls: list[Callable[[], object]] = [
            stream.record,
            stream.synchronize,
            lambda: stream.wait(event),
            lambda: second_memory.copy_to_device(buffer, ramp(4), stream=stream),
        ]
        for call in calls:
            with pytest.raises(ClosedError, match="'under test' is closed"):
                call()

    def test_closing_the_device_closes_its_streams(self, second_memory: Device) -> None:
        stream, null = second_memory.make_stream(), second_memory.current_stream()
        buffer = on_device(second_memory, ramp(4), stream)
        second_memory.close()
        for closed in (stream, null):
            with pytest.raises(ClosedError):
                second_memory.copy_to_device(buffer, ramp(4), stream=closed)
        for call in (second_memory.make_stream, lambda: second_memory.alloc_device(1)):
            with pytest.raises(ClosedError, match=f"device '{second_memory.name}' is closed"):
                call()

    def test_leaving_the_block_does_not_hide_the_callers_exception(
        self, second_memory: Device
    ) -> None:
        with pytest.raises(KeyError), second_memory.make_stream():
            raise KeyError


@pytest.mark.parametrize("dtype", ["float32", "float64"])
class TestMaths:
    def test_axpy_and_scale_round_as_the_dtype_does(
        self, second_memory: Device, stream: Stream, dtype: str
    ) -> None:
        rng = np.random.default_rng(0)
        x, y = (rng.standard_normal(1000).astype(dtype) for _ in range(2))
        alpha = np.dtype(dtype).type(0.1)
        there_x, there_y = (on_device(second_memory, a, stream) for a in (x, y))
        second_memory.axpy(there_y, there_x, alpha=0.1, dtype=dtype, stream=stream)
        second_memory.scale(there_x, alpha=0.1, dtype=dtype, stream=stream)
        got_y, got_x = (fetched(second_memory, b, stream).view(dtype) for b in (there_y, there_x))
        assert got_x.tolist() == (x * alpha).tolist()
        # A GPU may fuse the two roundings into one.
        assert np.allclose(got_y, y + x * alpha, rtol=4 * np.finfo(dtype).eps)

    def test_minus_one_times_the_diff_is_exactly_a_subtraction(
        self, second_memory: Device, stream: Stream, dtype: str
    ) -> None:
        data, diff = np.array([1, 2.5, -3], dtype), np.array([0.1, 0.2, 0.3], dtype)
        y, x = (on_device(second_memory, a, stream) for a in (data, diff))
        second_memory.axpy(y, x, alpha=-1.0, dtype=dtype, stream=stream)
        assert fetched(second_memory, y, stream).view(dtype).tolist() == (data - diff).tolist()

    def test_sums_are_over_all_values(
        self, second_memory: Device, stream: Stream, dtype: str
    ) -> None:
        x = on_device(second_memory, np.array([3, -4, 0.5], dtype), stream)
        assert second_memory.asum(x, dtype=dtype, stream=stream) == 7.5
        assert second_memory.sumsq(x, dtype=dtype, stream=stream) == 25.25
        empty = second_memory.alloc_device(0)
        assert second_memory.asum(empty, dtype=dtype, stream=stream) == 0.0

    def test_infinities_and_nans_are_computed_without_a_word(
        self, second_memory: Device, stream: Stream, dtype: str
    ) -> None:
        x = on_device(second_memory, np.array([np.inf, np.finfo(dtype).max], dtype), stream)
        second_memory.scale(x, alpha=4.0, dtype=dtype, stream=stream)
        assert np.isinf(fetched(second_memory, x, stream).view(dtype)).all()
        second_memory.axpy(x, x, alpha=-1.0, dtype=dtype, stream=stream)
        assert np.isnan(second_memory.asum(x, dtype=dtype, stream=stream))

    def test_buffers_that_do_not_fit_are_refused(
        self, second_memory: Device, stream: Stream, dtype: str
    ) -> None:
        item = np.dtype(dtype).itemsize
        x, odd = second_memory.alloc_device(item), second_memory.alloc_device(item + 1)
        with pytest.raises(BufferMismatchError, match=f"found {item + 1} bytes"):
            second_memory.asum(odd, dtype=dtype, stream=stream)
        with pytest.raises(BufferMismatchError, match=f"x: expected {item} bytes"):
            second_memory.axpy(x, odd, alpha=1.0, dtype=dtype, stream=stream)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float16", ">f4"])
def test_there_is_no_maths_on_other_dtypes(
    second_memory: Device, stream: Stream, dtype: str
) -> None:
    x = second_memory.alloc_device(8)
    with pytest.raises(DtypeError, match="asum: expected dtype float32 or float64, found"):
        second_memory.asum(x, dtype=dtype, stream=stream)
