"""A slot by itself: its memory, its lease, and what is left when a batch is over."""

from __future__ import annotations

from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memory import Blob, SimulatedDevice, open_device
from memory.testing import hold, peek
from prefetch._plan.order import Order
from prefetch._ring.filling import Filling, Parts
from prefetch._ring.keep_until import Keeper
from prefetch._ring.lease import LeaseEnd
from prefetch._ring.push_block import HostBlock, labels_at
from prefetch._ring.slot import Occupancy, Slot
from prefetch._ring.slot_state import SlotState
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


def made(device: Device, **options: Any) -> tuple[Slot, SimpleQueue[Any]]:
    returns: SimpleQueue[Any] = SimpleQueue()
    slot = Slot(3, device, returns, occupancy=Occupancy(), keeper=Keeper(device), **options)
    return slot, returns


def pushed(slot: Slot) -> Slot:
    with slot.device.make_stream("copies") as stream:
        filling_of(slot).push(stream)
    return slot


def lent_bytes(slot: Slot) -> int:
    assert slot.block is not None
    return slot.block.nbytes


def filling_of(slot: Slot) -> Filling:
    assert isinstance(slot.filling, Filling)
    return slot.filling


def begun(slot: Slot, size: int = 4, *, first: int = 0) -> Slot:
    """Begin to fill a slot with a planned batch, in the block that it had before, if any."""
    if slot.filling is not None:
        over(slot)
    block = None
    if slot.device.has_device_memory:
        block = slot.block or HostBlock(slot.device)
    filling = Filling(slot, 0, block)
    filling.planned = Order(100, size, first_served=first).plan(0)
    return slot


def over(slot: Slot) -> None:
    """Forget a slot's batch, and have it free again."""
    filling_of(slot).forget()
    slot.events.clear()
    slot.streams.clear()
    slot.drain()


def shaped(
    slot: Slot,
    *,
    most_rows: int = 4,
    sample: tuple[int, ...] = SAMPLE,
    label_dtype: npt.DTypeLike | None = I8,
) -> Slot:
    labels = None if label_dtype is None else np.dtype(label_dtype)
    filling = filling_of(slot)
    assert filling.lease is not None
    shape = (filling.size, *sample)
    filling.contents = slot.bind(shape, F4, labels, filling.lease, most_rows=most_rows)
    return slot


def arrays(slot: Slot) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    data, labels = contents(slot)
    assert isinstance(data, np.ndarray)
    assert isinstance(labels, np.ndarray)
    return data, labels


def contents(slot: Slot) -> tuple[Any, Any]:
    found = filling_of(slot).contents
    assert found is not None
    return found


def address(slot: Slot) -> int:
    found: int = arrays(slot)[0].__array_interface__["data"][0]
    return found


def arrivals(returns: SimpleQueue[Any]) -> list[Any]:
    return [returns.get_nowait() for _ in range(returns.qsize())]


def test_a_new_slot_is_free_and_has_neither_batch_nor_memory() -> None:
    slot, returns = made(open_device("cpu"))
    assert (slot.number, slot.state, slot.filling) == (3, SlotState.FREE, None)
    assert not slot.is_held
    assert (slot.streams, slot.events) == ([], [])
    assert (slot.memory.host_bytes, slot.memory.device_bytes) == (0, 0)
    assert returns.empty()


def test_a_filling_that_begins_has_nothing_but_a_lease() -> None:
    slot, _ = made(open_device("cpu"))
    filling = Filling(slot, 7)
    assert (filling.sequence, filling.slot, slot.filling) == (7, slot, filling)
    assert filling.lease is not None
    assert (filling.size, filling.parts, filling.shape, filling.contents) == (0, None, None, None)
    assert (filling.planned, filling.indices, filling.words, filling.records) == (None,) * 4
    assert (filling.keys, filling.bad, filling.bad_to_log) == ({}, {}, ())
    assert (filling.failure, filling.is_discarded, filling.is_small_raw) == (None, False, False)


def test_memory_has_room_for_the_largest_batch_at_once() -> None:
    slot, _ = made(open_device("cpu"))
    shaped(begun(slot, 3), most_rows=7)
    assert slot.memory.host_bytes == 7 * ROW_BYTES + 7 * 8
    assert slot.memory.device_bytes == 0
    data, labels = arrays(slot)
    assert (data.shape, data.dtype) == ((3, *SAMPLE), F4)
    assert (labels.shape, labels.dtype) == ((3,), I8)
    assert data.flags.writeable
    assert data.flags.c_contiguous


def test_memory_is_never_less_than_the_batch_whatever_is_said_of_the_largest() -> None:
    slot, _ = made(open_device("cpu"))
    shaped(begun(slot, 9), most_rows=2)
    assert slot.memory.host_bytes == 9 * ROW_BYTES + 9 * 8
    arrays(slot)[0][:] = 1
    arrays(slot)[1][:] = 1


def test_the_same_memory_serves_batch_after_batch_and_grows_only_where_it_must() -> None:
    slot, _ = made(open_device("cpu"))
    shaped(begun(slot, 4))
    first = address(slot)
    shaped(begun(slot, 2))
    assert address(slot) == first
    shaped(begun(slot, 4))  # to the last byte
    assert address(slot) == first
    assert slot.memory.host_bytes == 4 * ROW_BYTES + 4 * 8
    shaped(begun(slot, 4), sample=(3, 4, 6))
    assert slot.memory.host_bytes == 4 * 3 * 4 * 6 * 4 + 4 * 8


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
        shaped(begun(slot), sample=(5, 5, 5), label_dtype=None)
        assert device.host_before == [0, 0]
        assert device.device_before == [0, 0]
        assert (lent_bytes(slot), slot.memory.device_bytes) == (4 * 5**3 * 4, 4 * 5**3 * 4)
        slot.close()


def test_so_does_what_was_staged_for_a_batch_that_was_given_up() -> None:
    with Counting() as device:
        transform = DeviceTransform(Transform(train=False), device)
        slot, _ = made(device, transform=transform)
        device.host_before.clear()
        shaped(begun(slot), label_dtype=None)
        shaped(begun(slot), sample=(5, 5, 5), label_dtype=None)
        assert device.host_before == [0, 0]
        slot.close()


def test_without_labels_there_is_no_memory_for_them(device: SimulatedDevice) -> None:
    slot, _ = made(device)
    shaped(begun(slot), label_dtype=None)
    assert contents(slot)[1] is None
    assert (lent_bytes(slot), slot.memory.device_bytes) == (4 * ROW_BYTES, 4 * ROW_BYTES)
    pushed(slot)
    assert len(slot.events) == 1
    blob, labels = contents(slot)
    assert labels is None
    assert isinstance(blob, Blob)
    del blob
    slot.close()


def test_data_and_labels_are_one_copy_each_aligned(device: SimulatedDevice) -> None:
    slot, _ = made(device)
    shaped(begun(slot))
    data, labels = arrays(slot)
    start = labels_at(data.nbytes)
    assert labels.__array_interface__["data"][0] == address(slot) + start
    before = device.stats().num_to_device
    pushed(slot)
    assert device.stats().num_to_device == before + 1
    blobs = [blob.gpu_data() for blob in contents(slot)]
    assert blobs[1].ptr == blobs[0].ptr + start
    assert start % 256 == 0
    assert lent_bytes(slot) == slot.memory.device_bytes == start + labels.nbytes
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
    assert slot.block is None
    blob, label_blob = contents(slot)
    assert (blob.numpy() == 5).all()
    assert (label_blob.numpy() == 6).all()
    del blob, label_blob
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
            filling_of(slot).push(stream)
            assert len(slot.events) == 1
            assert not any(event.done() for event in slot.events)
        stream.synchronize()
        assert all(event.done() for event in slot.events)
    blob, label_blob = contents(slot)
    assert np.array_equal(peek(blob).reshape(4, -1)[:, 7], [0, 1, 2, 3])
    assert np.array_equal(peek(label_blob), [7, 8, 9, 10])
    del blob, label_blob
    slot.close()


def test_a_batch_counts_as_held_while_the_consumer_has_anything_of_it() -> None:
    slot, returns = made(open_device("cpu"))
    shaped(begun(slot))
    held = [slot.is_held]  # it is being filled
    slot.publish()
    held.append(slot.is_held)
    slot.take()
    held.append(slot.is_held)
    kept = arrays(slot)[0][1:2]
    filling_of(slot).forget()
    held.append(slot.is_held)
    assert returns.empty()
    del kept
    held.append(slot.is_held)
    assert held == [False, False, True, True, False]
    (arrival,) = arrivals(returns)
    assert isinstance(arrival, LeaseEnd)
    assert arrival.slot is slot


def test_a_batch_that_is_over_leaves_the_memory_alone_and_keeps_none() -> None:
    slot, returns = made(open_device("cpu"))
    filling = filling_of(shaped(begun(slot)))
    filling.fail(2, ValueError("wrong"))
    room = slot.memory.host_bytes
    filling.forget()
    assert (filling.words, filling.contents, filling.lease, filling.failure) == (None,) * 4
    assert slot.memory.host_bytes == room
    assert len(arrivals(returns)) == 1
    filling.forget()
    assert returns.empty()
    assert slot.filling is filling
    slot.drain()
    assert slot.filling is None


class Records:
    """Stands for the records of a walk."""

    def __init__(self) -> None:
        self.num_released = 0

    def release(self) -> None:
        self.num_released += 1


def test_records_are_let_go_of_once() -> None:
    slot, _ = made(open_device("cpu"))
    records: Any = Records()
    filling = filling_of(begun(slot))
    filling.records = records
    filling.release_records()
    filling.release_records()
    filling.forget()
    assert records.num_released == 1
    filling = filling_of(begun(slot))
    filling.records = records
    filling.forget()
    assert records.num_released == 2
    assert filling.records is None


@pytest.mark.parametrize("has_memory", [False, True])
def test_a_batch_that_is_given_back_comes_back_once(*, has_memory: bool) -> None:
    slot, returns = made(open_device("cpu"))
    begun(slot)
    if has_memory:
        shaped(slot)
    filling_of(slot).forget()
    (arrival,) = arrivals(returns)
    assert isinstance(arrival, LeaseEnd)
    assert arrival.slot is slot


@pytest.mark.parametrize(
    ("size", "num", "expected"),
    [
        (4, 1, [(0, 0, 4)]),
        (10, 4, [(0, 0, 3), (1, 3, 6), (2, 6, 9), (3, 9, 10)]),
        (5, 4, [(0, 0, 2), (1, 2, 4), (2, 4, 5)]),
        (1, 1, [(0, 0, 1)]),
    ],
)
def test_parts_are_given_in_order_and_done_with_the_last(
    size: int, num: int, expected: list[tuple[int, int, int]]
) -> None:
    parts = Parts(size, num)
    assert (parts.num, parts.num_left, parts.is_idle) == (len(expected), len(expected), True)
    assert [parts.give() for _ in range(parts.num)] == expected
    assert (parts.num_left, parts.is_idle) == (0, False)
    done = [parts.done() for _ in range(parts.num)]
    assert done == [False] * (len(expected) - 1) + [True]
    assert parts.is_idle


def test_a_stream_is_noted_once_by_whatever_holds_the_batch(device: SimulatedDevice) -> None:
    slot, _ = made(device)
    pushed(shaped(begun(slot)))
    blob, lease = contents(slot)[0], filling_of(slot).lease
    assert lease is not None
    with device.make_stream("one") as one, device.make_stream("two") as two:
        for stream in (one, two, one):
            lease.note_use(stream)
        assert slot.streams == [one, two]
        slot.streams.clear()
        with device.use_stream(two):
            blob.gpu_data()
        assert slot.streams == [two]
    del blob, lease
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
    assert (slot.memory.host_bytes, slot.memory.device_bytes, slot.events) == (0, 0, [])
    assert device.memory_info().host_allocated_bytes == before + 4 * ROW_BYTES
    assert (data == 5).all()
    del data
    assert device.memory_info().host_allocated_bytes == before


def test_closing_leaves_a_batch_that_is_held_on_the_device(device: SimulatedDevice) -> None:
    slot, _ = made(device)
    shaped(begun(slot))
    arrays(slot)[0][:] = 5
    blob = contents(pushed(slot))[0]
    slot.leave_block()
    slot.close()
    assert (slot.memory.device_bytes, slot.events) == (0, [])
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
