"""SyncedMemory: Caffe's table with real bytes, and Caffe's own cases."""

from __future__ import annotations

import itertools
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memory import (
    BufferMismatchError,
    ClosedError,
    DeviceMismatchError,
    Head,
    HeadError,
    NoDeviceMemoryError,
    SimulatedDevice,
    SyncedMemory,
)
from memory.testing import peek

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory import Device, DeviceBuffer, Stream

U, CPU, GPU, SYNCED = Head
NBYTES = 10
# What the bytes are at the start of a test that begins at this head.
OLD = {U: 0, CPU: 1, GPU: 2, SYNCED: 3}


def at(head: Head, device: Device, nbytes: int = NBYTES) -> SyncedMemory:
    """Return a memory whose head is there and whose bytes are all OLD[head]."""
    memory = SyncedMemory(nbytes, device)
    if head in {CPU, SYNCED}:
        memory.mutable_cpu_data()[:] = OLD[head]
    if head is SYNCED:
        memory.gpu_data()
    if head is GPU:
        fill(memory.mutable_gpu_data(), OLD[head])
    assert head == memory.head
    return memory


def fill(buffer: DeviceBuffer, value: int) -> None:
    """Set all bytes on the device, and wait for it."""
    stream = buffer.device.current_stream()
    buffer.device.fill(buffer, value, stream=stream)
    stream.synchronize()


def device_bytes(memory: SyncedMemory) -> set[int]:
    """Return which values the device's side has, once all that was asked of it has run."""
    memory.device.current_stream().synchronize()
    return set(peek(memory).tolist())


class TestTable:
    """Each cell, with the bytes that both sides then have."""

    @pytest.mark.parametrize(
        ("before", "after"), [(U, CPU), (CPU, CPU), (GPU, SYNCED), (SYNCED, SYNCED)]
    )
    def test_cpu_data_shows_the_newest_bytes(
        self, second_memory: Device, before: Head, after: Head
    ) -> None:
        memory = at(before, second_memory)
        assert {OLD[before]} == set(memory.cpu_data().tolist())
        assert after == memory.head

    @pytest.mark.parametrize("before", Head)
    def test_mutable_cpu_data_shows_the_newest_bytes_and_leaves_the_device_behind(
        self, second_memory: Device, before: Head
    ) -> None:
        memory = at(before, second_memory)
        view = memory.mutable_cpu_data()
        assert {OLD[before]} == set(view.tolist())
        assert memory.head is CPU
        view[:] = 9
        memory.gpu_data()
        assert {9} == device_bytes(memory)

    @pytest.mark.parametrize(
        ("before", "after"), [(U, GPU), (CPU, SYNCED), (GPU, GPU), (SYNCED, SYNCED)]
    )
    def test_gpu_data_has_the_newest_bytes(
        self, second_memory: Device, before: Head, after: Head
    ) -> None:
        memory = at(before, second_memory)
        buffer = memory.gpu_data()
        assert NBYTES == buffer.nbytes
        assert {OLD[before]} == device_bytes(memory)
        assert after == memory.head

    @pytest.mark.parametrize("before", Head)
    def test_mutable_gpu_data_has_the_newest_bytes_and_leaves_the_host_behind(
        self, second_memory: Device, before: Head
    ) -> None:
        memory = at(before, second_memory)
        buffer = memory.mutable_gpu_data()
        assert {OLD[before]} == device_bytes(memory)
        assert memory.head is GPU
        fill(buffer, 9)
        assert {9} == set(memory.cpu_data().tolist())
        assert memory.head is SYNCED

    @pytest.mark.parametrize("before", Head)
    def test_set_cpu_data_takes_the_array_for_the_newest_bytes(
        self, second_memory: Device, before: Head
    ) -> None:
        memory = at(before, second_memory)
        array = np.full(NBYTES, 9, np.uint8)
        memory.set_cpu_data(array)
        assert memory.head is CPU
        array[:] = 10
        assert {10} == set(memory.cpu_data().tolist())
        memory.gpu_data()
        assert {10} == device_bytes(memory)

    @pytest.mark.parametrize("before", Head)
    def test_set_gpu_data_takes_the_buffer_for_the_newest_bytes(
        self, second_memory: Device, before: Head
    ) -> None:
        memory = at(before, second_memory)
        buffer = second_memory.alloc_device(NBYTES)
        fill(buffer, 9)
        memory.set_gpu_data(buffer)
        assert memory.head is GPU
        assert buffer.ptr == memory.gpu_data().ptr
        assert {9} == set(memory.cpu_data().tolist())

    def test_async_gpu_push_has_the_head_at_synced_at_once(
        self, second_memory: Device, stream: Stream
    ) -> None:
        memory = at(CPU, second_memory)
        memory.async_gpu_push(stream)
        assert memory.head is SYNCED
        stream.synchronize()
        assert {OLD[CPU]} == device_bytes(memory)

    @pytest.mark.parametrize("before", [U, GPU, SYNCED])
    def test_async_gpu_push_of_nothing_new_is_refused_with_the_head_named(
        self, second_memory: Device, stream: Stream, before: Head
    ) -> None:
        memory = at(before, second_memory)
        with pytest.raises(HeadError, match=f"expected head HEAD_AT_CPU, found {before.name}"):
            memory.async_gpu_push(stream)
        assert before == memory.head

    @pytest.mark.parametrize("before", Head)
    def test_overwrite_cpu_data_makes_what_is_written_the_newest(
        self, second_memory: Device, before: Head
    ) -> None:
        memory = at(before, second_memory)
        memory.overwrite_cpu_data()[:] = 9
        assert memory.head is CPU
        memory.gpu_data()
        assert {9} == device_bytes(memory)

    @pytest.mark.parametrize("before", Head)
    def test_overwrite_gpu_data_makes_what_is_written_the_newest(
        self, second_memory: Device, before: Head
    ) -> None:
        memory = at(before, second_memory)
        fill(memory.overwrite_gpu_data(), 9)
        assert memory.head is GPU
        assert {9} == set(memory.cpu_data().tolist())

    @pytest.mark.parametrize(
        ("before", "call", "expected"),
        [
            (before, call, expected[head])
            for call, expected in {
                "cpu_data": "0010",
                "mutable_cpu_data": "0010",
                "gpu_data": "0100",
                "mutable_gpu_data": "0100",
                "overwrite_cpu_data": "0000",
                "overwrite_gpu_data": "0000",
            }.items()
            for head, before in enumerate(Head)
        ],
    )
    def test_bytes_cross_the_bus_only_where_the_table_says_so(
        self, simulated: SimulatedDevice, before: Head, call: str, expected: str
    ) -> None:
        memory = at(before, simulated)
        old = simulated.stats()
        getattr(memory, call)()
        new = simulated.stats()
        copies = new.num_to_host + new.num_to_device - old.num_to_host - old.num_to_device
        assert int(expected) == copies

    @pytest.mark.parametrize("before", [U, CPU])
    @pytest.mark.parametrize(
        "call",
        ["gpu_data", "mutable_gpu_data", "overwrite_gpu_data", "set_gpu_data", "async_gpu_push"],
    )
    def test_on_the_cpu_device_each_gpu_call_says_that_there_is_no_second_memory(
        self, before: Head, call: str
    ) -> None:
        memory = SyncedMemory(NBYTES)
        if before is CPU:
            memory.mutable_cpu_data()[:] = 1
        arguments = [None] if call in {"set_gpu_data", "async_gpu_push"} else []
        with pytest.raises(NoDeviceMemoryError, match=f"no second memory: {call} needs one"):
            getattr(memory, call)(*arguments)
        assert before == memory.head
        assert {int(before)} == set(memory.cpu_data().tolist())

    @pytest.mark.parametrize("before", [U, CPU])
    @pytest.mark.parametrize("call", ["cpu_data", "mutable_cpu_data"])
    def test_on_the_cpu_device_the_host_calls_are_the_tables(self, before: Head, call: str) -> None:
        memory = SyncedMemory(NBYTES)
        if before is CPU:
            memory.mutable_cpu_data()[:] = 1
        assert {int(before)} == set(getattr(memory, call)().tolist())
        assert memory.head is CPU


class TestCaffesOwnCases:
    """The cases of Caffe's test_syncedmem."""

    @pytest.mark.parametrize("nbytes", [10, 10 * 4])
    def test_initialization(self, device: Device, nbytes: int) -> None:
        memory = SyncedMemory(nbytes, device)
        assert (U, nbytes) == (memory.head, memory.size)

    def test_the_default_has_no_bytes(self) -> None:
        memory = SyncedMemory()
        assert (U, 0) == (memory.head, memory.size)
        assert (0,) == memory.cpu_data().shape

    def test_allocation_on_both_sides(self, second_memory: Device) -> None:
        memory = SyncedMemory(10, second_memory)
        assert (10,) == memory.cpu_data().shape == memory.mutable_cpu_data().shape
        assert 10 == memory.gpu_data().nbytes == memory.mutable_gpu_data().nbytes

    def test_cpu_write(self, device: Device) -> None:
        memory = SyncedMemory(10, device)
        for value in (1, 2):
            view = memory.mutable_cpu_data()
            assert memory.head is CPU
            view[:] = value
            assert {value} == set(memory.cpu_data().tolist())

    def test_gpu_read(self, second_memory: Device) -> None:
        memory = SyncedMemory(10, second_memory)
        for value in (1, 2):
            memory.mutable_cpu_data()[:] = value
            assert memory.head is CPU
            memory.gpu_data()
            assert memory.head is SYNCED
            assert {value} == device_bytes(memory)

    def test_gpu_write(self, second_memory: Device) -> None:
        memory = SyncedMemory(10, second_memory)
        for value in (1, 2):
            buffer = memory.mutable_gpu_data()
            assert memory.head is GPU
            fill(buffer, value)
            assert {value} == set(memory.cpu_data().tolist())
            assert memory.head is SYNCED


class TestSize:
    @pytest.mark.parametrize("size", [-1, sys.maxsize + 1, 1 << 70])
    def test_an_impossible_size_is_refused_before_anything_is_allocated(
        self, device: Device, size: int
    ) -> None:
        with pytest.raises(BufferMismatchError, match=f"found {size} bytes"):
            SyncedMemory(size, device)

    def test_a_size_that_no_machine_has_is_described_without_allocating(
        self, device: Device
    ) -> None:
        memory = SyncedMemory(sys.maxsize, device)
        assert sys.maxsize == memory.size
        info = device.memory_info()
        assert (0, 0) == (info.allocated_bytes, info.host_allocated_bytes)

    def test_a_size_that_is_no_integer_is_a_type_error(self) -> None:
        with pytest.raises(TypeError):
            SyncedMemory(1.5)  # type: ignore[arg-type]

    def test_no_bytes_go_through_every_call(self, second_memory: Device, stream: Stream) -> None:
        memory = SyncedMemory(0, second_memory)
        memory.cpu_data()
        memory.async_gpu_push(stream)
        memory.mutable_gpu_data()
        memory.cpu_data()
        memory.set_cpu_data(np.empty(0, np.uint8))
        memory.set_gpu_data(second_memory.alloc_device(0))
        assert (0,) == memory.overwrite_cpu_data().shape


class TestViews:
    def test_const_access_is_read_only(self, device: Device) -> None:
        view = SyncedMemory(NBYTES, device).cpu_data()
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1

    def test_changing_the_shape_of_a_view_leaves_the_memory_as_it_is(self, device: Device) -> None:
        memory = SyncedMemory(NBYTES, device)
        memory.mutable_cpu_data().flags.writeable = False
        view = memory.mutable_cpu_data()
        view[:] = 1
        assert (NBYTES,) == view.shape

    def test_a_view_outlives_its_memory(self, device: Device) -> None:
        memory = SyncedMemory(NBYTES, device)
        view = memory.mutable_cpu_data()
        view[:] = 7
        memory.close()
        del memory
        assert {7} == set(view[3:].tolist())

    def test_a_copy_from_the_device_lands_in_the_array_that_was_given(
        self, second_memory: Device
    ) -> None:
        memory = SyncedMemory(NBYTES, second_memory)
        array = np.zeros(NBYTES, np.uint8)
        memory.set_cpu_data(array)
        fill(memory.mutable_gpu_data(), 5)
        memory.cpu_data()
        assert {5} == set(array.tolist())

    def test_the_device_side_is_reused_after_set_cpu_data(self, second_memory: Device) -> None:
        memory = at(SYNCED, second_memory)
        before = memory.gpu_data().ptr
        memory.set_cpu_data(np.zeros(NBYTES, np.uint8))
        assert before == memory.gpu_data().ptr

    def test_fresh_contents_of_an_overwritten_side_are_not_zeroed(
        self, simulated: SimulatedDevice
    ) -> None:
        # The simulated device poisons what it allocates, so that zeroing would show.
        assert {0xCD} == set(SyncedMemory(NBYTES, simulated).overwrite_cpu_data().tolist())
        memory = SyncedMemory(NBYTES, simulated)
        memory.overwrite_gpu_data()
        assert {0xCB} == device_bytes(memory)


class TestCopyFrom:
    @pytest.mark.parametrize("target", Head)
    @pytest.mark.parametrize("source", Head)
    def test_the_bytes_are_the_sources_whatever_the_heads(
        self, second_memory: Device, source: Head, target: Head
    ) -> None:
        memory = at(target, second_memory)
        memory.copy_from(at(source, second_memory))
        assert (GPU if source in {GPU, SYNCED} else CPU) == memory.head
        assert {OLD[source]} == set(memory.cpu_data().tolist())

    @pytest.mark.parametrize(
        ("source", "target"), list(itertools.product(Head, [CPU, GPU, SYNCED]))
    )
    def test_a_part_leaves_the_rest(
        self, second_memory: Device, source: Head, target: Head
    ) -> None:
        memory = at(target, second_memory)
        memory.copy_from(at(source, second_memory), nbytes=4)
        assert [OLD[source]] * 4 + [OLD[target]] * 6 == memory.cpu_data().tolist()

    def test_another_devices_bytes_go_through_the_host(self, second_memory: Device) -> None:
        memory = SyncedMemory(NBYTES)
        memory.copy_from(at(GPU, second_memory))
        assert {OLD[GPU]} == set(memory.cpu_data().tolist())

    def test_device_to_device_stays_off_the_bus(self, simulated: SimulatedDevice) -> None:
        source = at(GPU, simulated)
        old = simulated.stats()
        SyncedMemory(NBYTES, simulated).copy_from(source)
        new = simulated.stats()
        assert (0, 0) == (new.num_to_host - old.num_to_host, new.num_to_device - old.num_to_device)

    @pytest.mark.parametrize("head", Head)
    def test_copying_to_itself_changes_nothing(self, second_memory: Device, head: Head) -> None:
        memory = at(head, second_memory)
        memory.copy_from(memory)
        assert head == memory.head
        assert {OLD[head]} == set(memory.cpu_data().tolist())

    def test_contents_that_are_about_to_be_overwritten_are_not_fetched(
        self, simulated: SimulatedDevice
    ) -> None:
        on_device, on_host = at(GPU, simulated), at(CPU, simulated)
        on_device.copy_from(at(CPU, simulated))
        on_host.copy_from(at(GPU, simulated))
        stats = simulated.stats()
        assert (0, 0) == (stats.num_to_host, stats.num_to_device)

    @pytest.mark.parametrize(("size", "nbytes"), [(4, None), (4, 5), (20, 11), (20, -1)])
    def test_more_bytes_than_either_has_are_refused(
        self, device: Device, size: int, nbytes: int | None
    ) -> None:
        memory = SyncedMemory(NBYTES, device)
        with pytest.raises(BufferMismatchError, match="copy_from: expected 0 to"):
            memory.copy_from(SyncedMemory(size, device), nbytes=nbytes)
        assert memory.head is U


class TestClosing:
    def test_closing_twice_is_closing_once(self, device: Device) -> None:
        memory = SyncedMemory(NBYTES, device)
        memory.cpu_data()
        memory.close()
        memory.close()
        assert "closed" in repr(memory)

    @pytest.mark.parametrize(
        "call",
        [
            lambda memory: memory.cpu_data(),
            lambda memory: memory.mutable_cpu_data(),
            lambda memory: memory.overwrite_cpu_data(),
            lambda memory: memory.gpu_data(),
            lambda memory: memory.mutable_gpu_data(),
            lambda memory: memory.overwrite_gpu_data(),
            lambda memory: memory.set_cpu_data(np.zeros(NBYTES, np.uint8)),
            lambda memory: memory.set_gpu_data(memory.device.alloc_device(NBYTES)),
            lambda memory: memory.async_gpu_push(memory.device.current_stream()),
        ],
    )
    def test_a_closed_memory_refuses_every_access(
        self, second_memory: Device, call: Callable[[SyncedMemory], object]
    ) -> None:
        with SyncedMemory(NBYTES, second_memory) as memory:
            memory.mutable_cpu_data()
        with pytest.raises(ClosedError, match="SyncedMemory 10 bytes"):
            call(memory)

    def test_closing_frees_both_sides(self, second_memory: Device) -> None:
        memory = at(SYNCED, second_memory)
        memory.close()
        info = second_memory.memory_info()
        assert (0, 0) == (info.num_buffers, info.num_host_buffers)

    def test_leaving_a_with_block_by_an_error_keeps_the_error(self, device: Device) -> None:
        with pytest.raises(KeyError), SyncedMemory(NBYTES, device):
            raise KeyError


class TestForeignDevices:
    def test_another_devices_buffer_is_refused(self, second_memory: Device) -> None:
        memory = SyncedMemory(NBYTES, second_memory)
        with SimulatedDevice() as other, pytest.raises(DeviceMismatchError, match="buffer"):
            memory.set_gpu_data(other.alloc_device(NBYTES))
        assert memory.head is U

    def test_another_devices_stream_is_refused(self, second_memory: Device) -> None:
        memory = at(CPU, second_memory)
        with (
            SimulatedDevice() as other,
            other.make_stream() as foreign,
            pytest.raises(DeviceMismatchError, match="stream"),
        ):
            memory.async_gpu_push(foreign)
        assert memory.head is CPU
        assert second_memory.memory_info().num_buffers == 0


def test_many_threads_that_need_a_copy_make_one(simulated: SimulatedDevice) -> None:
    memory = at(GPU, simulated, nbytes=1 << 16)
    gate = threading.Barrier(8)
    seen: list[set[int]] = []

    def read() -> None:
        gate.wait()
        seen.append(set(memory.cpu_data().tolist()))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [{OLD[GPU]}] * 8 == seen
    assert 1 == simulated.stats().num_to_host


def test_the_repr_shows_size_device_and_head_on_a_line(device: Device) -> None:
    memory = SyncedMemory(NBYTES, device)
    assert f"<SyncedMemory 10 bytes on {device.name}, UNINITIALIZED>" == repr(memory)
