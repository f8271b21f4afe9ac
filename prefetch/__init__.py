"""Feed a training loop from a database of examples, ahead of consumption.

::

    import prefetch

    with prefetch.open({"source": "train_lmdb", "batch_size": 32}) as feed:
        for batch in feed:
            images, labels = batch.data.numpy(), batch.label.numpy()

Background threads fill a ring of batches from an LMDB of Caffe ``Datum`` records and push them to
the device while the loop computes. `open` takes a YAML file or a mapping, `open_prototxt` the
network file of a Caffe model. The messages of Caffe's wire format are in `prefetch.caffe`, aids
for tests in `prefetch.testing`. `kernels_available` tells whether the C extension transforms the
records; without it NumPy does, with the same bytes in more time.
"""

from __future__ import annotations

from prefetch import _starting  # before all that takes a while

# isort: split
import logging
from typing import TYPE_CHECKING

from prefetch._batch import Batch as Batch
from prefetch._errors import BatchesHeldError as BatchesHeldError
from prefetch._errors import BatchReleasedError as BatchReleasedError
from prefetch._errors import ConfigError as ConfigError
from prefetch._errors import ConfigFault as ConfigFault
from prefetch._errors import ConfigNotFoundError as ConfigNotFoundError
from prefetch._errors import CorruptDatabaseError as CorruptDatabaseError
from prefetch._errors import DatabaseChangedError as DatabaseChangedError
from prefetch._errors import DatabaseInUseError as DatabaseInUseError
from prefetch._errors import DatabaseNotFoundError as DatabaseNotFoundError
from prefetch._errors import DatabaseTruncatedError as DatabaseTruncatedError
from prefetch._errors import EmptyDatabaseError as EmptyDatabaseError
from prefetch._errors import EpochsExhaustedError as EpochsExhaustedError
from prefetch._errors import FeedBusyError as FeedBusyError
from prefetch._errors import FeedClosedError as FeedClosedError
from prefetch._errors import LabelsNotProducedError as LabelsNotProducedError
from prefetch._errors import OutOfMemoryError as OutOfMemoryError
from prefetch._errors import PrefetchError as PrefetchError
from prefetch._errors import PrefetchWarning as PrefetchWarning
from prefetch._errors import QuarantineError as QuarantineError
from prefetch._errors import RecordError as RecordError
from prefetch._errors import RingTooLargeError as RingTooLargeError
from prefetch._errors import SourceError as SourceError
from prefetch._errors import StaleIteratorError as StaleIteratorError
from prefetch._errors import StateError as StateError
from prefetch._errors import ThreadStartError as ThreadStartError
from prefetch._errors import TooManyBadRecordsError as TooManyBadRecordsError
from prefetch._errors import UnsupportedSourceError as UnsupportedSourceError
from prefetch._feed import AsyncFeedIterator as AsyncFeedIterator
from prefetch._feed import Feed as Feed
from prefetch._feed import FeedIterator as FeedIterator
from prefetch._into import Filled as Filled
from prefetch._into import Into as Into
from prefetch._kernel_choice import kernels_available as kernels_available
from prefetch._open import open as open  # noqa: A004 - reads as prefetch.open
from prefetch._open import open_prototxt as open_prototxt
from prefetch._shadowing import warn_of_hidden as _warn_of_hidden
from prefetch._stats import FeedStats as FeedStats

if TYPE_CHECKING:
    from prefetch._config import FeedConfig as FeedConfig

__all__ = [
    "AsyncFeedIterator",
    "Batch",
    "BatchReleasedError",
    "BatchesHeldError",
    "ConfigError",
    "ConfigFault",
    "ConfigNotFoundError",
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

for _name in set(__all__) - {"FeedConfig", "kernels_available"}:
    globals()[_name].__module__ = __name__  # tracebacks show the public name
del _name

logging.getLogger(__name__).addHandler(logging.NullHandler())

_warn_of_hidden()

if _starting.begun:
    _starting.end()


def __getattr__(name: str) -> object:
    """Import what is slow to import at its first use."""
    if name == "FeedConfig":
        from prefetch._config import FeedConfig  # noqa: PLC0415 - pydantic takes 0.1 s

        FeedConfig.__module__ = __name__
        globals()[name] = FeedConfig
        return FeedConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
