"""Which work there is, and which slots there are, step by step and without any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memory import ClosedError, SimulatedDevice, open_device
from memory.testing import hold
from prefetch._pipeline.light_batches import max_per_call
from prefetch._pipeline.reader_jobs import Opening, Part, Schedule
from prefetch._plan.order import Order
from prefetch._ring.filling import Filling, FoundShape, Parts
from prefetch._ring.ring import Ring
from prefetch._ring.slot_state import SlotState

if TYPE_CHECKING:
    from memory import Device
    from prefetch._ring.slot import Slot

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
        least_bytes_to_share: int = 0,
    ) -> None:
        self.order = order or Order(400, 4)
        self.ring = Ring(device or open_device("cpu"), num_slots)
        self.schedule = Schedule(
            self.ring,
            self.order,
            num_threads=num_threads,
            prefetch=prefetch,
            least_bytes_to_share=least_bytes_to_share,
        )

    def open(self) -> Filling:
        """Take the next opening and plan it."""
        job = self.schedule.find_job()
        assert isinstance(job, Opening)
        assert not job.is_planned
        filling = job.filling
        filling.planned = self.order.plan(filling.sequence)
        assert filling.planned is not None
        self.schedule.planning_done()
        return filling

    def shape(
        self, filling: Filling, sample: tuple[int, ...] = SMALL, *, is_raw: bool = False
    ) -> Part | None:
        assert filling.lease is not None
        filling.shape = FoundShape(sample, is_raw=is_raw)
        filling.contents = filling.slot.bind(
            (filling.size, *sample), np.dtype("f4"), None, filling.lease, most_rows=1
        )
        return self.schedule.split_into_parts(filling)

    def parts(
        self, filling: Filling, sample: tuple[int, ...] = SMALL, *, is_raw: bool = False
    ) -> list[tuple[int, int, int]]:
        """Shape a batch; return the parts that all readers are given of it."""
        part = self.shape(filling, sample, is_raw=is_raw)
        found = []
        while isinstance(part, Part):
            assert part.filling is filling
            found.append(part[1:])
            job = self.schedule.find_job() if parts_of(filling).num_left else None
            part = job if isinstance(job, Part) else None
        return found

    def finish(self, filling: Filling) -> None:
        """Make a batch ready, and taken: the consumer drops it."""
        self.schedule.finish(filling)
        give_back(self.ring, filling)


def give_back(ring: Ring, filling: Filling) -> None:
    """Forget a batch, and have its filling free again."""
    filling.forget()
    ring.collect()


def parts_of(filling: Filling) -> Parts:
    assert filling.parts is not None
    return filling.parts


def sequence(job: Opening | Part | None) -> int | None:
    return None if job is None else job.filling.sequence


# Openings -----------------------------------------------------------------------------------


def test_no_more_batches_are_opened_than_are_to_be_ahead_although_slots_are_free() -> None:
    bench = Bench(num_slots=5, prefetch=2)
    first, second = bench.open(), bench.open()
    assert bench.schedule.find_job() is None
    assert (bench.ring.num_free, bench.ring.occupancy.num_ahead) == (3, 2)
    bench.finish(first)
    assert sequence(bench.schedule.find_job()) == 2
    assert second.slot.state is SlotState.FILLING


def test_no_more_batches_are_opened_than_slots_are_free() -> None:
    bench = Bench(num_slots=1, prefetch=3)
    filling = bench.open()
    assert bench.schedule.find_job() is None
    bench.finish(filling)
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
    fillings = [bench.open() for _ in range(2)]
    for number in failed:
        fillings[number].fail(0, ValueError("wrong"))
        bench.shape(fillings[number])
        bench.schedule.finish(fillings[number])
        assert fillings[number].contents is None  # the memory goes to the next
    assert bench.schedule.find_job() is None
    assert not bench.schedule.is_coming(failed[0])


def test_one_that_went_well_is_no_reason_to_stop() -> None:
    bench = Bench(num_slots=6, prefetch=6)
    bench.schedule.finish(bench.open())
    assert sequence(bench.schedule.find_job()) == 1


def test_an_opening_ahead_of_its_time_is_found_where_no_part_comes_before_it() -> None:
    bench = Bench()
    filling = bench.open()
    bench.shape(filling, QUARTER_MIB)
    assert bench.schedule.find_early_opening() is None
    while parts_of(filling).num_left:
        assert isinstance(bench.schedule.find_job(), Part)
    assert sequence(bench.schedule.find_early_opening()) == 1
    assert bench.schedule.find_early_opening() is None  # one at a time


@pytest.mark.parametrize(
    ("prefetch", "expected"), [(1, 0), (2, 1), (3, 1), (4, 2), (7, 3), (8, 4), (9, 4), (64, 4)]
)
def test_half_of_what_is_ahead_is_filled_together_but_four_at_most(
    prefetch: int, expected: int
) -> None:
    assert max_per_call(prefetch) == expected


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
    filling = bench.open()
    assert bench.parts(filling, sample) == expected
    assert parts_of(filling).num == len(expected)
    assert not filling.is_small_raw


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
    filling = bench.open()
    assert len(bench.parts(filling, sample, is_raw=is_raw)) == num_parts
    assert filling.is_small_raw is is_small_raw


def test_a_batch_is_complete_with_its_last_part_in_whatever_order_they_end() -> None:
    bench = Bench()
    filling = bench.open()
    assert len(bench.parts(filling, ONE_MIB)) == 4
    assert [bench.schedule.part_done(filling) for _ in range(4)] == [False, False, False, True]
    assert bench.schedule.is_coming(filling.sequence)
    bench.schedule.finish(filling)
    assert not bench.schedule.is_coming(filling.sequence)


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
    filling = bench.open()
    bench.shape(filling, ONE_MIB)
    assert isinstance(bench.schedule.find_job(), Part)  # two of four are out
    filling.is_discarded = True
    assert bench.schedule.find_job() is None
    assert not bench.schedule.part_done(filling)
    assert bench.schedule.is_coming(0)
    bench.ring.collect()
    assert bench.ring.num_free == 0
    assert not bench.schedule.part_done(filling)
    assert not bench.schedule.is_coming(0)
    bench.ring.collect()
    assert (bench.ring.num_free, bench.ring.occupancy.num_ahead, filling.slot.state) == (
        1,
        0,
        SlotState.FREE,
    )


def test_a_batch_that_nobody_wants_when_its_shape_is_found_comes_back() -> None:
    bench = Bench(num_slots=1)
    filling = bench.open()
    filling.is_discarded = True
    assert bench.shape(filling, ONE_MIB) is None
    bench.ring.collect()
    assert (bench.ring.num_free, filling.slot.state) == (1, SlotState.FREE)


def test_what_is_abandoned_all_comes_back_once() -> None:
    bench = Bench()
    first, _ = bench.open(), bench.open()
    bench.shape(first, ONE_MIB)
    assert isinstance(bench.schedule.find_job(), Part)
    bench.schedule.abandon()
    assert bench.ring.inbox.qsize() == 2
    bench.ring.collect()
    assert (bench.ring.num_free, bench.ring.occupancy.num_ahead) == (3, 0)
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
    filling = bench.open()
    bench.shape(filling, ONE_MIB)
    for num_idle, expected in ((0, 0), (2, 2), (9, 3)):
        bench.schedule.num_idle = num_idle
        bench.schedule.wake_idle()
        woken = [bench.ring.inbox.get_nowait() for _ in range(bench.ring.inbox.qsize())]
        assert woken == [None] * expected
    filling.is_discarded = True
    bench.schedule.wake_idle()
    assert bench.ring.inbox.empty()


def test_one_reader_suffices_after_a_small_raw_batch_and_not_after_any_other() -> None:
    bench = Bench(num_slots=6, prefetch=6, least_bytes_to_share=2**20)
    found = []
    for sample, is_raw in ((SMALL, True), (SMALL, False), (SMALL, True), (ONE_MIB, True)):
        bench.shape(bench.open(), sample, is_raw=is_raw)
        found.append(bench.schedule.spare.one_suffices)
    assert found == [True, False, True, False]


# The ring -----------------------------------------------------------------------------------


def test_the_slot_that_became_free_last_is_filled_next() -> None:
    ring = Bench(num_slots=3).ring
    fillings = [ring.acquire(number) for number in range(3)]
    slots = [filling.slot for filling in fillings]
    for number in (1, 2, 0):
        give_back(ring, fillings[number])
    assert (ring.num_free, ring.occupancy.num_ahead) == (3, 0)
    assert [ring.acquire(0).slot for _ in range(3)] == [slots[0], slots[2], slots[1]]
    counts = (ring.num_free, ring.occupancy.num_ahead, ring.occupancy.num_leased)
    assert counts == (0, 3, 0)
    assert [slot.state for slot in ring.slots].count(SlotState.FILLING) == 3
    assert [slot.state for slot in ring.slots].count(SlotState.FREE) == 0


def test_a_wake_up_brings_no_slot_and_loses_none() -> None:
    ring = Bench(num_slots=2).ring
    for _ in range(3):
        ring.inbox.put(None)
    ring.collect()
    assert ring.inbox.empty()
    assert (ring.num_free, ring.occupancy.num_ahead, ring.failure) == (2, 0, None)


def test_a_batch_let_go_of_by_the_consumer_counts_as_his_and_an_unwanted_one_as_ahead() -> None:
    bench = Bench(num_slots=2)
    taken, unwanted = bench.open(), bench.open()
    taken.slot.publish()
    taken.slot.take()
    assert bench.ring.num_held == 1
    taken.forget()
    assert (bench.ring.occupancy.num_leased, bench.ring.num_held) == (1, 0)
    bench.ring.collect()
    assert (bench.ring.occupancy.num_ahead, bench.ring.occupancy.num_leased) == (1, 0)
    unwanted.forget()
    bench.ring.collect()
    assert (bench.ring.occupancy.num_ahead, bench.ring.occupancy.num_leased) == (0, 0)
    assert bench.ring.num_free == 2


def give_up(slot: Slot) -> None:
    assert slot.filling is not None
    slot.filling.forget()


def drained(bench: Bench, *streams: Any) -> Slot:
    """Open a slot that was handed to some streams, and let go of its batch."""
    slot = bench.open().slot
    for stream in streams:
        slot.note_use(stream)
    give_up(slot)
    bench.ring.collect()
    return slot


def test_a_slot_whose_device_work_is_over_is_free_at_once() -> None:
    with SimulatedDevice() as device, device.make_stream("work") as stream:
        bench = Bench(num_slots=1, device=device)
        slot = bench.open().slot
        slot.events.append(stream.record())
        stream.synchronize()
        give_up(slot)
        bench.ring.collect()
        assert (slot.state, slot.events, bench.ring.num_free) == (SlotState.FREE, [], 1)
        assert bench.ring.inbox.empty()


def test_a_slot_drains_until_each_of_its_events_and_streams_has_passed() -> None:
    with SimulatedDevice() as device:
        one, two, three = (device.make_stream(name) for name in ("one", "two", "three"))
        bench = Bench(num_slots=1, device=device)
        slot = bench.open().slot
        with hold(one) as first, hold(two) as second, hold(three) as third:
            slot.events.append(one.record())
            for stream in (two, three):
                slot.note_use(stream)
            give_up(slot)
            bench.ring.collect()
            for stream, held in ((two, second), (one, first)):
                assert (slot.state, bench.ring.num_free) == (SlotState.DRAINING, 0)
                assert slot.streams == []
                held.release()
                stream.synchronize()
                bench.ring.collect()
            assert (slot.state, slot.num_pending) == (SlotState.DRAINING, 1)
            assert bench.ring.occupancy.num_ahead == 0
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
        slot = bench.open().slot
        with hold(stream):
            if of_whom == "its own copies":
                slot.events.append(stream.record())
            else:
                slot.note_use(stream)
            give_up(slot)
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
    assert bench.ring.acquire(0).slot not in lost


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
        give_up(bench.ring.slots[0])
        bench.ring.close()
        assert [slot.memory.host_bytes for slot in bench.ring.slots] == [0, 0]
        assert device.memory_info().host_allocated_bytes == 0
        assert device.memory_info().allocated_bytes == 0


def test_closing_leaves_the_memory_to_streams_that_are_at_work_on_it() -> None:
    with SimulatedDevice() as device, device.make_stream("work") as stream:
        bench = Bench(num_slots=1, device=device)
        filling = bench.open()
        slot = filling.slot
        bench.shape(filling)
        with hold(stream):
            slot.note_use(stream)
            give_up(slot)
            bench.ring.close()  # takes it in first
            assert device.memory_info().allocated_bytes == 64
        stream.synchronize()
        assert device.memory_info().allocated_bytes == 0


def test_slots_are_numbered_on_and_on_and_new_ones_are_free() -> None:
    ring = Bench(num_slots=2).ring
    ring.acquire(0)
    ring.grow()
    assert [slot.number for slot in ring.slots] == [0, 1, 2]
    assert ring.num_free == 2
    assert ring.acquire(1).slot is ring.slots[2]


def test_slots_that_come_after_others_have_left_stay_as_long() -> None:
    ring = Bench(num_slots=1).ring
    for _ in range(2):
        ring.grow()
        taken = [ring.take_unneeded() for _ in range(64)]
        assert taken[:63] == [[]] * 63
        assert len(taken[63]) == 1
    assert ring.num_free == 1


def test_slots_that_are_draining_count_as_needed() -> None:
    with SimulatedDevice() as device, device.make_stream("work") as stream:
        bench = Bench(num_slots=1, device=device)
        bench.ring.grow()
        with hold(stream):
            slot = drained(bench, stream)
            assert slot.state is SlotState.DRAINING
            for _ in range(200):
                assert bench.ring.take_unneeded() == []
