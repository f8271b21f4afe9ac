"""A reader thread: opens slots, fills parts of them, pushes finished batches to the device.

A reader holds the prefetcher, never the public Feed, so that an abandoned feed is collected. It is
a daemon that the prefetcher's close() or its hook at exit joins: threads that are no daemons would
be joined before that hook runs, and hang there.

Whatever goes wrong with a batch is kept in its slot and raised in the batch's turn.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import numpy.ma  # noqa: F401 - the first np.unique imports it, which is a reader's otherwise

from prefetch._errors.classes import FeedClosedError
from prefetch._errors.context import with_context
from prefetch._pipeline.part_filler import Filler
from prefetch._pipeline.schedule import Opening
from prefetch._process.nested import mark_entry
from prefetch._process.numa import stay_near
from prefetch._process.nvtx import ranged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memory import Stream
    from prefetch._pipeline.components import Components
    from prefetch._pipeline.schedule import Part
    from prefetch._ring.slot import Slot

mark_entry(__file__)


class JobBoard(Protocol):
    """Where a reader's work comes from and goes to: the prefetcher, as its readers know it."""

    @property
    def components(self) -> Components:
        """What the readers work with."""
        ...

    @property
    def closed(self) -> bool:
        """Whether they are to stop."""
        ...

    @property
    def max_batches_per_call(self) -> int:
        """How many light batches a reader fills in one go."""
        ...

    def reader_began(self) -> bool:
        """Count a reader in; return whether it is to work at all."""
        ...

    def reader_failed(self, error: BaseException) -> None:
        """Note that a reader could not work at all."""
        ...

    def reader_ended(self) -> None:
        """Count a reader out."""
        ...

    def next_job(self, busy_s: float, planned: Opening | None) -> Opening | Part | None:
        """Return the next piece of work, None at the end; blocks until there is one."""
        ...

    def next_opening(self) -> Opening | None:
        """Return another slot to open; never waits."""
        ...

    def early_opening(self) -> Opening | None:
        """Return a slot to open before what was filled is handed over."""
        ...

    def plan_into(self, slot: Slot) -> None:
        """Plan the slot's batch and walk its records."""
        ...

    def shaped(self, slot: Slot) -> Part | None:
        """Open the slot's parts to all readers; return the first."""
        ...

    def parts_done(self, parts: Iterable[tuple[Part, BaseException | None]]) -> list[Slot]:
        """Count finished parts; return the batches to push."""
        ...

    def publish(self, slot: Slot, error: BaseException | None) -> None:
        """Publish a batch, or its failure."""
        ...


class Reader(threading.Thread):
    """One background reader of a prefetcher.

    Args:
        prefetcher: Where the work comes from and goes to.
        number: Which of the readers this is, for the thread's name.
        clock: Seconds from some fixed point.
    """

    def __init__(self, prefetcher: JobBoard, number: int, *, clock: Callable[[], float]) -> None:
        super().__init__(name=f"ringfeed-reader-{number}", daemon=True)
        self._number = number
        self._prefetcher = prefetcher
        self._components = prefetcher.components
        self._clock = clock
        self._doing: str | Opening | Part = "starting"
        self._planned: Opening | None = None  # its next piece of work, if that is known already

    @property
    def doing(self) -> str:
        """What it does at the moment, in words."""
        doing = self._doing
        if isinstance(doing, str):
            return doing
        if isinstance(doing, Opening):
            return f"opening slot {doing.slot.number}"
        return f"filling places {doing.start} to {doing.stop - 1} of slot {doing.slot.number}"

    def run(self) -> None:
        """Work until the prefetcher has nothing more to do."""
        if not self._prefetcher.reader_began():
            self._doing = "ended"
            return
        busy_s = 0.0
        try:
            with ExitStack() as stack:
                stream: Stream | None = None
                if self._components.device.has_device_memory:
                    self._components.device.dedicate_thread()
                    stay_near(
                        self._components.device,
                        num_readers=self._components.num_threads,
                        is_first=self._number == 0,
                    )
                    stream = self._components.device.make_stream(self.name)
                    stack.callback(stream.close)
                filler = Filler(self._components, check_cancelled=self._check_cancelled)
                while (job := self._next_job(busy_s)) is not None:
                    began = self._clock()
                    self._work(job, filler, stream)
                    del job  # an idle reader keeps no slot alive
                    busy_s = self._clock() - began
        except BaseException as error:  # noqa: BLE001 - raised again where the consumer waits
            self._prefetcher.reader_failed(self._located(error, None, "reader"))
        finally:
            self._doing = "ended"
            self._prefetcher.reader_ended()

    def _check_cancelled(self) -> None:
        """Raise unless the batch at work is wanted: a feed that closes waits for one record only.

        Raises:
            FeedClosedError: It is not; nobody is told, since it is never served.
        """
        doing = self._doing
        is_discarded = not isinstance(doing, str) and doing.slot.discarded
        if is_discarded or self._prefetcher.closed:
            raise FeedClosedError("nobody wants the batch any more")

    def _next_job(self, busy_s: float) -> Opening | Part | None:
        self._doing = "waiting for work"
        planned, self._planned = self._planned, None
        return self._prefetcher.next_job(busy_s, planned)

    def _work(self, job: Opening | Part, filler: Filler, stream: Stream | None) -> None:
        self._doing = job
        parts = self._open_some(job, filler) if isinstance(job, Opening) else [job]
        if filler.fill_ahead(parts):
            self._finish(parts, filler, stream)
        else:
            for part in parts:
                self._finish([part], filler, stream)

    def _finish(self, parts: list[Part], filler: Filler, stream: Stream | None) -> None:
        # The errors are in no variable here: their tracebacks would keep themselves and the batches
        # alive.
        for slot in self._prefetcher.parts_done(
            [(part, self._failure_of_filling(part, filler)) for part in parts]
        ):
            self._upload(slot, stream)

    def _failure_of_filling(self, part: Part, filler: Filler) -> BaseException | None:
        self._doing = part
        return self._failure_of(lambda: self._fill(part, filler), part.slot, "fill", part.start)

    def _fill(self, part: Part, filler: Filler) -> None:
        """Fill a part; before it is handed over, plan the batch that is to follow.

        A consumer that waits leaves a reader the GIL. It wakes up with the batch, and NumPy, with
        which batches are planned, lets go of the GIL again and again: a loop in pure Python would
        keep it for 5 ms each time, with nobody reading meanwhile. Light batches come several at
        once, and keep the consumer busy.
        """
        filler.fill(part)
        if self._planned is None and not part.slot.is_small_raw:
            opening = self._prefetcher.early_opening()
            if opening is not None and self._plan(opening.slot):
                self._planned = Opening(opening.slot, is_planned=True)

    def _open_some(self, job: Opening, filler: Filler) -> list[Part]:
        """Open a slot, and if its batch is light the next ones; return the first part of each."""
        parts: list[Part] = []
        opening: Opening | None = job
        while opening is not None:
            self._doing = opening
            part = self._open(opening, filler)
            opening = None
            if part is not None:
                parts.append(part)
                if part.slot.is_small_raw and len(parts) < self._prefetcher.max_batches_per_call:
                    opening = self._prefetcher.next_opening()
        return parts

    def _open(self, opening: Opening, filler: Filler) -> Part | None:
        """Plan a slot's batch and give it its memory; return its first part."""
        slot = opening.slot
        if not opening.is_planned and not self._plan(slot):
            return None
        stage = "read"
        try:
            shape = filler.first_shape(slot)
            stage = "allocate"
            filler.give_memory(slot, shape)
        except BaseException as error:  # noqa: BLE001 - raised again in the batch's turn
            self._prefetcher.publish(slot, self._located(error, slot, stage))
            return None
        return self._prefetcher.shaped(slot)

    @ranged("plan")
    def _plan(self, slot: Slot) -> bool:
        """Plan a slot's batch; return whether that went well."""
        try:
            self._prefetcher.plan_into(slot)
        except BaseException as error:  # noqa: BLE001 - raised again in the batch's turn
            self._prefetcher.publish(slot, self._located(error, slot, "plan"))
            return False
        return True

    @ranged("push")
    def _upload(self, slot: Slot, stream: Stream | None) -> None:
        assert stream is not None
        self._doing = f"pushing slot {slot.number}"
        self._prefetcher.publish(slot, self._failure_of(lambda: slot.push(stream), slot, "push"))

    def _failure_of(
        self, step: Callable[[], object], slot: Slot, stage: str, position: int = 0
    ) -> BaseException | None:
        """Do something; return what went wrong, which is raised again in the batch's turn."""
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - raised again in the batch's turn
            return self._located(error, slot, stage, position)
        return None

    def _located(
        self, error: BaseException, slot: Slot | None, stage: str, position: int = 0
    ) -> BaseException:
        """Return an error that says where it happened, by the first of the records at work."""
        try:
            planned = None if slot is None else slot.planned
            record = 0 if planned is None else int(planned.records[position])
            database = self._components.source.path_of(record)
        except MemoryError:
            return error
        if planned is None:
            return with_context(error, database=database, stage=stage)
        return with_context(
            error, database=database, stage=stage, epoch=planned.epoch, batch=planned.number
        )
