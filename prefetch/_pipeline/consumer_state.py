"""What the consumer asks for and has been given: claims, what calls have taken, what was served."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from prefetch._ring.batch import Batch
    from prefetch._ring.filling import Filling


class EndOfEpoch(Exception):  # noqa: N818 - control flow, like StopIteration
    """The claim has served its epoch."""


class Claim:
    """One iterator's right to the feed's batches.

    Attributes:
        started: Whether its first next() has come.
        ended: Whether it has served the last batch of its epoch.
        end: Serial number of the batch after the last of its epoch; None for an endless stream.
    """

    __slots__ = ("end", "ended", "started")

    def __init__(self) -> None:
        self.started = False
        self.ended = False
        self.end: int | None = None


class Taken:
    """What one call of next() has taken, until the loop has it.

    Attributes:
        filling: The batch's filling of its slot; None so far.
        batch: The batch, once it is made, until the loop has it.
        num_ready: Batches that stood ready when the call began; -1 before they are counted.
        is_over: Whether the loop has it.
        is_lost: Whether the call ended in an exception: the batch is still to be served.
        fate: The error that is the batch's own, or the feed's; None for any other.
    """

    # Of the class until they are set: most calls need no more than half of them.
    filling: Filling | None = None
    batch: Batch | None = None
    num_ready = -1
    is_over = False
    is_lost = False
    fate: BaseException | None = None

    @property
    def is_pending(self) -> bool:
        """Whether its call is still at it: the batch is neither the loop's nor lost."""
        return not (self.is_over or self.is_lost)

    @property
    def sequence(self) -> int:
        """Serial number of the batch."""
        assert self.filling is not None
        return self.filling.sequence

    @property
    def size(self) -> int:
        """Samples in the batch."""
        return 0 if self.filling is None else self.filling.size

    def drop(self) -> None:
        """Drop a batch that will not be asked for again."""
        if self.filling is not None:
            self.batch = None
            self.filling.forget()


class Served(NamedTuple):
    """What has been served at one moment; replaced as a whole, so that no lock is needed to look.

    Attributes:
        next: Serial number of the batch taken next, but for those that calls have lost.
        epoch: Epoch of the batch taken last; after the end of an epoch, the next one.
        is_begun: Whether one of that epoch's batches has been taken.
        in_hand: What calls have taken, the oldest first: of those that are over, only the last.
        batches: Batches taken, those in hand included.
        samples: Samples in them.
        ready_sum: Batches that stood ready when these were asked for, summed up.
    """

    next: int
    epoch: int
    is_begun: bool
    in_hand: tuple[Taken, ...]
    batches: int
    samples: int
    ready_sum: int

    @property
    def place(self) -> int:
        """Serial number of the first batch that the loop does not have."""
        pending = [taken.sequence for taken in self.in_hand if not taken.is_over]
        return min(pending, default=self.next)

    @property
    def lost(self) -> Taken | None:
        """The first batch that a call has taken and lost."""
        for taken in self.in_hand:
            if taken.is_lost:
                return taken
        return None

    def without(self, lacking: list[Taken]) -> Served:
        """Return the same, but as if some of those in hand had not been taken."""
        return self._replace(
            in_hand=tuple([taken for taken in self.in_hand if taken not in lacking]),
            batches=self.batches - len(lacking),
            samples=self.samples - sum([taken.size for taken in lacking]),
            ready_sum=self.ready_sum - sum([taken.num_ready for taken in lacking]),
        )

    def without_lost(self) -> Served:
        """Return the same, but as if those that were lost had not been taken."""
        return self.without([taken for taken in self.in_hand if taken.is_lost])

    def without_pending(self) -> Served:
        """Return the same with the counts of what the loop has."""
        return self.without([taken for taken in self.in_hand if not taken.is_over])
