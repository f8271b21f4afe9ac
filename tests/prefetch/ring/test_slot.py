"""A slot by itself: its memory, its lease, and what is left when a batch is over."""

from __future__ import annotations

from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memory import SimulatedDevice, open_device
from memory.testing import hold, peek
from prefetch._plan.order import Order
from prefetch._ring.lease import LeaseEnd
from prefetch._ring.push_block import HostBlock, labels_at
from prefetch._ring.slot import Slot, SlotState
from prefetch._transform.device import DeviceTransform
from prefetch._transform.options import Transform

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from memory import Device, DeviceBuffer, HostBuffer

SAMPLE = (3, 4, 5)
ROW_BYTES = 3 * 4 * 5 * 4
I8, F4 = np.dtype(np.int64), np.dtype(np.float32)


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    with SimulatedDevice() as device:
        yield device


def made(device: Device) -> tuple[Slot, SimpleQueue[Any]]:
    returns: SimpleQueue[Any] = SimpleQueue()
    slot = Slot(3, device, returns)
    if device.has_device_memory:
        slot.block = HostBlock(device)
    return slot, returns


def pushed(slot: Slot) -> Slot:
    with slot.device.make_stream("copies") as stream:
        slot.push(stream)
    return slot


def lent_bytes(slot: Slot) -> int:
    assert slot.block is not None
    return slot.block.nbytes


def begun(slot: Slot, size: int = 4, *, first: int = 0) -> Slot:
    planned = Order(100, size, first_served=first).plan(0)
    assert planned is not None
    slot.begin(planned, words=np.zeros((size, 3), np.uint32), records=None)
    return slot


def shaped(
    slot: Slot,
    *,
    most_rows: int = 4,
    sample: tuple[int, ...] = SAMPLE,
    label_dtype: npt.DTypeLike | None = I8,
) -> Slot:
    labels = None if label_dtype is None else np.dtype(label_dtype)
    slot.shape(sample, dtype=F4, label_dtype=labels, most_rows=most_rows)
    return slot


def arrays(slot: Slot) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    assert isinstance(slot.data, np.ndarray)
    assert slot.labels is not None
    return slot.data, slot.labels


def address(slot: Slot) -> int:
    found: int = arrays(slot)[0].__array_interface__["data"][0]
    return found


def arrivals(returns: SimpleQueue[Any]) -> list[Any]:
    return [returns.get_nowait() for _ in range(returns.qsize())]


def test_a_new_slot_is_free_and_has_neither_batch_nor_memory() -> None:
    slot, returns = made(open_device("cpu"))
    assert (slot.number, slot.state, slot.sequence) == (3, SlotState.FREE, -1)
    assert (slot.size, slot.num_parts, slot.next_part, slot.parts_done) == (0, 0, 0, 0)
    assert (slot.is_raw, slot.is_small_raw, slot.is_guessed) == (False, False, False)
    assert (slot.discarded, slot.is_held) == (False, False)
    assert (slot.streams, slot.events) == ([], [])
    assert (slot.planned, slot.lease, slot.failure) == (None, None, None)
    assert (slot.host_bytes, slot.device_bytes) == (0, 0)
    assert returns.empty()


def test_a_batchs_indices_are_its_own_copy_of_the_plan() -> None:
    slot = begun(made(open_device("cpu"))[0], first=20)
    assert slot.size == 4
    assert slot.indices is not None
    slot.indices[:] = -1
    assert slot.planned is not None
    assert slot.planned.records.tolist() == [20, 21, 22, 23]


def test_what_was_walked_and_drawn_for_a_batch_is_the_slots() -> None:
    slot, _ = made(open_device("cpu"))
    planned, words, records = Order(9, 3).plan(1), np.ones((3, 3), np.uint32), Records()
    assert planned is not None
    walked: Any = records
    slot.begin(planned, words=words, records=walked)
    assert slot.planned is planned
    assert slot.words is words
    assert slot.records is walked
    slot.forget()
    assert records.num_released == 1


def test_memory_has_room_for_the_largest_batch_at_once() -> None:
    slot, _ = made(open_device("cpu"))
    shaped(begun(slot, 3), most_rows=7)
    assert slot.host_bytes == 7 * ROW_BYTES + 7 * 8
    assert slot.device_bytes == 0
    data, labels = arrays(slot)
    assert (data.shape, data.dtype) == ((3, *SAMPLE), F4)
    assert (labels.shape, labels.dtype) == ((3,), I8)
    assert data.flags.writeable
    assert data.flags.c_contiguous


def test_memory_is_never_less_than_the_batch_whatever_is_said_of_the_largest() -> None:
    slot, _ = made(open_device("cpu"))
    shaped(begun(slot, 9), most_rows=2)
    assert slot.host_bytes == 9 * ROW_BYTES + 9 * 8
    arrays(slot)[0][:] = 1
    arrays(slot)[1][:] = 1


def test_the_same_memory_serves_batch_after_batch_and_grows_only_where_it_must() -> None:
    slot, _ = made(open_device("cpu"))
    shaped(begun(slot, 4))
    first = address(slot)
    slot.forget()
    shaped(begun(slot, 2))
    assert address(slot) == first
    slot.forget()
    shaped(begun(slot, 4))  # to the last byte
    assert address(slot) == first
    assert slot.host_bytes == 4 * ROW_BYTES + 4 * 8
    slot.forget()
    shaped(begun(slot, 4), sample=(3, 4, 6))
    assert slot.host_bytes == 4 * 3 * 4 * 6 * 4 + 4 * 8


class Counting(SimulatedDevice):
    """Notes at each allocation what is allocated already."""

    def __init__(self) -> None:
        super().__init__()
        self.host_before: list[int] = []
        self.device_before: list[int] = []

    def alloc_host(self, nbytes: int, *, zero: bool = False) -> HostBuffer:
        self.host_before.append(self.memory_info().host_allocated_bytes)
        return super().alloc_host(nbytes, zero=zero)

    def alloc_device(self, nbytes: int) -> DeviceBuffer:
        self.device_before.append(self.memory_info().allocated_bytes)
        return super().alloc_device(nbytes)


def test_the_old_memory_goes_before_the_larger_is_allocated() -> None:
    with Counting() as device:
        slot, _ = made(device)
        shaped(begun(slot), label_dtype=None)
        slot.forget()
        shaped(begun(slot), sample=(5, 5, 5), label_dtype=None)
        assert device.host_before == [0, 0]
        assert device.device_before == [0, 0]
        assert (lent_bytes(slot), slot.device_bytes) == (4 * 5**3 * 4, 4 * 5**3 * 4)
        slot.close()


def test_so_does_what_was_staged_for_a_batch_that_was_given_up() -> None:
    with Counting() as device:
        transform = DeviceTransform(Transform(train=False), device)
        slot = Slot(0, device, SimpleQueue(), transform=transform)
        slot.block = HostBlock(device)
        device.host_before.clear()
        shaped(begun(slot), label_dtype=None)
        slot.forget()
        shaped(begun(slot), sample=(5, 5, 5), label_dtype=None)
        assert device.host_before == [0, 0]
        slot.close()


def test_without_labels_there_is_no_memory_for_them(device: SimulatedDevice) -> None:
    slot, _ = made(device)
    shaped(begun(slot), label_dtype=None)
    assert slot.labels is None
    assert (lent_bytes(slot), slot.device_bytes) == (4 * ROW_BYTES, 4 * ROW_BYTES)
    pushed(slot)
    assert len(slot.events) == 1
    blob, labels = slot.contents()
    assert labels is None
    assert blob is slot.data_blob
    del blob
    slot.close()


def test_where_the_host_is_all_there_is_the_contents_are_arrays() -> None:
    slot, _ = made(open_device("cpu"))
    shaped(begun(slot))
    assert slot.contents() == (slot.data, slot.labels)


def test_data_and_labels_are_one_copy_each_aligned(device: SimulatedDevice) -> None:
    slot, _ = made(device)
    shaped(begun(slot))
    data, labels = arrays(slot)
    start = labels_at(data.nbytes)
    assert labels.__array_interface__["data"][0] == address(slot) + start
    before = device.stats().num_to_device
    pushed(slot)
    assert device.stats().num_to_device == before + 1
    blobs = [blob.gpu_data() for blob in (slot.data_blob, slot.label_blob) if blob is not None]
    assert blobs[1].ptr == blobs[0].ptr + start
    assert start % 256 == 0
    assert lent_bytes(slot) == slot.device_bytes == start + labels.nbytes
    del blobs
    slot.close()


def test_what_was_lent_is_left_and_the_hosts_bytes_come_from_elsewhere(
    device: SimulatedDevice,
) -> None:
    slot, _ = made(device)
    shaped(begun(slot))
    data, labels = arrays(slot)
    data[:], labels[:] = 5, 6
    pushed(slot)
    data[:], labels[:] = 8, 9  # as the next batch would
    block = slot.leave_block()
    assert block is not None
    assert (slot.block, slot.data, slot.labels) == (None, None, None)
    assert slot.data_blob is not None
    assert slot.label_blob is not None
    assert (slot.data_blob.numpy() == 5).all()
    assert (slot.label_blob.numpy() == 6).all()
    slot.close()


def test_what_is_pushed_is_on_the_device_when_its_events_have_passed(
    device: SimulatedDevice,
) -> None:
    slot, _ = made(device)
    shaped(begun(slot))
    data, labels = arrays(slot)
    data[:] = np.arange(4)[:, None, None, None]
    labels[:] = [7, 8, 9, 10]
    with device.make_stream("copies") as stream:
        with hold(stream):
            slot.push(stream)
            assert len(slot.events) == 1
            assert not any(event.done() for event in slot.events)
        stream.synchronize()
        assert all(event.done() for event in slot.events)
    blob, label_blob = slot.contents()
    assert np.array_equal(peek(blob).reshape(4, -1)[:, 7], [0, 1, 2, 3])
    assert np.array_equal(peek(label_blob), [7, 8, 9, 10])
    del blob, label_blob
    slot.close()


def test_a_batch_counts_as_held_while_the_consumer_has_anything_of_it() -> None:
    slot, returns = made(open_device("cpu"))
    shaped(begun(slot))
    held = [slot.is_held]  # it is being filled
    slot.state = SlotState.LEASED
    held.append(slot.is_held)
    kept = arrays(slot)[0][1:2]
    slot.forget()
    held.append(slot.is_held)
    assert returns.empty()
    del kept
    held.append(slot.is_held)
    assert held == [False, True, True, False]
    (arrival,) = arrivals(returns)
    assert isinstance(arrival, LeaseEnd)
    assert arrival.slot is slot


def test_a_batch_that_is_over_leaves_the_memory_alone() -> None:
    slot, returns = made(open_device("cpu"))
    shaped(begun(slot))
    slot.num_parts, slot.next_part, slot.parts_done, slot.part_size = 5, 4, 3, 2
    slot.is_raw = slot.is_small_raw = slot.is_guessed = slot.discarded = True
    slot.fail(2, ValueError("wrong"))
    room = slot.host_bytes
    slot.forget()
    assert (slot.num_parts, slot.next_part, slot.parts_done, slot.part_size) == (0, 0, 0, 0)
    assert (slot.planned, slot.words, slot.indices, slot.lease) == (None, None, None, None)
    assert (slot.data, slot.labels, slot.failure, slot.size) == (None, None, None, 0)
    assert (slot.is_raw, slot.is_small_raw, slot.is_guessed) == (False, False, False)
    assert slot.discarded is False
    assert (slot.keys, slot.bad, slot.news) == ({}, {}, [])
    assert slot.host_bytes == room
    assert len(arrivals(returns)) == 1


class Records:
    """Stands for the records of a walk."""

    def __init__(self) -> None:
        self.num_released = 0

    def release(self) -> None:
        self.num_released += 1


def test_records_are_let_go_of_once() -> None:
    slot, _ = made(open_device("cpu"))
    begun(slot)
    records: Any = Records()
    slot.records = records
    slot.release_records()
    slot.release_records()
    slot.forget()
    assert records.num_released == 1
    begun(slot)
    slot.records = records
    slot.forget()
    assert records.num_released == 2
    assert slot.records is None


@pytest.mark.parametrize("with_lease", [False, True])
def test_a_batch_that_is_given_back_comes_back_once(*, with_lease: bool) -> None:
    slot, returns = made(open_device("cpu"))
    if with_lease:
        shaped(begun(slot))
    slot.give_back()
    (arrival,) = arrivals(returns)
    assert (arrival.slot if with_lease else arrival) is slot
    assert isinstance(arrival, LeaseEnd) == with_lease


def test_a_stream_is_noted_once_by_whatever_holds_the_batch(device: SimulatedDevice) -> None:
    slot, _ = made(device)
    pushed(shaped(begun(slot)))
    blob = slot.data_blob
    assert blob is not None
    assert slot.lease is not None
    with device.make_stream("one") as one, device.make_stream("two") as two:
        for stream in (one, two, one):
            slot.lease.note_use(stream)
        assert slot.streams == [one, two]
        slot.streams.clear()
        with device.use_stream(two):
            blob.gpu_data()
        assert slot.streams == [two]
    del blob
    slot.close()
    assert slot.streams == []


def test_closing_frees_what_nobody_has_and_what_is_held_when_it_is_let_go_of() -> None:
    device = open_device("cpu")
    before = device.memory_info().host_allocated_bytes
    slot, _ = made(device)
    shaped(begun(slot))
    data = arrays(slot)[0]
    data[:] = 5
    slot.close()
    assert (slot.host_bytes, slot.device_bytes, slot.events) == (0, 0, [])
    assert device.memory_info().host_allocated_bytes == before + 4 * ROW_BYTES
    assert (data == 5).all()
    del data
    assert device.memory_info().host_allocated_bytes == before


def test_closing_leaves_a_batch_that_is_held_on_the_device(device: SimulatedDevice) -> None:
    slot, _ = made(device)
    shaped(begun(slot))
    arrays(slot)[0][:] = 5
    blob = pushed(slot).data_blob
    slot.leave_block()
    slot.close()
    assert (slot.device_bytes, slot.events) == (0, [])
    assert device.memory_info().host_allocated_bytes == 0
    assert (peek(blob) == 5).all()
    del blob
    assert device.memory_info().allocated_bytes == 0


def test_memory_is_kept_beyond_closing_until_every_event_has_passed(
    device: SimulatedDevice,
) -> None:
    slot, _ = made(device)
    shaped(begun(slot))
    with device.make_stream("one") as one, device.make_stream("two") as two:
        with hold(one), hold(two):
            slot.keep_memory_until([one.record(), two.record()])
            slot.close()
            assert device.memory_info().allocated_bytes == labels_at(4 * ROW_BYTES) + 4 * 8
        one.synchronize()
        two.synchronize()
    assert device.memory_info().allocated_bytes == 0


def test_memory_outlives_the_first_of_two_events(device: SimulatedDevice) -> None:
    slot, _ = made(device)
    shaped(begun(slot))
    with device.make_stream("one") as one, device.make_stream("two") as two:
        with hold(two):
            slot.keep_memory_until([one.record(), two.record()])
            slot.close()
            one.synchronize()
            assert device.memory_info().allocated_bytes == labels_at(4 * ROW_BYTES) + 4 * 8
        two.synchronize()
    assert device.memory_info().allocated_bytes == 0
