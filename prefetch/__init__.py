"""Feed a training loop from a database of examples, ahead of consumption.

::

    import prefetch

    with prefetch.open("train_lmdb", batch_size=32, shuffle=True) as feed:
        for batch in feed:
            images, labels = batch.data.numpy(), batch.label.numpy()

Background threads fill a ring of batches from an LMDB of Caffe ``Datum`` records and push them to
the device while the loop computes. `open` takes a database, a YAML file, a mapping, or the network
file of a Caffe model, and options as keywords. The messages of Caffe's wire format are in
`prefetch.caffe`, aids for tests in `prefetch.testing`. `kernels_available` says whether the C
extension transforms the records; without it NumPy does, with the same bytes in more time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from prefetch._errors.classes import BatchesHeldError as BatchesHeldError
from prefetch._errors.classes import BatchReleasedError as BatchReleasedError
from prefetch._errors.classes import ConfigError as ConfigError
from prefetch._errors.classes import ConfigFault as ConfigFault
from prefetch._errors.classes import ConfigNotFoundError as ConfigNotFoundError
from prefetch._errors.classes import CorruptDatabaseError as CorruptDatabaseError
from prefetch._errors.classes import DatabaseChangedError as DatabaseChangedError
from prefetch._errors.classes import DatabaseInUseError as DatabaseInUseError
from prefetch._errors.classes import DatabaseNotFoundError as DatabaseNotFoundError
from prefetch._errors.classes import DatabaseTruncatedError as DatabaseTruncatedError
from prefetch._errors.classes import EmptyDatabaseError as EmptyDatabaseError
from prefetch._errors.classes import EpochsExhaustedError as EpochsExhaustedError
from prefetch._errors.classes import FeedBusyError as FeedBusyError
from prefetch._errors.classes import FeedClosedError as FeedClosedError
from prefetch._errors.classes import LabelsNotProducedError as LabelsNotProducedError
from prefetch._errors.classes import OutOfMemoryError as OutOfMemoryError
from prefetch._errors.classes import PrefetchError as PrefetchError
from prefetch._errors.classes import PrefetchWarning as PrefetchWarning
from prefetch._errors.classes import QuarantineError as QuarantineError
from prefetch._errors.classes import RecordError as RecordError
from prefetch._errors.classes import RingTooLargeError as RingTooLargeError
from prefetch._errors.classes import SourceError as SourceError
from prefetch._errors.classes import StaleIteratorError as StaleIteratorError
from prefetch._errors.classes import StateError as StateError
from prefetch._errors.classes import ThreadStartError as ThreadStartError
from prefetch._errors.classes import TooManyBadRecordsError as TooManyBadRecordsError
from prefetch._errors.classes import UnsupportedSourceError as UnsupportedSourceError
from prefetch._feed.feed import Feed as Feed
from prefetch._feed.into import Filled as Filled
from prefetch._feed.into import Into as Into
from prefetch._feed.iterators import AsyncFeedIterator as AsyncFeedIterator
from prefetch._feed.iterators import FeedIterator as FeedIterator
from prefetch._feed.open import open as open  # noqa: A004 - reads as prefetch.open
from prefetch._feed.open import open_prototxt as open_prototxt
from prefetch._kernels.selection import kernels_available as kernels_available
from prefetch._pipeline.stats import FeedStats as FeedStats
from prefetch._ring.batch import Batch as Batch
from prefetch._shadowing import warn_of_hidden as _warn_of_hidden

if TYPE_CHECKING:
    from prefetch._config.feed_config import FeedConfig as FeedConfig
    from prefetch._report.sheet import ContactSheet as ContactSheet

__all__ = [
    "AsyncFeedIterator",
    "Batch",
    "BatchReleasedError",
    "BatchesHeldError",
    "ConfigError",
    "ConfigFault",
    "ConfigNotFoundError",
    "ContactSheet",
    "CorruptDatabaseError",
    "DatabaseChangedError",
    "DatabaseInUseError",
    "DatabaseNotFoundError",
    "DatabaseTruncatedError",
    "EmptyDatabaseError",
    "EpochsExhaustedError",
    "Feed",
    "FeedBusyError",
    "FeedClosedError",
    "FeedConfig",
    "FeedIterator",
    "FeedStats",
    "Filled",
    "Into",
    "LabelsNotProducedError",
    "OutOfMemoryError",
    "PrefetchError",
    "PrefetchWarning",
    "QuarantineError",
    "RecordError",
    "RingTooLargeError",
    "SourceError",
    "StaleIteratorError",
    "StateError",
    "ThreadStartError",
    "TooManyBadRecordsError",
    "UnsupportedSourceError",
    "kernels_available",
    "open",
    "open_prototxt",
]

for _name in set(__all__) - {"ContactSheet", "FeedConfig", "kernels_available"}:
    globals()[_name].__module__ = __name__  # tracebacks show the public name
del _name

logging.getLogger(__name__).addHandler(logging.NullHandler())

_warn_of_hidden()


def __getattr__(name: str) -> object:
    """Import what is slow to import at its first use."""
    if name == "FeedConfig":
        from prefetch._config.feed_config import FeedConfig  # noqa: PLC0415 - pydantic takes 0.1 s

        FeedConfig.__module__ = __name__
        globals()[name] = FeedConfig
        return FeedConfig
    if name == "ContactSheet":
        from prefetch._report.sheet import ContactSheet  # noqa: PLC0415 - OpenCV takes 0.1 s

        ContactSheet.__module__ = __name__
        globals()[name] = ContactSheet
        return ContactSheet
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
