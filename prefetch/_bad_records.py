"""What is done about bad records, and how many there may be."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from prefetch._errors import TooManyBadRecordsError

if TYPE_CHECKING:
    from prefetch._errors import RecordError

logger = logging.getLogger("prefetch")


class BadRecords:
    """Counts the different bad records of a feed; thread-safe.

    Args:
        skip: Whether bad records are replaced; otherwise the first is an error.
        max_bad_records: How many different ones are replaced before that is an error.
    """

    def __init__(self, *, skip: bool, max_bad_records: int) -> None:
        self.skip = skip
        self._max = max_bad_records
        self._lock = threading.Lock()
        self._records: set[int] = set()
        self._logged: set[str] = set()

    def __len__(self) -> int:
        """Return how many different records were bad."""
        return len(self._records)

    def note(self, record: int, error: RecordError, *, kind: str) -> None:
        """Count a record that is about to be replaced; log the first of each kind.

        Args:
            record: Its index in the source.
            error: What is wrong with it.
            kind: Name of the reason, the same for all records with the same trouble.

        Raises:
            RecordError: Bad records are not to be replaced.
            TooManyBadRecordsError: It was one too many.
        """
        if not self.skip:
            raise error
        with self._lock:
            self._records.add(record)
            num_bad = len(self._records)
            first_of_kind = kind not in self._logged
            self._logged.add(kind)
        if num_bad > self._max:
            raise TooManyBadRecordsError(
                num_bad=num_bad, max_bad_records=self._max, last=error
            ) from error
        if first_of_kind:
            logger.warning("skipped a bad record (others like it are only counted): %s", error)
