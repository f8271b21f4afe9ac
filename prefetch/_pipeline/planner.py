"""Planning: which records a batch has, their random words, and what is walked for it in order."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from prefetch._pipeline.cold_reads import ColdReads
from prefetch._plan.draw_states import DrawStates
from prefetch._plan.planned_runs import PlannedRuns
from prefetch._plan.position import Position

if TYPE_CHECKING:
    from prefetch._pipeline.components import Components
    from prefetch._ring.filling import Filling
    from prefetch._source.records import Walker


class Planner:
    """Plans one batch after the other; one reader at a time, but for what says otherwise.

    Args:
        components: What it works with.

    Attributes:
        walker: Walks the database in order; None where readers find records by the index.
        cold_reads: Has records read that are planned next.
    """

    def __init__(self, components: Components) -> None:
        source, order = components.source, components.order
        self._source = source
        self._order = order
        self._draws = DrawStates(
            components.augmentation,
            order,
            keep=components.prefetch + components.max_batches_held + 3,
        )
        self._runs = PlannedRuns(order, self._draws)
        self.cold_reads = ColdReads(source.reader(), order, is_on=source.was_cold())
        walks_all = order.is_sequential and not source.has_gaps
        self.walker: Walker | None = source.walker() if walks_all else None
        # Where the index takes a while, it grows with the first epoch, so that this starts at once.
        # Databases that are not mapped are walked.
        self._covers = walks = source.is_slow_to_index
        self._indexed_from_epoch = order.first_epoch + int(walks)

    @property
    def reads(self) -> bool:
        """Whether planning reads the database, which may take long."""
        return self.walker is not None or self.cold_reads.is_on

    def plan_into(self, filling: Filling) -> None:
        """Plan a batch and walk its records."""
        run = self._runs.plan(filling.sequence)
        assert run is not None, "num_batches bounds the serial numbers"
        filling.planned, filling.words = planned, _ = run  # later errors say which batch it was
        filling.indices = planned.records.copy()
        if self.cold_reads.is_on:
            self.cold_reads.read_ahead(planned.sequence)
        if self.walker is None:
            return
        if planned.epoch >= self._indexed_from_epoch:
            # Tried once: readers find the records themselves from here on, if they are faster.
            self._indexed_from_epoch = sys.maxsize
            if self._source.can_do_without_walker():
                self.walker = None
                return
        first, last = int(planned.records[0]), int(planned.records[-1])
        self._covers = self._covers and self.walker.cover(first, last)
        if not self._covers:
            filling.records = self.walker.take(first, len(planned.records))

    def position(self, place: int) -> Position:
        """Return where a feed opened anew would continue; on any thread, without a lock.

        Args:
            place: Serial number of the first batch that the loop does not have.
        """
        epoch, num_served = self._order.resume_point(place)
        return Position(epoch, num_served, self._order.seed, self._draws.before(place))
