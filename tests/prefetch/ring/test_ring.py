"""Slots, leases and the schedule without any thread: each step is taken by the test."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memory import DeviceError, open_device
from memory.testing import hold
from prefetch import BatchesHeldError
from prefetch._bad_records.policy import BadRecords
from prefetch._pipeline.consumer_state import Claim, EndOfEpoch, Taken
from prefetch._pipeline.delivery import Delivery
from prefetch._pipeline.hand_over import hand_over
from prefetch._pipeline.held_batches import HeldBatches
from prefetch._pipeline.reader_jobs import Opening, Part, Schedule
from prefetch._plan.order import Order
from prefetch._ring.filling import Filling, FoundShape
from prefetch._ring.lease import LeaseEnd
from prefetch._ring.ring import Ring
from prefetch._ring.slot_state import SlotState

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory import Device
    from prefetch import Batch


class Bench:
    """A prefetcher's parts on a bench; the reader's steps are methods."""

    def __init__(
        self, device: Device | None = None, *, num_slots: int = 3, num_threads: int = 2
    ) -> None:
        self.device = device or open_device("cpu")
        self.order = Order(40, 4)
        self.ring = Ring(self.device, num_slots)
        self.schedule = Schedule(self.ring, self.order, num_threads=num_threads, prefetch=num_slots)
        self.held = HeldBatches(self.ring, prefetch=num_slots - 1, max_batches_held=5)
        self.delivery = Delivery(
            self.ring,
            self.schedule,
            self.order,
            BadRecords(skip=False, max_bad_records=0),
            held=self.held,
        )
        self.claim = Claim()

    def job(self) -> Opening | Part | None:
        self.delivery.drop_unwanted()
        self.ring.collect()
        return self.schedule.find_job()

    def open(self) -> Filling:
        """Take the next opening and plan it."""
        job = self.job()
        assert isinstance(job, Opening)
        self.plan(job.filling)
        return job.filling

    def plan(self, filling: Filling) -> None:
        filling.planned = self.order.plan(filling.sequence)
        assert filling.planned is not None
        filling.indices = filling.planned.records
        self.schedule.planning_done()

    def shape(self, filling: Filling, sample: tuple[int, ...] = (1, 2, 2)) -> Part | None:
        assert filling.lease is not None
        filling.shape = FoundShape(sample)
        filling.contents = filling.slot.bind(
            (4, *sample), np.dtype("f4"), np.dtype("i8"), filling.lease, most_rows=4
        )
        return self.schedule.split_into_parts(filling)

    def fill(self, filling: Filling) -> None:
        """Shape, fill and publish a batch of one part."""
        assert self.shape(filling) is not None
        assert filling.contents is not None
        filling.contents[0][:] = filling.sequence
        assert self.schedule.part_done(filling)
        if self.device.has_device_memory:
            with self.device.make_stream("reader") as stream:
                filling.push(stream)
        self.schedule.finish(filling)
        self.delivery.add(filling)

    def take(self) -> Batch | None:
        """Do as next() does."""
        self.ring.collect()
        taken = Taken()
        if not self.delivery.poll(self.claim, taken):
            return None
        batch = hand_over(taken)
        taken.batch, taken.is_over = None, True
        return batch


def test_only_one_slot_is_opened_at_a_time() -> None:
    bench = Bench()
    job = bench.job()
    assert isinstance(job, Opening)
    assert bench.job() is None
    bench.schedule.planning_done()
    second = bench.job()
    assert isinstance(second, Opening)
    assert (job.filling.sequence, second.filling.sequence) == (0, 1)


def test_no_part_is_handed_out_before_the_first_record_has_fixed_the_shape() -> None:
    bench = Bench(num_slots=1)
    filling = bench.open()
    assert bench.job() is None
    part = bench.shape(filling, (1, 256, 256))
    assert part == Part(filling, 0, 0, 1)
    assert [bench.job() for _ in range(4)] == [
        Part(filling, 1, 1, 2),
        Part(filling, 2, 2, 3),
        Part(filling, 3, 3, 4),
        None,
    ]


def test_a_small_batch_is_one_part() -> None:
    bench = Bench(num_slots=1)
    filling = bench.open()
    assert bench.shape(filling) == Part(filling, 0, 0, 4)


def test_the_oldest_batch_is_filled_first() -> None:
    bench = Bench(num_slots=2)
    first, second = bench.open(), bench.open()
    bench.shape(second, (1, 256, 256))
    bench.shape(first, (1, 256, 256))
    job = bench.job()
    assert isinstance(job, Part)
    assert job.filling is first


def test_batches_are_served_in_order_whatever_is_ready_first() -> None:
    bench = Bench()
    fillings = [bench.open() for _ in range(3)]
    bench.fill(fillings[2])
    bench.fill(fillings[1])
    assert bench.take() is None
    bench.fill(fillings[0])
    numbers = []
    for _ in range(3):
        batch = bench.take()
        assert batch is not None
        numbers.append(batch.number)
        del batch
    assert numbers == [0, 1, 2]


def test_a_slot_is_free_again_when_the_last_export_is_gone_and_not_before() -> None:
    bench = Bench(num_slots=1)
    filling = bench.open()
    slot = filling.slot
    bench.fill(filling)
    batch = bench.take()
    assert batch is not None
    view: Any = batch.data.numpy()[1:2]
    batch.release()
    del batch
    bench.ring.collect()
    assert (slot.state, bench.ring.num_free) == (SlotState.LEASED, 0)
    del view
    bench.ring.collect()
    assert (slot.state, bench.ring.num_free) == (SlotState.FREE, 1)


def test_an_idle_reader_is_woken_by_a_finalizer() -> None:
    bench = Bench(num_slots=1)
    bench.fill(bench.open())
    batch = bench.take()
    assert batch is not None
    assert bench.ring.inbox.empty()
    cycle: list[Any] = [batch]
    cycle.append(cycle)
    del batch, cycle
    gc.collect()
    arrival = bench.ring.inbox.get_nowait()
    assert isinstance(arrival, LeaseEnd)
    assert arrival.slot is bench.ring.slots[0]


def test_whoever_makes_work_wakes_as_many_idle_readers_as_there_is_work_for() -> None:
    bench = Bench(num_slots=1)
    filling = bench.open()
    bench.schedule.num_idle = 8
    bench.shape(filling, (1, 256, 256))
    assert bench.ring.inbox.qsize() == 3


def test_a_drained_slot_waits_for_every_stream_that_was_handed_it() -> None:
    device = open_device("simulated")
    bench = Bench(device, num_slots=1)
    bench.fill(bench.open())
    batch = bench.take()
    assert batch is not None
    streams = [device.make_stream(f"consumer {number}") for number in range(2)]
    for stream in streams:
        with device.use_stream(stream):
            batch.data.gpu_data()
    with hold(streams[1]):
        with hold(streams[0]):
            del batch
            bench.ring.collect()
            assert [slot.state for slot in bench.ring.slots].count(SlotState.DRAINING) == 1
        streams[0].synchronize()
        bench.ring.collect()
        assert [slot.state for slot in bench.ring.slots].count(SlotState.DRAINING) == 1
    streams[1].synchronize()
    bench.ring.collect()
    assert [slot.state for slot in bench.ring.slots].count(SlotState.FREE) == 1
    for stream in streams:
        stream.close()
    device.close()


def test_a_slot_waits_for_its_own_push_where_no_stream_was_handed_it() -> None:
    """Of a batch that nobody has taken, the push may be under way when it is dropped."""
    device = open_device("simulated")
    bench = Bench(device, num_slots=1)
    filling = bench.open()
    bench.shape(filling)
    with device.make_stream("reader") as stream:
        with hold(stream):
            filling.push(stream)
            filling.forget()
            bench.schedule.finish(filling)
            bench.ring.collect()
            assert [slot.state for slot in bench.ring.slots].count(SlotState.DRAINING) == 1
            assert bench.ring.num_free == 0
        stream.synchronize()
        bench.ring.collect()
        assert [slot.state for slot in bench.ring.slots].count(SlotState.FREE) == 1
    device.close()


def test_a_closed_stream_holds_up_no_slot() -> None:
    device = open_device("simulated")
    bench = Bench(device, num_slots=1)
    bench.fill(bench.open())
    batch = bench.take()
    assert batch is not None
    stream = device.make_stream("closed early")
    with device.use_stream(stream):
        batch.data.gpu_data()
    stream.close()
    del batch
    bench.ring.collect()
    device.current_stream().synchronize()  # which was put behind the copy
    bench.ring.collect()
    assert bench.ring.num_free == 1
    device.close()


def test_the_ring_grows_so_that_prefetch_stay_ahead_and_no_further_than_allowed() -> None:
    bench = Bench(num_slots=3)
    held = []
    for count in range(5):
        bench.fill(bench.open())
        held.append(bench.take())
        assert len(bench.ring.slots) == max(3, count + 2)
    with pytest.raises(BatchesHeldError) as caught:
        bench.take()
    assert caught.value.batches == tuple((0, number) for number in range(5))
    held.clear()
    assert bench.take() is None


def test_what_was_let_go_of_counts_no_more_although_a_reader_has_it_in_his_hands() -> None:
    """An idle reader takes what has come back off the queue before it can take the lock."""
    bench = Bench(num_slots=3)
    held = []
    for _ in range(5):
        bench.fill(bench.open())
        held.append(bench.take())
    bench.fill(bench.open())
    assert (bench.ring.occupancy.num_leased, bench.ring.num_held) == (5, 5)
    del held[2:4]
    in_hands = [bench.ring.inbox.get_nowait() for _ in range(2)]
    assert (bench.ring.occupancy.num_leased, bench.ring.num_held) == (5, 3)
    num_slots = len(bench.ring.slots)
    batch = bench.take()  # five are the most
    assert batch is not None
    assert len(bench.ring.slots) == num_slots
    for arrival in in_hands:
        bench.ring.accept(arrival)
    assert (bench.ring.occupancy.num_leased, bench.ring.num_held) == (4, 4)


def give_back(ring: Ring, filling: Filling) -> None:
    """Forget a batch, and have its slot free again."""
    filling.forget()
    ring.collect()


def test_slots_unneeded_for_64_batches_leave_the_ring_the_coldest_first() -> None:
    bench = Bench(num_slots=3)
    fillings = [bench.ring.acquire(0) for _ in range(3)]
    for _ in range(4):
        bench.ring.grow()
        fillings.append(bench.ring.acquire(0))
    slots = [filling.slot for filling in fillings]
    assert bench.ring.take_unneeded() == []  # all are in use
    for filling in fillings:
        give_back(bench.ring, filling)
    for _ in range(63):
        give_back(bench.ring, bench.ring.acquire(0))
        assert bench.ring.take_unneeded() == []
    give_back(bench.ring, bench.ring.acquire(0))
    assert bench.ring.take_unneeded() == slots[:4]
    assert bench.ring.slots == slots[4:]
    bench.ring.grow()
    assert bench.ring.slots[-1].number == 7


def test_a_batch_held_starts_the_count_of_unneeded_slots_anew() -> None:
    bench = Bench(num_slots=1)
    bench.ring.grow()
    for _ in range(3):
        for _ in range(63):
            give_back(bench.ring, bench.ring.acquire(0))
            assert bench.ring.take_unneeded() == []
        held = bench.ring.acquire(0)
        held.slot.publish()
        held.slot.take()
        assert bench.ring.take_unneeded() == []
        give_back(bench.ring, held)


@pytest.mark.parametrize("progress", ["opening", "planned", "shaped", "filled", "ready"])
def test_a_batch_that_nobody_wants_comes_back_from_wherever_it_is(progress: str) -> None:
    bench = Bench(num_slots=2)
    bench.delivery.claim(bench.claim)
    bench.fill(bench.open())
    assert bench.take() is not None
    bench.ring.collect()
    job = bench.job()
    assert isinstance(job, Opening)
    filling = job.filling
    if progress != "opening":
        bench.plan(filling)
    if progress in {"shaped", "filled", "ready"}:
        bench.shape(filling)
    if progress == "filled":
        filling.slot.upload()
        assert bench.schedule.part_done(filling)
    if progress == "ready":
        assert bench.schedule.part_done(filling)
        bench.schedule.finish(filling)
        bench.delivery.add(filling)

    bench.claim = Claim()
    bench.delivery.claim(bench.claim)  # the next epoch
    assert bench.delivery.served.next == 10

    if progress in {"opening", "planned"}:
        assert filling.is_discarded
        bench.schedule.retire(filling)
    elif progress == "shaped":
        assert not bench.schedule.part_done(filling)
    elif progress == "filled":
        assert filling.is_discarded
        bench.schedule.retire(filling)
    bench.delivery.drop_unwanted()
    bench.ring.collect()
    assert [slot.state for slot in bench.ring.slots].count(SlotState.FREE) == 2
    assert not bench.schedule.is_coming(filling.sequence)


def test_an_ended_claim_stays_ended() -> None:
    bench = Bench()
    bench.delivery.claim(bench.claim)
    bench.delivery.served = bench.delivery.served._replace(next=10)
    for _ in range(2):
        with pytest.raises(EndOfEpoch):
            bench.delivery.claim(bench.claim)
    assert bench.delivery.served.epoch == 1


def test_a_failed_slot_raises_in_its_turn_and_stops_the_planning() -> None:
    bench = Bench()
    first, second = bench.open(), bench.open()
    second.fail(3, ValueError("later place"))
    second.fail(1, ValueError("earlier place"))
    second.fail(2, ValueError("later place"))
    bench.schedule.finish(second)
    bench.delivery.add(second)
    assert bench.job() is None
    bench.fill(first)
    batch = bench.take()
    assert batch is not None
    with pytest.raises(ValueError, match="earlier place"):
        bench.take()


def test_wake_ups_are_not_taken_for_batches_that_have_come_back() -> None:
    bench = Bench()
    for _ in range(3):
        bench.fill(bench.open())
    held = [bench.take() for _ in range(2)]
    bench.ring.wake_reader()
    bench.held.make_room(is_next_ready=True, is_repeat=False)
    assert len(bench.ring.slots) == len(held) + 2
    bench.ring.collect()
    assert bench.ring.num_wake_ups == 0


def test_nor_is_the_event_of_a_block_that_can_be_lent_again() -> None:
    """Where it were, and no further call came, fewer batches would be ahead than were asked for."""
    with open_device("simulated") as device:
        bench = Bench(device)
        for _ in range(3):
            bench.fill(bench.open())
        held = [bench.take() for _ in range(2)]
        passed: Any = object()
        bench.ring.inbox.put(passed)
        bench.held.make_room(is_next_ready=True, is_repeat=False)
        assert len(bench.ring.slots) == len(held) + 2
        assert bench.ring.inbox.get_nowait() is passed
        del held
        bench.schedule.abandon()
        bench.delivery.abandon()
        bench.ring.close()


class _Mute:
    """An event of which the device cannot tell whether it has passed."""

    def done(self) -> bool:
        return False

    def notify(self, callback: Callable[[], None]) -> None:
        callback()


def test_a_block_of_whose_copy_the_device_cannot_tell_is_never_lent_again() -> None:
    with open_device("simulated") as device:
        ring = Ring(device, 1)
        filling = ring.acquire(0)
        mute: Any = _Mute()
        filling.slot.events.append(mute)
        ring.take_block(filling.slot)
        filling.forget()
        ring.collect()
        ring.failure = None  # of the slot
        for _ in range(3):
            ring.call_for_block()
            ring.collect()
        assert [DeviceError, False] == [type(ring.failure), ring.can_acquire]
        ring.close()


def test_a_block_is_free_when_its_copy_has_run_while_its_batch_is_held() -> None:
    device = open_device("simulated")
    bench = Bench(device, num_slots=2)
    bench.fill(bench.open())
    bench.fill(bench.open())
    held = bench.take()
    bench.ring.collect()
    pool = bench.ring.pool
    assert pool is not None
    assert bench.ring.host_bytes == sum(block.nbytes for block in pool.blocks) > 0
    assert len(pool.free) == len(pool.blocks) == 2
    assert bench.ring.num_held == 1
    del held
    device.current_stream().synchronize()
    bench.ring.collect()
    bench.schedule.abandon()
    bench.delivery.abandon()
    bench.ring.close()
    device.close()


def can_fill(bench: Bench) -> bool:
    return bench.ring.can_acquire


def test_what_was_lent_to_a_batch_that_nobody_wants_is_free_at_once_or_behind_its_copy() -> None:
    device = open_device("simulated")
    bench = Bench(device, num_slots=1)
    filling = bench.open()
    bench.shape(filling)
    bench.schedule.retire(filling)  # nothing was queued
    bench.ring.collect()
    assert can_fill(bench)
    filling = bench.open()
    bench.shape(filling)
    with device.make_stream("reader") as stream:
        with hold(stream):
            filling.push(stream)
            bench.schedule.retire(filling)
            bench.ring.collect()
            assert not can_fill(bench)
        stream.synchronize()
        bench.ring.collect()
        assert can_fill(bench)
    bench.ring.close()
    device.close()
