"""Which records were bad, and how many there may be.

Readers collect the bad records of each batch; they are counted when the batch is served, in the
order of its places. So the error about too many comes at the same batch for any number of threads.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefetch._errors.classes import TooManyBadRecordsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefetch._bad_records.quarantine import Quarantine
    from prefetch._errors.classes import RecordError

logger = logging.getLogger("prefetch")


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that was replaced by another one.

    Attributes:
        record: Its index in the source.
        kind: Name of the reason, the same for all records with the same trouble.
        error: What is wrong with it.
    """

    record: int
    kind: str
    error: RecordError


class BadRecords:
    """What is done about bad records, and the count of the different ones that batches met.

    The prefetcher's lock guards `count`; reading needs none.

    Args:
        skip: Whether bad records are replaced; otherwise the first is an error.
        max_bad_records: How many different ones are replaced before that is an error.
        quarantine: Where their bytes are kept; None for nowhere. It is closed with this object.

    """

    def __init__(
        self, *, skip: bool, max_bad_records: int, quarantine: Quarantine | None = None
    ) -> None:
        self.skip = skip
        self.quarantine = quarantine
        self.max_bad_records = max_bad_records
        self._records: set[int] = set()
        self._kinds: set[str] = set()

    def __len__(self) -> int:
        """Return how many different records were bad in the batches served."""
        return len(self._records)

    def close(self) -> None:
        """Close the quarantine, if there is one; idempotent."""
        if self.quarantine is not None:
            self.quarantine.close()

    def refuse_too_many(self, num_bad: int, last: BadRecord) -> None:
        """Stop the search for a substitute when one part alone has met too many.

        Args:
            num_bad: How many different ones it has met.
            last: The last of them.

        Raises:
            TooManyBadRecordsError: They are too many.
        """
        if num_bad > self.max_bad_records:
            raise TooManyBadRecordsError(
                num_bad=num_bad, max_bad_records=self.max_bad_records, last=last.error
            )

    def count(self, found: Iterable[BadRecord]) -> list[BadRecord]:
        """Count the bad records of a batch that is being served.

        Args:
            found: Those of its places, in order.

        Returns:
            The first of each kind that has not been met before.

        Raises:
            TooManyBadRecordsError: One of them was one too many.
        """
        records: set[int] = set()
        kinds: set[str] = set()
        to_log: list[BadRecord] = []
        too_many: TooManyBadRecordsError | None = None
        for bad in found:
            if bad.record not in self._records:
                records.add(bad.record)
            num_bad = len(self._records) + len(records)
            if num_bad > self.max_bad_records:
                too_many = TooManyBadRecordsError(
                    num_bad=num_bad, max_bad_records=self.max_bad_records, last=bad.error
                )
                break
            if bad.kind not in self._kinds and bad.kind not in kinds:
                kinds.add(bad.kind)
                to_log.append(bad)
        # At the end, in calls of C: where a signal handler raises, the batch comes again.
        self._records.update(records)
        self._kinds.update(kinds)
        if too_many is not None:
            raise too_many
        return to_log


def log(to_log: Iterable[BadRecord]) -> None:
    """Log the first bad record of each kind.

    Call it without any lock: a handler of the log may do anything, closing the feed included.
    """
    for bad in to_log:
        logger.warning("skipped a bad record (others like it are only counted): %s", bad.error)
