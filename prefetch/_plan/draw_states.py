"""The random stream's states between batches, for a feed that may be saved at any of them.

Caffe's generator has no cheap jump, and words are drawn ahead of the consumer. So its state before
each batch that is planned and not yet taken is kept. The counter-based words need no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefetch._plan.draws import CaffeDraws

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from prefetch._plan.draws import DrawSource
    from prefetch._plan.order import Order, PlannedBatch


class DrawStates:
    """Draws the words of batches in order and remembers the states between them.

    One thread at a time draws; any thread may look, without a lock.

    Args:
        draws: Draws the words; from now on only this object may use it.
        order: Plans a batch again whose state is not known.
        keep: How many states to keep: more than batches may be planned and not yet taken.
    """

    def __init__(self, draws: DrawSource, order: Order, *, keep: int) -> None:
        self._draws = draws
        self._order = order
        self._keep = keep
        self._states: dict[int, dict[str, Any]] = {}
        if isinstance(draws, CaffeDraws):
            self._first = draws.state
            self._states[0] = self._first

    @property
    def are_stateless(self) -> bool:
        """Whether any batch's words stand by themselves."""
        return not isinstance(self._draws, CaffeDraws)

    def words(self, planned: PlannedBatch) -> npt.NDArray[np.uint32]:
        """Return a batch's words; batches come in the order of their serial numbers."""
        draws = self._draws
        if not isinstance(draws, CaffeDraws):
            return draws.words(planned)
        before = draws.state_before(planned)
        words = draws.words(planned)
        self._states[planned.sequence] = before
        self._states[planned.sequence + 1] = draws.state
        # Another thread may be in before(), without the lock: each step is one operation of a dict.
        while len(self._states) > self._keep:
            del self._states[next(iter(self._states))]
        return words

    def before(self, sequence: int) -> dict[str, Any] | None:
        """Return the state before a batch.

        Args:
            sequence: Serial number of the batch, the next to be served or a later one.

        Returns:
            What `CaffeDraws` takes as its state; None for words that need none.
        """
        draws = self._draws
        if not isinstance(draws, CaffeDraws):
            return None
        state = self._states.get(sequence)
        # Not planned yet: an epoch was left in the middle.
        if state is None:
            state = self._from_the_start(draws, sequence)
        return state

    def _from_the_start(self, draws: CaffeDraws, sequence: int) -> dict[str, Any]:
        """Run a second stream up to a batch; takes as long as drawing all words before it."""
        planned = self._order.plan(sequence)
        stream = CaffeDraws(0, mirror=draws.mirror, crop=draws.crop, state=self._first)
        return stream.state if planned is None else stream.state_before(planned)
