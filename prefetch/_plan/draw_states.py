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
        augmentation: Draws the words; only through this object from now on.
        order: Plans a batch again whose state is not known.
        keep: How many batches may be planned and not yet taken, and some.
    """

    def __init__(self, augmentation: DrawSource, order: Order, *, keep: int) -> None:
        self._augmentation = augmentation
        self._order = order
        self._keep = keep
        self._states: dict[int, dict[str, Any]] = {}
        if isinstance(augmentation, CaffeDraws):
            self._first = augmentation.state
            self._states[0] = self._first

    def words(self, planned: PlannedBatch) -> npt.NDArray[np.uint32]:
        """Return a batch's words; batches come in the order of their serial numbers."""
        augmentation = self._augmentation
        if not isinstance(augmentation, CaffeDraws):
            return augmentation.words(planned)
        before = augmentation.state_before(planned)
        words = augmentation.words(planned)
        self._states[planned.sequence] = before
        self._states[planned.sequence + 1] = augmentation.state
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
        augmentation = self._augmentation
        if not isinstance(augmentation, CaffeDraws):
            return None
        state = self._states.get(sequence)
        if state is None:
            state = self._from_the_start(augmentation, sequence)
        return state

    def _from_the_start(self, augmentation: CaffeDraws, sequence: int) -> dict[str, Any]:
        """Run a second stream up to a batch that has not been planned yet: an epoch was left."""
        planned = self._order.plan(sequence)
        stream = CaffeDraws(
            0, mirror=augmentation.mirror, crop=augmentation.crop, state=self._first
        )
        return stream.state if planned is None else stream.state_before(planned)
