"""A reader thread: plans batches, fills parts of them, pushes and publishes them.

A reader holds the coordinator, never the public Feed, so that an abandoned feed is collected.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy.ma  # noqa: F401 - the first np.unique imports it, which is a reader's otherwise

from prefetch._errors.classes import FeedClosedError
from prefetch._errors.context import with_context
from prefetch._pipeline.batch_function import BatchFunction
from prefetch._pipeline.batch_mixer import BatchMixer
from prefetch._pipeline.light_batches import max_per_call
from prefetch._pipeline.part_filler import Filler
from prefetch._pipeline.reader_jobs import Opening
from prefetch._process.disk_waits import num_disk_waits
from prefetch._process.nested_calls import mark_entry
from prefetch._process.numa import stay_near
from prefetch._process.nvtx import ranged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memory import Stream
    from prefetch._pipeline.coordinator import Coordinator
    from prefetch._pipeline.light_batches import FilledRows
    from prefetch._pipeline.reader_jobs import Part
    from prefetch._ring.filling import Filling

mark_entry(__file__)

# A job that waits for the disk takes longer; and to ask whether it did takes 1 us.
_SHORT_S = 0.5e-3


class Reader(threading.Thread):
    """One background reader of a feed.

    Args:
        board: Where the work comes from and goes to.
        number: Which of the readers this is, for the thread's name.
        clock: Seconds from some fixed point.
    """

    def __init__(self, board: Coordinator, number: int, *, clock: Callable[[], float]) -> None:
        # A daemon, joined by close() or by a hook at exit: other threads are joined before that
        # hook runs, and this one would not have been asked to end.
        super().__init__(name=f"ringfeed-reader-{number}", daemon=True)
        self._number = number
        self._board = board
        self._components = board.components
        self._clock = clock
        self._max_batches_per_call = max_per_call(board.components.prefetch)
        self._finish: Callable[[Filling, Stream | None], None] = self._push
        components = board.components
        per_batch = components.per_batch
        self._mixer = BatchMixer(components) if components.mixes else None
        self._function = None if per_batch is None else BatchFunction(per_batch, components)
        if self._mixer is not None or self._function is not None:
            self._finish = self._mix_push_and_call
        self._doing: str | Opening | Part = "starting"
        self._stage = "reader"
        self._planned: Opening | None = None  # its next piece of work, if that is known already

    @property
    def doing(self) -> str:
        """What it does at the moment, in words."""
        doing = self._doing
        if isinstance(doing, str):
            return doing
        number = doing.filling.slot.number
        if isinstance(doing, Opening):
            return f"opening slot {number}"
        return f"filling places {doing.start} to {doing.stop - 1} of slot {number}"

    def run(self) -> None:
        """Work until there is nothing more to do."""
        if not self._board.reader_began():
            self._doing = "ended"
            return
        try:
            with ExitStack() as stack:
                stream = self._open_stream(stack)
                filler = Filler(self._components, check_cancelled=self._check_cancelled)
                for job in self._jobs():
                    self._work(job, filler, stream)
                    del job  # an idle reader keeps no batch alive
        except BaseException as error:  # noqa: BLE001 - raised again where the consumer waits
            self._board.reader_failed(self._with_context(error, None, "reader"))
        finally:
            self._doing = "ended"
            self._board.reader_ended()

    def _open_stream(self, stack: ExitStack) -> Stream | None:
        """Make the thread a device's, and return a stream of its own, where it has memory."""
        device = self._components.device
        if not device.has_device_memory:
            return None
        device.dedicate_thread()
        stay_near(device, num_readers=self._components.num_threads, is_first=self._number == 0)
        stream = device.make_stream(self.name)
        stack.callback(stream.close)
        return stream

    def _work(self, job: Opening | Part, filler: Filler, stream: Stream | None) -> None:
        """Do one piece of work: plan, shape, fill, push, publish."""
        board = self._board
        parts = self._plan_and_shape(job, filler) if isinstance(job, Opening) else [job]
        for filled in self._fill(parts, filler):
            for filling in board.parts_done(filled):
                self._try(filling, 0, self._finish, filling, stream)
                board.publish(filling)

    def _jobs(self) -> Iterator[Opening | Part]:
        busy_s = 0.0
        spare, num_waits = self._board.schedule.spare, num_disk_waits()
        while True:
            self._doing = "waiting for work"
            planned, self._planned = self._planned, None
            job = self._board.next_job(busy_s, planned)
            if job is None:
                return
            began = self._clock()
            self._doing = job
            del planned
            yield job
            del job
            busy_s = self._clock() - began
            if busy_s > _SHORT_S:
                before, num_waits = num_waits, num_disk_waits()
                spare.waits_for_disk = num_waits > before
                if num_waits > before:
                    self._board.planner.cold_reads.note_wait()
            elif spare.waits_for_disk:
                spare.waits_for_disk = False

    def _plan_and_shape(self, job: Opening, filler: Filler) -> list[Part]:
        """Open a batch, and if it is light the next ones; return the first part of each."""
        board = self._board
        parts: list[Part] = []
        opening: Opening | None = job
        while opening is not None:
            self._doing = opening
            filling = opening.filling
            if not self._try(filling, 0, self._open, opening, filler):
                board.publish(filling)
                break
            part = board.split_into_parts(filling)
            if part is None:
                break
            parts.append(part)
            opening = None
            if filling.is_small_raw and len(parts) < self._max_batches_per_call:
                opening = board.next_opening()
        return parts

    def _fill(self, parts: list[Part], filler: Filler) -> Iterator[list[Part]]:
        """Fill parts; yield those that are to be handed over together."""
        together = filler.light.fill_together([part.filling for part in parts])
        if together is None:
            for part in parts:
                self._doing = part
                self._try(part.filling, part.start, self._fill_part, part, filler)
                yield [part]
            return
        for part, filled in zip(parts, together, strict=True):
            self._doing = part
            self._try(part.filling, 0, self._fill_part, part, filler, filled)
        yield parts

    # The steps of one batch: each notes its name, for errors ----------------------------------

    def _open(self, opening: Opening, filler: Filler) -> None:
        filling = opening.filling
        if not opening.is_planned:
            self._plan(filling)
        self._stage = "read"
        shape = filler.find_shape(filling)
        self._stage = "allocate"
        filler.give_memory(filling, shape)

    @ranged("plan")
    def _plan(self, filling: Filling) -> None:
        self._stage = "plan"
        self._board.plan(filling)

    def _fill_part(self, part: Part, filler: Filler, filled: FilledRows | None = None) -> None:
        self._stage = "fill"
        filler.fill(part, filled)
        # Not for light batches: they come several at once, and keep the consumer busy.
        if self._planned is None and not part.filling.is_small_raw:
            self._plan_ahead()

    def _plan_ahead(self) -> None:
        """Plan the next batch before handing this one over."""
        # Planning calls NumPy, which releases the GIL many times; once the consumer is awake, a
        # pure-Python loop would take the GIL each time and keep it for a switch interval (5 ms).
        opening = self._board.early_opening()
        if opening is None:
            return
        if self._try(opening.filling, 0, self._plan, opening.filling):
            self._planned = Opening(opening.filling, is_planned=True)
        else:
            self._board.publish(opening.filling)

    @ranged("push")
    def _push(self, filling: Filling, stream: Stream | None) -> None:
        assert stream is not None
        self._doing = f"pushing slot {filling.slot.number}"
        self._stage = "push"
        filling.push(stream)

    def _mix_push_and_call(self, filling: Filling, stream: Stream | None) -> None:
        if self._mixer is not None:
            self._doing = f"mixing slot {filling.slot.number}"
            self._stage = "mix"
            self._mixer.mix(filling)
        if stream is not None:
            self._push(filling, stream)
        if self._function is None:
            return
        self._check_cancelled()  # who closes waits for calls at work, and for no further one
        self._doing = f"calling per_batch for slot {filling.slot.number}"
        self._stage = "per_batch"
        self._function.apply(filling, stream)

    def _try(
        self, filling: Filling, position: int, step: Callable[..., object], *arguments: object
    ) -> bool:
        """Do a step of a batch; what goes wrong is raised in the batch's turn.

        Args:
            filling: The batch.
            position: Place in it that the step begins at.
            step: The step.
            *arguments: What it is called with.

        Returns:
            Whether it went well.
        """
        try:
            step(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised again in the batch's turn
            # In no variable behind this: its traceback would keep itself and the batch alive.
            self._board.fail(
                filling, position, self._with_context(error, filling, self._stage, position)
            )
            return False
        return True

    def _check_cancelled(self) -> None:
        """Raise if this batch is no longer wanted, so that close() waits for one record a thread.

        Raises:
            FeedClosedError: It is not; the error is never raised, nor the batch served.
        """
        doing = self._doing
        is_discarded = not isinstance(doing, str) and doing.filling.is_discarded
        if is_discarded or self._board.is_stopping:
            raise FeedClosedError("the batch is no longer wanted")

    def _with_context(
        self, error: BaseException, filling: Filling | None, stage: str, position: int = 0
    ) -> BaseException:
        """Return an error that says where it happened, by the first of the records at work."""
        try:
            planned = None if filling is None else filling.planned
            record = 0 if planned is None else int(planned.records[position])
            database = self._components.source.path_of(record)
        except MemoryError:
            return error
        if planned is None:
            return with_context(error, database=database, stage=stage)
        return with_context(
            error, database=database, stage=stage, epoch=planned.epoch, batch=planned.number
        )
