"""A feed as one stream of batches, for tools that count batches and not epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefetch._errors.classes import EmptyDatabaseError
from prefetch._errors.printable import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefetch._feed.feed import Feed
    from prefetch._ring.batch import Batch


def endless(feed: Feed) -> Iterator[Batch]:
    """Yield the batches of epoch after epoch.

    Raises:
        EmptyDatabaseError: An epoch has no batches.
        PrefetchError: As the feed does.
    """
    while True:
        served = False
        for batch in feed:
            served = True
            yield batch
        if not served:
            raise EmptyDatabaseError(
                str(feed.config.source[0]),
                f"an epoch has no batches: it has {counted(feed.num_records, 'record')}, with "
                f"batch_size {feed.config.batch_size} and last_batch {feed.config.last_batch}; "
                "lower batch_size, or use last_batch: partial",
            )
