"""A whole prefetcher under any schedule of its readers, its device and its consumer; no threads.

Readers are generators that stop wherever a thread could be interrupted, streams are queues that
move a command at a time, and a consumer that waits lets the others go on, in an order drawn by
Hypothesis, until it is woken. What would be a hang is then a state in which nobody can move: it
fails the test with what everybody was doing. All else is the real thing: prefetcher, ring, slots,
leases, schedule, delivery, filler and database.
"""

from __future__ import annotations

import gc
import itertools
import random
import weakref
from collections import deque
from contextlib import ExitStack
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import prefetch
from memory import DeviceBuffer, SimulatedDevice
from memory._device.event import HostEvent
from prefetch._pipeline.part_filler import Filler
from prefetch._pipeline.reader import Reader
from prefetch._pipeline.reader_jobs import Opening
from prefetch._ring.slot_state import SlotState
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    import numpy.typing as npt

    from prefetch._pipeline.coordinator import Coordinator
    from prefetch._pipeline.light_batches import FilledRows
    from prefetch._pipeline.reader_jobs import Part
    from prefetch._ring.filling import Filling

NUM_RECORDS = 7
SHAPE = (1, 2, 3)


class Parked(Exception):  # noqa: N818 - a state of a reader, not an error
    """The reader would wait now."""


class Inbox(SimpleQueue[Any]):
    """A ring's inbox at which nobody waits: who would, is parked."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: FBT001, FBT002 - SimpleQueue's
        if block and self.empty():
            raise Parked(self)
        return super().get(block, timeout)


class SteppedEvent(HostEvent):
    """An event for whose waiters the device moves."""

    __slots__ = ("_device",)

    def __init__(self, device: SteppedDevice) -> None:
        super().__init__()
        self._device = device

    def wait_for(self, timeout_s: float | None) -> bool:
        while not self.done():
            assert self._device.step(), "waits for an event that cannot pass"
        return super().wait_for(timeout_s)


class SteppedStream:
    """A queue of commands; moves when it is told to."""

    def __init__(self, device: SteppedDevice, handle: int, name: str) -> None:
        self.device = device
        self.handle = handle
        self.name = name
        self._queue: deque[Callable[[], object] | HostEvent] = deque()

    def give(self, command: Callable[[], object] | HostEvent) -> None:
        self._queue.append(command)

    def record(self) -> SteppedEvent:
        event = SteppedEvent(self.device)
        self.give(event.complete)
        return event

    def wait(self, event: HostEvent) -> None:
        self.give(event)

    def can_step(self) -> bool:
        first = self._queue[0] if self._queue else None
        return first.done() if isinstance(first, HostEvent) else first is not None

    def step(self) -> bool:
        """Run the first command; return whether that was possible."""
        if not self.can_step():
            return False
        command = self._queue.popleft()
        if not isinstance(command, HostEvent):
            command()
        return True

    def synchronize(self) -> None:
        while self._queue:
            assert self.device.step(), "waits for a stream that cannot move"

    def close(self) -> None:
        self.synchronize()


class _Allocation:
    """Owns a block of the device's memory."""

    __slots__ = ("__weakref__",)


class SteppedDevice(SimulatedDevice):
    """A second memory whose copies run when they are told to, one at a time, on no thread."""

    def __init__(self) -> None:
        super().__init__()
        self._handles = itertools.count(1)
        self._addresses = itertools.count(1 << 40, 1 << 20)
        self.null = SteppedStream(self, 0, "null")
        self.streams = [self.null]
        self.blocks: dict[int, npt.NDArray[np.uint8]] = {}

    def alloc_device(self, nbytes: int) -> DeviceBuffer:
        address, owner = next(self._addresses), _Allocation()
        self.blocks[address] = np.full(nbytes, 0xCB, np.uint8)
        weakref.finalize(owner, self._free, address).atexit = False
        device: Any = self
        return DeviceBuffer(address, nbytes, device=device, owner=owner)

    def _free(self, address: int) -> None:
        self.run_all()  # cudaFree waits for the device
        del self.blocks[address]

    def make_stream(self, name: str = "") -> SteppedStream:  # type: ignore[override]
        self.streams.append(SteppedStream(self, next(self._handles), name))
        return self.streams[-1]

    def current_stream(self) -> SteppedStream:  # type: ignore[override]
        return self.null

    def copy_to_device(  # type: ignore[override]
        self, dst: DeviceBuffer, src: npt.NDArray[np.uint8], *, stream: SteppedStream
    ) -> None:
        stream.give(lambda: np.copyto(self.content(dst), src.reshape(-1).view(np.uint8)))

    def copy_to_host(  # type: ignore[override]
        self, dst: npt.NDArray[np.uint8], src: DeviceBuffer, *, stream: SteppedStream
    ) -> None:
        stream.give(lambda: np.copyto(dst, self.content(src)))

    def content(self, buffer: DeviceBuffer) -> npt.NDArray[np.uint8]:
        base = buffer.ptr >> 20 << 20
        return self.blocks[base][buffer.ptr - base :][: buffer.nbytes]

    def step(self, rng: random.Random | None = None) -> bool:
        """Let some stream run a command, the consumer's last; return whether one could."""
        streams = [*self.streams[1:], self.null]
        if rng is not None:
            rng.shuffle(streams)
        return any(stream.step() for stream in streams)

    def run_all(self) -> None:
        while self.step():
            pass

    def close(self) -> None:
        self.run_all()
        super().close()


class SteppedReader(Reader):
    """A reader that goes a step at a time: `Reader.run` with the places where others come between.

    Attributes:
        idle: Whether it waits for something to arrive.
        over: Whether it has ended.
    """

    def __init__(self, machine: RingMachine, board: Coordinator, number: int) -> None:
        super().__init__(board, number, clock=lambda: 0.0)
        self._machine = machine
        self._life = self._live()
        self._place = board.ring.inbox
        self.idle = False
        self.over = False

    @property
    def ident(self) -> int:
        """That of a thread that was started."""
        return 1

    def can_step(self) -> bool:
        return not self.over and not (self.idle and self._place.empty())

    def step(self) -> None:
        next(self._life, None)

    def join(self, timeout: float | None = None) -> None:  # noqa: ARG002 - Thread's
        while not self.over:
            assert self.can_step(), "a reader that was told to stop waits for ever"
            self.step()

    def _live(self) -> Iterator[None]:
        board = self._board
        device = self._components.device
        stream: Any = device.make_stream(self.name) if device.has_device_memory else None
        filler = Filler(self._components)
        while True:
            planned, self._planned = self._planned, None
            try:
                job = board.next_job(0.0, planned)
            except Parked as parked:
                self._place, self.idle = parked.args[0], True
                yield
                self.idle = False
                arrival = self._place.get()
                if self._place is not board.ring.inbox:
                    continue  # it was a spare one
                with board.lock:
                    board.schedule.num_idle -= 1
                    board.ring.accept(arrival)
                continue
            if job is None:
                break
            yield
            yield from self._work_slowly(job, filler, stream)
            del job
        if stream is not None:
            stream.close()
        self.over = True
        board.reader_ended()

    def _work_slowly(self, job: Opening | Part, filler: Filler, stream: Any) -> Iterator[None]:
        """Do as `Reader._work` does, with others in between."""
        if isinstance(job, Opening):
            parts = yield from self._plan_and_shape_slowly(job, filler)
        else:
            parts = [job]
        yield
        together = filler.light.fill_together([part.filling for part in parts])
        done: list[Part] = []
        for number, part in enumerate(parts):
            filled = None if together is None else together[number]
            yield from self._fill_slowly(part, filler, filled)
            done.append(part)
            yield
            if together is not None and len(done) < len(parts):
                continue
            for filling in self._board.parts_done(done):
                yield
                self._try(filling, 0, self._push, filling, stream)
                self._board.publish(filling)
            done = []

    def _fill_slowly(self, part: Part, filler: Filler, filled: FilledRows | None) -> Iterator[None]:
        """Do as `Reader._fill_part` does, with others in between."""

        def fill() -> None:
            self._machine.meet_fault(part.filling.sequence, "filling", part.start)
            filler.fill(part, filled)

        is_filled = self._try(part.filling, part.start, fill)
        if is_filled and self._planned is None and not part.filling.is_small_raw:
            yield
            opening = self._board.early_opening()
            if opening is not None:
                yield
                if self._try(opening.filling, 0, self._plan, opening.filling):
                    self._planned = Opening(opening.filling, is_planned=True)
                else:
                    self._board.publish(opening.filling)

    def _plan_and_shape_slowly(
        self, job: Opening, filler: Filler
    ) -> Generator[None, None, list[Part]]:
        """Do as `Reader._plan_and_shape` does, with others in between."""
        board = self._board
        parts: list[Part] = []
        opening: Opening | None = job
        while opening is not None:
            filling = opening.filling

            def shape(filling: Filling = filling) -> None:
                self._machine.meet_fault(filling.sequence, "opening")
                filler.give_memory(filling, filler.find_shape(filling))

            if not opening.is_planned:
                is_planned = self._try(filling, 0, self._plan, filling)
                if not is_planned:
                    board.publish(filling)
                    break
            yield
            if not self._try(filling, 0, shape):
                board.publish(filling)
                break
            yield
            part = board.split_into_parts(filling)
            if part is None:
                break
            parts.append(part)
            opening = None
            if filling.is_small_raw and len(parts) < self._max_batches_per_call:
                yield
                opening = board.next_opening()
        return parts


class SteppedGates:
    """What the consumer waits for: while it waits, the others move."""

    def __init__(self, machine: RingMachine, board: Coordinator) -> None:
        self._machine = machine
        self._lock = board.lock
        self._told = False

    def notify_all(self) -> None:
        self._told = True

    def gate(self) -> bool:
        assert self._lock._is_owned()  # type: ignore[attr-defined]
        self._told = False
        return True

    def wait(self, _gate: bool, _timeout_s: float | None) -> bool:  # noqa: FBT001 - as a gate's
        while not self._told:
            assert self._machine.step_somebody(), self._machine.describe()
        return True


class Read:
    """A read of a batch on the consumer's stream.

    Attributes:
        records: What it must find.
        bytes: What it finds, once it has run.
        has_run: Whether it has.
    """

    def __init__(self, records: list[int], nbytes: int) -> None:
        self.records = records
        self.bytes = np.zeros(nbytes, np.uint8)
        self.has_run = False

    def done(self) -> None:
        self.has_run = True


class InjectedError(Exception):
    """A fault of the machine's own."""


class Turn:
    """What the model knows of one iterator."""

    def __init__(self, iterator: prefetch.FeedIterator) -> None:
        self.iterator = iterator
        self.started = False
        self.ended = False
        self.end: int | None = None


class RingMachine(RuleBasedStateMachine):
    """Consumer, readers and streams take turns; a model says what the consumer must get."""

    source: Path

    @initialize(
        device=st.sampled_from(["cpu", "stepped"]),
        num_readers=st.integers(1, 3),
        ahead=st.sampled_from([1, 2, 3, 4, 5, 8]),
        most_held=st.integers(1, 4),
        batch_size=st.integers(1, 4),
        last_batch=st.sampled_from(["partial", "drop", "wrap"]),
        walks=st.booleans(),
        light=st.sampled_from([True, True, False]),
    )
    def open(self, device: str, num_readers: int, **drawn: Any) -> None:
        self.device = SteppedDevice() if device == "stepped" else None
        self.num_readers = num_readers
        self.drawn = drawn
        # Batches are filled several in one go, or in parts by several readers.
        least_bytes = 2**20 if drawn["light"] else 0
        self.weight = mock.patch(
            "prefetch._pipeline.light_batches._MIN_RAW_BYTES_TO_SPLIT", least_bytes
        )
        self.weight.start()
        self.rng = random.Random(0)
        self.stamps = itertools.count(1)
        self.held: list[tuple[Any, npt.NDArray[Any], float]] = []
        self.reads: list[Read] = []
        self.start()

    def start(self) -> None:
        """Open a feed and put stepped readers, a stepped queue and a stepped wait into it."""
        self.faults: dict[int, str] = {}
        self.failed: dict[int, tuple[int, InjectedError]] = {}
        self.errors: list[InjectedError] = []
        self.serving = self.epoch = 0
        self.taken_from_epoch = False
        self.turn: Turn | None = None
        self.turns: list[Turn] = []
        with ExitStack() as stack:
            stack.enter_context(mock.patch("prefetch._ring.ring.SimpleQueue", Inbox))
            stack.enter_context(mock.patch("prefetch._pipeline.light_batches.SimpleQueue", Inbox))
            # The first epoch is walked, as if the index took a while.
            stack.enter_context(mock.patch("prefetch._source.source._MOST_INDEXING_S", -1))
            self.feed = prefetch.open(
                {
                    "source": self.source,
                    "batch_size": self.drawn["batch_size"],
                    "prefetch": self.drawn["ahead"],
                    "max_batches_held": self.drawn["most_held"],
                    "last_batch": self.drawn["last_batch"],
                    "threads": self.num_readers,
                    "stall_warning_s": None,
                    "device": self.device or "cpu",
                },
            )
        prefetcher = self.prefetcher = self.feed._prefetcher
        if not self.drawn["walks"]:
            prefetcher.coordinator.planner.walker = (
                None  # every part is fetched by whoever fills it
            )
        self.readers = [
            SteppedReader(self, prefetcher.coordinator, number)
            for number in range(self.num_readers)
        ]
        prefetcher._readers = list(self.readers)
        prefetcher.coordinator.num_running = len(self.readers)
        prefetcher.coordinator.gates = SteppedGates(self, prefetcher.coordinator)  # type: ignore[assignment]

    def let_device_work_pass(self) -> None:
        """Run all that is queued."""
        if self.device is not None:
            self.device.run_all()

    def finish(self) -> None:
        """Close the feed with whatever it is doing; everything must be free then."""
        self.held.clear()
        self.turns.clear()
        self.turn = None
        self.feed.close()
        for error in self.errors:
            error.__traceback__ = None  # its frames hold what the reader was at
        self.errors.clear()
        self.failed.clear()
        ring = self.prefetcher.coordinator.ring
        self.let_device_work_pass()
        ring.collect()  # what has come back drains until the streams have passed once more
        self.let_device_work_pass()
        ring.collect()
        self.check_reads()
        assert {SlotState.FREE} == {slot.state for slot in ring.slots}
        assert len(ring.slots) == ring.num_free
        assert [] == self.prefetcher.coordinator.schedule._filling
        assert 0 == len(self.prefetcher.coordinator.delivery._ready)

    def teardown(self) -> None:
        if hasattr(self, "weight"):
            self.weight.stop()
        if not hasattr(self, "prefetcher"):
            return
        self.finish()
        del self.feed, self.prefetcher, self.readers
        if self.device is not None:
            self.device.close()
        if self.device is not None and self.device.blocks:
            gc.collect()
            gc.collect()  # slots that leases put into the queue when they went
            assert {} == self.device.blocks

    # What readers and streams do ---------------------------------------------------------------

    @rule(number=st.integers(0, 2), steps=st.integers(1, 6))
    def a_reader_goes_on(self, number: int, steps: int) -> None:
        reader = self.readers[number % len(self.readers)]
        for _ in range(steps):
            if reader.can_step():
                reader.step()

    @rule(seed=st.integers(0, 2**16), steps=st.integers(1, 5))
    def the_device_goes_on(self, seed: int, steps: int) -> None:
        rng = random.Random(seed)
        if self.device is not None:
            for _ in range(steps):
                self.device.step(rng)
            self.check_reads()

    @rule(ahead=st.integers(0, 4), stage=st.sampled_from(["opening", "filling"]))
    def a_batch_will_fail(self, ahead: int, stage: str) -> None:
        """If it is not read yet."""
        self.faults[self.serving + ahead] = stage

    def meet_fault(self, sequence: int, stage: str, position: int = 0) -> None:
        """Raise if a fault is due, and note where."""
        if self.faults.get(sequence) == stage:
            error = InjectedError(f"batch {sequence}, place {position}")
            self.errors.append(error)
            if sequence not in self.failed or position < self.failed[sequence][0]:
                self.failed[sequence] = position, error
            raise error

    def step_somebody(self) -> bool:
        """Let a reader or a stream go on, the consumer's only for want of others."""
        able: list[Callable[[], object]] = [one.step for one in self.readers if one.can_step()]
        if self.device is not None:
            able += [stream.step for stream in self.device.streams[1:] if stream.can_step()]
        if able:
            self.rng.choice(able)()
            return True
        return self.device is not None and self.device.step()

    @rule()
    def begin_a_loop(self) -> None:
        self.turns.append(Turn(iter(self.feed)))
        del self.turns[:-3]

    @rule(which=st.integers(0, 2), seed=st.integers(0, 2**16), keep=st.sampled_from(["", "a", "b"]))
    def ask_for_a_batch(self, which: int, seed: int, keep: str) -> None:
        if not self.turns:
            self.begin_a_loop()
        self.rng = random.Random(seed)
        self.take(self.turns[which % len(self.turns)], keep)

    @rule(seed=st.integers(0, 2**16), count=st.integers(2, 6))
    def go_on_with_the_loop(self, seed: int, count: int) -> None:
        self.rng = random.Random(seed)
        for _ in range(count):
            if self.turns:
                self.take(self.turns[-1], "")

    @rule(seed=st.integers(0, 2**16), steps=st.integers(10, 60))
    def everybody_goes_on(self, seed: int, steps: int) -> None:
        """Readers ahead of the consumer, who does something else meanwhile."""
        self.rng = random.Random(seed)
        for _ in range(steps):
            self.step_somebody()

    def take(self, turn: Turn, keep: str) -> None:
        """Ask an iterator, and compare what comes with the model."""
        expected = self.expect(turn)
        if expected is not None:
            with pytest.raises(expected):
                next(turn.iterator)
            return
        due = self.serving
        try:
            batch = next(turn.iterator)
        except InjectedError as error:
            if error is not self.failed[due][1]:
                pytest.fail(f"batch {due} failed with {error}")
        else:
            assert due not in self.failed
            self.serving += 1
            self.check(batch, self.records(due), keep)
            return
        assert self.feed.closed
        with pytest.raises(prefetch.FeedClosedError):
            next(turn.iterator)
        self.finish()
        self.start()

    def check(self, batch: prefetch.Batch, records: list[int], keep: str) -> None:
        """Compare a batch with what it must hold."""
        assert records == batch.indices.tolist() == batch.label.numpy(writable=False).tolist()
        assert self.prefetcher.position().served == self.served()
        self.use(batch, records, keep)

    def use(self, batch: prefetch.Batch, records: list[int], keep: str) -> None:
        """Look at a batch; read it on the device; keep something of it, or nothing."""
        if self.device is not None:
            handed = batch.data.gpu_data()
            # A kernel knows an address only, and keeps nothing alive.
            bare = DeviceBuffer(handed.ptr, handed.nbytes, device=handed.device)
            read = Read(records, handed.nbytes)
            self.device.copy_to_host(read.bytes, bare, stream=self.device.null)
            self.device.null.give(read.done)
            self.reads.append(read)
            if not keep:
                return  # what the host is given makes it wait for the reads
        array: npt.NDArray[Any] = batch.data.numpy(writable=self.device is None)
        assert (array.T == records).all()
        if self.device is None and keep:
            array[:] = -next(self.stamps)  # nobody else may write here, and nobody read this
        if keep == "b" or (keep and self.device is None):
            exported = array[len(array) // 2 :] if keep == "a" else batch
            self.held.append((exported, array.copy(), float(array.flat[0])))

    @rule(which=st.integers(0, 5))
    def let_one_go(self, which: int) -> None:
        if self.held:
            del self.held[which % len(self.held)]

    @rule()
    def look_at_the_counters(self) -> None:
        stats = self.feed.stats()
        assert stats.slots_leased >= len(self.held)

    @rule()
    def close_and_open_another(self) -> None:
        self.finish()
        self.start()

    # What must come ----------------------------------------------------------------------------

    def expect(self, turn: Turn) -> type[BaseException] | None:
        """Return the error or end that an iterator's next() must come to, None for a batch."""
        if turn.ended:
            return StopIteration
        if turn is not self.turn:
            if turn.started:
                return prefetch.StaleIteratorError
            turn.started, self.turn = True, turn
            if self.drawn["last_batch"] != "wrap":
                if self.taken_from_epoch:
                    self.epoch += 1
                    self.serving = self.epoch * len(self.feed)
                self.taken_from_epoch = False
                turn.end = (self.epoch + 1) * len(self.feed)
        if turn.end is not None and self.serving >= turn.end:
            turn.ended = True
            self.epoch += 1
            self.taken_from_epoch = False
            return StopIteration
        if len(self.held) >= self.drawn["most_held"]:
            return prefetch.BatchesHeldError
        self.taken_from_epoch = True
        return None

    def records(self, sequence: int) -> list[int]:
        """Return the records of a batch."""
        size: int = self.drawn["batch_size"]
        if self.drawn["last_batch"] == "wrap":
            return [(sequence * size + place) % NUM_RECORDS for place in range(size)]
        number = sequence % len(self.feed)
        return list(range(number * size, min(number * size + size, NUM_RECORDS)))

    def served(self) -> int:
        """Return how many samples of its epoch a saved state must count."""
        size: int = self.drawn["batch_size"]
        if self.drawn["last_batch"] == "wrap":
            return self.serving * size % NUM_RECORDS
        return self.serving % len(self.feed) * size

    def describe(self) -> str:
        idle = [reader.idle for reader in self.readers]
        return f"nobody can move: readers idle {idle}, {self.prefetcher.coordinator.ring.slots}"

    @invariant()
    def nothing_that_is_held_has_changed(self) -> None:
        if not hasattr(self, "held"):
            return
        for exported, content, stamp in self.held:
            array = exported
            if isinstance(exported, prefetch.Batch):
                array = exported.data.numpy(writable=False)
                if self.device is not None:  # the host has a copy
                    there = exported.data.data._gpu
                    assert there is not None
                    array = self.device.content(there).view(array.dtype).reshape(array.shape)
            assert (array == content[-len(array) :]).all()
            assert self.device is not None or (array == stamp).all()

    @invariant()
    def what_is_lent_to_no_slot_is_copied_or_free_and_nobody_reads_what_is_free(self) -> None:
        if not hasattr(self, "prefetcher"):
            return
        ring = self.prefetcher.coordinator.ring
        fillings = self.prefetcher.coordinator.schedule._filling
        lent = [filling.slot.block for filling in fillings]
        assert (ring.pool is None) == (self.device is None)
        if ring.pool is None:
            return
        blocks, free = ring.pool.blocks, ring.pool.free
        copied = [copied.block for copied in ring.pool._copied]
        assert len(blocks) == min(self.drawn["ahead"] + 1, 3)
        assert {*blocks} == {*lent, *copied, *free}
        assert len(blocks) == len(lent) + len(copied) + len(free)
        for block in free:
            block.staged(block.nbytes, room=0)[:] = 0xCB

    @invariant()
    def the_ring_is_no_larger_than_allowed(self) -> None:
        if hasattr(self, "prefetcher"):
            ahead, most = self.drawn["ahead"], self.drawn["most_held"]
            assert len(self.prefetcher.coordinator.ring.slots) <= max(ahead + 1, most - 1 + ahead)

    @invariant()
    def nothing_is_kept_that_nobody_wants(self) -> None:
        if hasattr(self, "prefetcher"):
            delivery, schedule = (
                self.prefetcher.coordinator.delivery,
                self.prefetcher.coordinator.schedule,
            )
            if not schedule.is_behind:
                assert all(sequence >= delivery.served.next for sequence in delivery._ready)
            wanted = [one.sequence for one in schedule._filling if not one.is_discarded]
            assert all(sequence >= delivery.served.next for sequence in wanted)

    @invariant()
    def nobody_sleeps_while_there_is_work(self) -> None:
        if not hasattr(self, "prefetcher"):
            return
        if (
            all(reader.idle for reader in self.readers)
            and self.prefetcher.coordinator.ring.inbox.empty()
        ):
            schedule = self.prefetcher.coordinator.schedule
            assert not schedule._can_open(), self.describe()
            assert not schedule.is_behind, self.describe()
            assert not [one for one in schedule._filling if one.parts and one.parts.num_left]

    def check_reads(self) -> None:
        """Compare what the consumer's stream has read with what was handed to it."""
        for read in self.reads:
            if read.has_run:
                found = read.bytes.view(np.float32).reshape(-1, *SHAPE)
                assert (found.T == read.records).all(), read.records
        self.reads = [read for read in self.reads if not read.has_run]


@pytest.mark.filterwarnings("ignore:.*has no batch at all:prefetch.PrefetchWarning")
def test_under_any_schedule_batches_come_in_order_intact_and_nobody_hangs(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("ring")
    monkeypatch.setattr(
        "prefetch._pipeline.reader_jobs._MIN_BYTES_TO_SPLIT", 0
    )  # small batches in parts too
    monkeypatch.setattr(
        "prefetch._pipeline.consumer.gc", mock.Mock()
    )  # slow, and nothing is left to it

    class Machine(RingMachine):
        source = write_database(folder / "db", fingerprinted_images(NUM_RECORDS, SHAPE))

    run_state_machine_as_test(
        Machine, settings=settings(max_examples=200, stateful_step_count=30, deadline=None)
    )
