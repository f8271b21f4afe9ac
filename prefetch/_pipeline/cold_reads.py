"""Reading ahead, while records come from the disk.

A record that is in no memory yet is read when it is first touched, one after the other. The plan
says which records come next, so the system is asked for those in advance, and the disk works on
many of them at a time. Where all is in memory that would be 1 to 3 us a record for nothing. So it
is done only after a reader had to wait for the disk (a *major fault*), and for a number of batches;
then it is tried without. Where readers have to wait again at once, the next time is twice as long.

In key order nothing is asked for: the system reads ahead by itself, in larger pieces. With advice
a feed was served 0.7 times as fast there (8 MiB of readahead, on a busy machine).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prefetch._plan.order import Order
    from prefetch._source.records import RecordReader

_FIRST_BATCHES: Final = 32
_MOST_BATCHES: Final = 1024
# Behind the end of a time, in batches: more than are planned before the readers' next wait shows.
_SOON: Final = 64
_RECORDS_AHEAD: Final = 256  # of 64, 128, 256 and 512 the fastest, on a disk of about 1 GB/s


class ColdReads:
    """Asks for the records of the batches ahead; by one reader at a time, but for `note_wait`.

    Args:
        reader: Where the records are.
        order: Which records a batch has.
        is_on: Whether records come from the disk from the start.

    Attributes:
        is_on: Whether `read_ahead` is to be called for each batch.
    """

    def __init__(self, reader: RecordReader, order: Order, *, is_on: bool = False) -> None:
        self._reader = reader
        self._order = order
        self._batches_ahead = max(1, _RECORDS_AHEAD // order.batch_size)
        self.is_on = is_on and order.shuffle
        self._duration = 0
        self._stop = -_SOON  # the batch with which the time ends, or the last one has ended
        self._asked_before = 0

    def note_wait(self) -> None:
        """Note that a reader has waited for the disk; on any thread, without a lock."""
        self.is_on = self._order.shuffle

    def read_ahead(self, sequence: int) -> None:
        """Ask for the records of a batch that is planned now and of those behind it, once each.

        Args:
            sequence: Serial number of that batch; they rise.
        """
        if sequence >= self._stop:
            is_back = sequence < self._stop + _SOON
            longer = min(2 * self._duration, _MOST_BATCHES)
            self._duration = longer if is_back else _FIRST_BATCHES
            self._stop = sequence + self._duration
        first = max(sequence, self._asked_before)
        self._asked_before = sequence + 1 + self._batches_ahead
        for number in range(first, self._asked_before):
            planned = self._order.plan(number)
            if planned is None:
                break
            self._reader.advise(planned.records)
        if sequence + 1 >= self._stop:
            self.is_on = False

    def __repr__(self) -> str:
        return f"<ColdReads, {f'on up to batch {self._stop - 1}' if self.is_on else 'off'}>"
