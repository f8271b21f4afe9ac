"""Which work there is, and which slots there are, step by step and without any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memory import ClosedError, SimulatedDevice, open_device
from memory.testing import hold
from prefetch._pipeline.schedule import Opening, Part, Schedule
from prefetch._plan.order import Order
from prefetch._ring.ring import Ring
from prefetch._ring.slot import Slot, SlotState

if TYPE_CHECKING:
    from memory import Device

QUARTER_MIB = (1, 128, 128)  # four of it, float32, are 256 KiB
ONE_MIB = (1, 512, 512)
SMALL = (1, 2, 2)


class Bench:
    """A ring and its schedule."""

    def __init__(
        self,
        *,
        num_slots: int = 3,
        num_threads: int = 2,
        prefetch: int = 3,
        order: Order | None = None,
        device: Device | None = None,
    ) -> None:
        self.order = order or Order(400, 4)
        self.ring = Ring(device or open_device("cpu"), num_slots)
        self.schedule = Schedule(self.ring, self.order, num_threads=num_threads, prefetch=prefetch)

    def open(self) -> Slot:
        """Take the next opening and plan it."""
        job = self.schedule.find_job()
        assert isinstance(job, Opening)
        assert not job.is_planned
        planned = self.order.plan(job.slot.sequence)
        assert planned is not None
        words = np.zeros((len(planned.records), 3), np.uint32)
        job.slot.begin(planned, words=words, records=None)
        self.schedule.planned()
        return job.slot

    def shape(self, slot: Slot, sample: tuple[int, ...] = SMALL) -> Part | None:
        slot.shape(sample, dtype=np.dtype("f4"), label_dtype=None, most_rows=1)
        return self.schedule.shaped(slot)

    def parts(self, slot: Slot, sample: tuple[int, ...] = SMALL) -> list[tuple[int, int, int]]:
        """Shape a slot; return the parts that all readers are given of it."""
        part = self.shape(slot, sample)
        found = []
        while isinstance(part, Part):
            assert part.slot is slot
            found.append(part[1:])
            job = self.schedule.find_job() if slot.next_part < slot.num_parts else None
            part = job if isinstance(job, Part) else None
        return found

    def finish(self, slot: Slot) -> None:
        """Make a slot's batch ready, and taken: the consumer drops it."""
        self.schedule.finish(slot)
        slot.give_back()
        self.ring.collect()


def sequence(job: Opening | Part | None) -> int | None:
    return None if job is None else job.slot.sequence


# Openings -----------------------------------------------------------------------------------


def test_no_more_batches_are_opened_than_are_to_be_ahead_although_slots_are_free() -> None:
    bench = Bench(num_slots=5, prefetch=2)
    first, second = bench.open(), bench.open()
    assert bench.schedule.find_job() is None
    assert (bench.ring.num_free, bench.ring.num_ahead) == (3, 2)
    bench.finish(first)
    assert sequence(bench.schedule.find_job()) == 2
    assert second.state is SlotState.FILLING


def test_no_more_batches_are_opened_than_slots_are_free() -> None:
    bench = Bench(num_slots=1, prefetch=3)
    slot = bench.open()
    assert bench.schedule.find_job() is None
    bench.finish(slot)
    assert sequence(bench.schedule.find_job()) == 1


def test_no_batch_is_opened_behind_the_last() -> None:
    bench = Bench(order=Order(7, 4, epochs=1))
    assert [bench.open().sequence for _ in range(2)] == [0, 1]
    assert bench.schedule.find_job() is None


def test_no_batch_is_opened_where_a_reader_cannot_work() -> None:
    bench = Bench()
    bench.open()
    bench.schedule.over = True
    assert bench.schedule.find_job() is None
    assert bench.schedule.find_early_opening() is None


@pytest.mark.parametrize("failed", [(0,), (1,), (0, 1), (1, 0)])
def test_no_batch_is_opened_behind_one_that_failed(failed: tuple[int, ...]) -> None:
    bench = Bench(num_slots=6, prefetch=6)
    slots = [bench.open() for _ in range(2)]
    for number in failed:
        slots[number].fail(0, ValueError("wrong"))
        bench.schedule.finish(slots[number])
    assert bench.schedule.find_job() is None
    assert not bench.schedule.is_coming(failed[0])


def test_one_that_went_well_is_no_reason_to_stop() -> None:
    bench = Bench(num_slots=6, prefetch=6)
    bench.schedule.finish(bench.open())
    assert sequence(bench.schedule.find_job()) == 1


def test_an_opening_ahead_of_its_time_is_found_where_no_part_comes_before_it() -> None:
    bench = Bench()
    slot = bench.open()
    bench.shape(slot, QUARTER_MIB)
    assert bench.schedule.find_early_opening() is None
    while slot.next_part < slot.num_parts:
        assert isinstance(bench.schedule.find_job(), Part)
    assert sequence(bench.schedule.find_early_opening()) == 1
    assert bench.schedule.find_early_opening() is None  # one at a time


@pytest.mark.parametrize(
    ("prefetch", "expected"), [(1, 0), (2, 1), (3, 1), (4, 2), (7, 3), (8, 4), (9, 4), (64, 4)]
)
def test_half_of_what_is_ahead_is_filled_together_but_four_at_most(
    prefetch: int, expected: int
) -> None:
    assert Bench(prefetch=prefetch).schedule.max_batches_per_call == expected


# Parts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "num_threads", "sample", "expected"),
    [
        (4, 2, QUARTER_MIB, [(0, 0, 1), (1, 1, 2), (2, 2, 3), (3, 3, 4)]),
        (4, 2, (1, 128, 127), [(0, 0, 4)]),
        (4, 1, ONE_MIB, [(0, 0, 4)]),
        (10, 2, ONE_MIB, [(0, 0, 3), (1, 3, 6), (2, 6, 9), (3, 9, 10)]),
        (5, 2, ONE_MIB, [(0, 0, 2), (1, 2, 4), (2, 4, 5)]),
        (3, 8, ONE_MIB, [(0, 0, 1), (1, 1, 2), (2, 2, 3)]),
        (1, 8, ONE_MIB, [(0, 0, 1)]),
        (7, 3, ONE_MIB, [(0, 0, 2), (1, 2, 4), (2, 4, 6), (3, 6, 7)]),
    ],
)
def test_a_batch_of_256_kib_is_cut_in_two_parts_a_thread(
    size: int, num_threads: int, sample: tuple[int, ...], expected: list[tuple[int, int, int]]
) -> None:
    bench = Bench(num_threads=num_threads, order=Order(40, size))
    slot = bench.open()
    assert bench.parts(slot, sample) == expected
    assert slot.num_parts == len(expected)
    assert not slot.is_small_raw


@pytest.mark.parametrize(
    ("sample", "is_raw", "is_small_raw", "num_parts"),
    [
        (SMALL, True, True, 1),
        (SMALL, False, False, 1),
        ((1, 512, 511), True, True, 1),
        ((1, 512, 511), False, False, 4),
        (ONE_MIB, True, False, 4),
        (ONE_MIB, False, False, 4),
    ],
)
def test_a_raw_batch_below_4_mib_is_light_and_is_not_cut(
    sample: tuple[int, ...], num_parts: int, *, is_raw: bool, is_small_raw: bool
) -> None:
    bench = Bench()
    slot = bench.open()
    slot.is_raw = is_raw
    assert len(bench.parts(slot, sample)) == num_parts
    assert slot.is_small_raw is is_small_raw


def test_a_batch_is_complete_with_its_last_part_in_whatever_order_they_end() -> None:
    bench = Bench()
    slot = bench.open()
    assert len(bench.parts(slot, ONE_MIB)) == 4
    assert [bench.schedule.part_done(slot) for _ in range(4)] == [False, False, False, True]
    assert bench.schedule.is_coming(slot.sequence)
    bench.schedule.finish(slot)
    assert not bench.schedule.is_coming(slot.sequence)


def test_it_is_known_which_batches_are_coming_and_have_parts_left() -> None:
    bench = Bench()
    first, second = bench.open(), bench.open()
    assert [bench.schedule.is_coming(number) for number in range(-1, 3)] == [
        False,
        True,
        True,
        False,
    ]
    bench.shape(second, ONE_MIB)
    assert [bench.schedule.has_parts(number) for number in range(3)] == [False, True, False]
    for _ in range(3):
        assert bench.schedule.has_parts(1)
        assert isinstance(bench.schedule.find_job(), Part)
    assert not bench.schedule.has_parts(1)
    bench.shape(first)
    assert not bench.schedule.has_parts(0)  # the one part went to who shaped it


def test_parts_of_the_oldest_batch_come_before_those_of_later_ones_and_before_openings() -> None:
    bench = Bench()
    first, second = bench.open(), bench.open()
    bench.shape(second, ONE_MIB)
    bench.shape(first, ONE_MIB)
    jobs = [sequence(bench.schedule.find_job()) for _ in range(8)]
    assert jobs == [0, 0, 0, 1, 1, 1, 2, None]


def test_a_batch_that_nobody_wants_has_no_parts_to_give_and_ends_with_those_it_gave() -> None:
    bench = Bench(num_slots=1)
    slot = bench.open()
    bench.shape(slot, ONE_MIB)
    assert isinstance(bench.schedule.find_job(), Part)  # two of four are out
    slot.discarded = True
    assert bench.schedule.find_job() is None
    assert not bench.schedule.part_done(slot)
    assert bench.schedule.is_coming(0)
    bench.ring.collect()
    assert bench.ring.num_free == 0
    assert not bench.schedule.part_done(slot)
    assert not bench.schedule.is_coming(0)
    bench.ring.collect()
    assert (bench.ring.num_free, bench.ring.num_ahead, slot.state) == (1, 0, SlotState.FREE)


def test_a_batch_that_nobody_wants_when_its_shape_is_found_comes_back() -> None:
    bench = Bench(num_slots=1)
    slot = bench.open()
    slot.discarded = True
    assert bench.shape(slot, ONE_MIB) is None
    bench.ring.collect()
    assert (bench.ring.num_free, slot.state) == (1, SlotState.FREE)


def test_what_is_abandoned_all_comes_back_once() -> None:
    bench = Bench()
    first, _ = bench.open(), bench.open()
    bench.shape(first, ONE_MIB)
    assert isinstance(bench.schedule.find_job(), Part)
    bench.schedule.abandon()
    assert bench.ring.inbox.qsize() == 2
    bench.ring.collect()
    assert (bench.ring.num_free, bench.ring.num_ahead) == (3, 0)
    assert not bench.schedule.is_coming(0)


# Waking -------------------------------------------------------------------------------------


def test_idle_readers_are_woken_for_each_part_left_and_for_an_opening() -> None:
    bench = Bench()
    bench.schedule.num_idle = 9
    first = bench.open()  # its being planned makes an opening
    assert bench.ring.inbox.qsize() == 1
    bench.shape(first, ONE_MIB)  # three parts are left, and the opening
    assert bench.ring.inbox.qsize() == 1 + 4
    bench.schedule.wake_idle()
    assert bench.ring.inbox.qsize() == 1 + 4 + 4


def test_no_more_readers_are_woken_than_are_idle_and_none_for_what_nobody_wants() -> None:
    bench = Bench(num_slots=1)
    slot = bench.open()
    bench.shape(slot, ONE_MIB)
    for num_idle, expected in ((0, 0), (2, 2), (9, 3)):
        bench.schedule.num_idle = num_idle
        bench.schedule.wake_idle()
        woken = [bench.ring.inbox.get_nowait() for _ in range(bench.ring.inbox.qsize())]
        assert woken == [None] * expected
    slot.discarded = True
    bench.schedule.wake_idle()
    assert bench.ring.inbox.empty()


# The ring -----------------------------------------------------------------------------------


def test_the_slot_that_became_free_last_is_filled_next() -> None:
    ring = Bench(num_slots=3).ring
    slots = [ring.acquire() for _ in range(3)]
    for slot in (slots[1], slots[2], slots[0]):
        ring.accept(slot)
    assert (ring.num_free, ring.num_ahead) == (3, 0)
    assert [ring.acquire() for _ in range(3)] == [slots[0], slots[2], slots[1]]
    assert (ring.num_free, ring.num_ahead, ring.num_leased) == (0, 3, 0)
    assert ring.num_in(SlotState.FILLING) == 3
    assert ring.num_in(SlotState.FREE) == 0


def test_a_wake_up_brings_no_slot_and_loses_none() -> None:
    ring = Bench(num_slots=2).ring
    for _ in range(3):
        ring.inbox.put(None)
    ring.collect()
    assert ring.inbox.empty()
    assert (ring.num_free, ring.num_ahead, ring.failure) == (2, 0, None)


def test_a_batch_let_go_of_by_the_consumer_counts_as_his_and_an_unwanted_one_as_ahead() -> None:
    bench = Bench(num_slots=2)
    taken, unwanted = bench.open(), bench.open()
    taken.state = SlotState.LEASED
    bench.ring.num_ahead -= 1
    bench.ring.num_leased += 1
    assert bench.ring.num_held == 1
    taken.forget()
    assert (bench.ring.num_leased, bench.ring.num_held) == (1, 0)
    bench.ring.collect()
    assert (bench.ring.num_ahead, bench.ring.num_leased) == (1, 0)
    unwanted.give_back()
    bench.ring.collect()
    assert (bench.ring.num_ahead, bench.ring.num_leased, bench.ring.num_free) == (0, 0, 2)


def drained(bench: Bench, *streams: Any) -> Slot:
    """Open a slot that was handed to some streams, and let go of its batch."""
    slot = bench.open()
    for stream in streams:
        slot.note_use(stream)
    slot.give_back()
    bench.ring.collect()
    return slot


def test_a_slot_whose_device_work_is_over_is_free_at_once() -> None:
    with SimulatedDevice() as device, device.make_stream("work") as stream:
        bench = Bench(num_slots=1, device=device)
        slot = bench.open()
        slot.events.append(stream.record())
        stream.synchronize()
        slot.give_back()
        bench.ring.collect()
        assert (slot.state, slot.events, bench.ring.num_free) == (SlotState.FREE, [], 1)
        assert bench.ring.inbox.empty()


def test_a_slot_drains_until_each_of_its_events_and_streams_has_passed() -> None:
    with SimulatedDevice() as device:
        one, two, three = (device.make_stream(name) for name in ("one", "two", "three"))
        bench = Bench(num_slots=1, device=device)
        slot = bench.open()
        with hold(one) as first, hold(two) as second, hold(three) as third:
            slot.events.append(one.record())
            for stream in (two, three):
                slot.note_use(stream)
            slot.give_back()
            bench.ring.collect()
            for stream, held in ((two, second), (one, first)):
                assert (slot.state, bench.ring.num_free) == (SlotState.DRAINING, 0)
                assert slot.streams == []
                held.release()
                stream.synchronize()
                bench.ring.collect()
            assert (slot.state, slot.num_pending) == (SlotState.DRAINING, 1)
            assert bench.ring.num_ahead == 0
            third.release()
            three.synchronize()
        bench.ring.collect()
        assert (slot.state, slot.events, bench.ring.num_free) == (SlotState.FREE, [], 1)
        for stream in (one, two, three):
            stream.close()


@pytest.mark.parametrize("of_whom", ["its own copies", "its consumer"])
def test_a_slot_drains_whoever_gave_the_device_work(of_whom: str) -> None:
    with SimulatedDevice() as device, device.make_stream("work") as stream:
        bench = Bench(num_slots=1, device=device)
        slot = bench.open()
        with hold(stream):
            if of_whom == "its own copies":
                slot.events.append(stream.record())
            else:
                slot.note_use(stream)
            slot.give_back()
            bench.ring.collect()
            assert (slot.state, bench.ring.num_free) == (SlotState.DRAINING, 0)
            assert (slot.num_pending, len(slot.events), slot.streams) == (1, 1, [])
        stream.synchronize()
        bench.ring.collect()
        assert (slot.state, bench.ring.num_free) == (SlotState.FREE, 1)


class Refusing:
    """A stream of which nothing can be known."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def record(self) -> None:
        raise self.error


def test_a_slot_of_whose_last_uses_nothing_is_known_is_not_filled_again() -> None:
    bench = Bench(num_slots=3)
    first, second = RuntimeError("first"), RuntimeError("second")
    lost = [drained(bench, Refusing(error)) for error in (first, second)]
    assert bench.ring.failure is first
    assert bench.ring.num_free == 1
    assert bench.ring.acquire() not in lost


def test_a_closed_streams_work_is_over() -> None:
    bench = Bench(num_slots=1)
    slot = drained(bench, Refusing(ClosedError("stream", operation="record")))
    assert (slot.state, bench.ring.failure) == (SlotState.FREE, None)
    assert bench.ring.num_free == 1


def test_closing_takes_in_what_has_come_back_and_lets_go_of_all_memory() -> None:
    with SimulatedDevice() as device:
        bench = Bench(num_slots=2, device=device)
        for _ in range(2):
            bench.shape(bench.open())
        bench.ring.slots[0].give_back()
        bench.ring.close()
        assert [slot.host_bytes for slot in bench.ring.slots] == [0, 0]
        assert device.memory_info().host_allocated_bytes == 0
        assert device.memory_info().allocated_bytes == 0


def test_closing_leaves_the_memory_to_streams_that_are_at_work_on_it() -> None:
    with SimulatedDevice() as device, device.make_stream("work") as stream:
        bench = Bench(num_slots=1, device=device)
        slot = bench.open()
        bench.shape(slot)
        with hold(stream):
            slot.note_use(stream)
            slot.give_back()
            bench.ring.close()  # takes it in first
            assert device.memory_info().allocated_bytes == 64
        stream.synchronize()
        assert device.memory_info().allocated_bytes == 0


def test_slots_are_numbered_on_and_on_and_new_ones_are_free() -> None:
    ring = Bench(num_slots=2).ring
    ring.acquire()
    ring.grow()
    assert [slot.number for slot in ring.slots] == [0, 1, 2]
    assert ring.num_free == 2
    assert ring.acquire() is ring.slots[2]


def test_slots_that_come_after_others_have_left_stay_as_long() -> None:
    ring = Bench(num_slots=1).ring
    for _ in range(2):
        ring.grow()
        taken = [ring.take_unneeded() for _ in range(64)]
        assert taken[:63] == [[]] * 63
        assert len(taken[63]) == 1
    assert ring.num_free == 1


def test_slots_that_are_draining_count_as_needed() -> None:
    bench = Bench(num_slots=1)
    bench.ring.grow()
    draining = bench.ring.acquire()
    draining.state = SlotState.DRAINING
    bench.ring.num_ahead -= 1
    for _ in range(200):
        assert bench.ring.take_unneeded() == []
