"""Planning several batches at a time: the records and random words of a run, and parts of them.

To plan a small batch takes as long as to plan ten of them, and comes at a bad moment: the kernel
has just filled the caches with the pixels of other batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prefetch._plan.order import split_run

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from prefetch._plan.draw_states import DrawStates
    from prefetch._plan.order import Order, PlannedBatch

_RECORDS_AT_A_TIME: Final = 2048


class PlannedRuns:
    """Plans batches in the order that they are asked for. Not thread-safe.

    Args:
        order: Which records a batch has.
        draws: Draws their words.
    """

    def __init__(self, order: Order, draws: DrawStates) -> None:
        self._order = order
        self._draws = draws
        # Of words that continue a stream, the state before each batch is kept as they are drawn.
        most = _RECORDS_AT_A_TIME // order.batch_size if draws.are_stateless else 1
        self._most = max(1, most)
        self._left: list[tuple[PlannedBatch, NDArray[np.uint32]]] = []  # the next one last

    def plan(self, sequence: int) -> tuple[PlannedBatch, NDArray[np.uint32]] | None:
        """Return a batch and its words, uint32 (n, k); None at and after `Order.num_batches`.

        Args:
            sequence: Serial number of the batch; the one after the last asked for takes least.
        """
        left = self._left
        if left:
            planned = left.pop()
            if planned[0].sequence == sequence:
                return planned
            left.clear()
        run = self._order.plan_run(sequence, self._most)
        if run is None:
            return None
        words = self._draws.words(run)
        batch_size = self._order.batch_size
        if len(run.records) <= batch_size:
            return run, words
        parts = [
            (batch, words[number * batch_size : (number + 1) * batch_size])
            for number, batch in enumerate(split_run(run, batch_size))
        ]
        left.extend(reversed(parts))
        return left.pop()
