"""What the consumer may hold, and when the ring grows.

The consumer may hold ``max_batches_held`` batches at a time. However many it holds, ``prefetch``
are kept ahead of it: the ring grows for them, and shrinks again by `Ring.take_unneeded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefetch._errors.classes import BatchesHeldError

if TYPE_CHECKING:
    from prefetch._ring.ring import Ring


class HeldBatches:
    """The batches that the consumer holds; guarded by the coordinator's lock.

    Args:
        ring: The slots that they are in.
        prefetch: Batches kept ahead of the consumer.
        max_batches_held: Batches that it may hold at a time.
    """

    def __init__(self, ring: Ring, *, prefetch: int, max_batches_held: int) -> None:
        self.prefetch = prefetch
        self.max_batches_held = max_batches_held
        self._ring = ring

    def make_room(self, *, is_next_ready: bool, is_repeat: bool) -> None:
        """Let the ring grow with what the consumer holds, so that ``prefetch`` stay ahead of it.

        `Delivery.poll` calls it only where it has something to do.

        Args:
            is_next_ready: Whether the batch that is taken next stands ready.
            is_repeat: Whether that one is leased already: an exception kept it from the loop.

        Raises:
            BatchesHeldError: The consumer holds as many batches as it may.
        """
        ring, num_leased = self._ring, self._ring.occupancy.num_leased
        if num_leased >= self.max_batches_held and not is_repeat:
            # The count is late by what a reader has yet to take in: each slot knows for itself.
            held = [slot.filling.name for slot in ring.slots if slot.is_held and slot.filling]
            if len(held) >= self.max_batches_held:
                raise BatchesHeldError(
                    max_batches_held=self.max_batches_held, batches=tuple(sorted(held))
                )
        lacking = num_leased + self.prefetch - len(ring.slots)
        # Batches that have come back to the inbox are leased no longer: the ring need not grow for
        # them. Where the next batch is not ready, none may be taken and no call come to ask again,
        # so each slot is asked.
        # On a device the inbox also has events of host blocks, which look the same.
        returned = ring.inbox.qsize() - ring.num_wake_ups if ring.pool is None else 0
        if lacking > 0 and (lacking > returned or not is_next_ready):
            for _ in range(ring.num_held + self.prefetch - len(ring.slots)):
                ring.grow()
