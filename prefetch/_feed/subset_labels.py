"""The labels of all records, read in one pass: for a subset that has a share of each label."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from prefetch._errors.classes import ConfigError, ConfigFault
from prefetch._errors.printable import printable_key
from prefetch._record.faults import BadRecordError
from prefetch._record.layouts.datum import DATUM

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from prefetch._source.source import RecordSource

logger = logging.getLogger("prefetch")

_RECORDS_AT_ONCE: Final = 4096
_REPORT_EVERY_S: Final = 10
# Labels are int32: these are none. Bad records share one, since what is done about them shows when
# they are served.
_BAD: Final = 1 << 40
_MISSING: Final = _BAD + 1


def read_labels(
    source: RecordSource, *, clock: Callable[[], float] = time.monotonic
) -> npt.NDArray[np.int64]:
    """Return the label of every record; blocks for about 3 us a record, and logs how far it is.

    Returns:
        int64, shape (N,). Of a record that is no Datum it is one that no other has.

    Raises:
        ConfigError: A record has none.
        SourceError: The database is damaged, or was changed or truncated.
    """
    num = source.num_records
    labels = np.empty(num, np.int64)
    walker = source.walker()
    logger.info("subset.stratify: reading the labels of %d records, once", num)
    reported = clock()
    for start in range(0, num, _RECORDS_AT_ONCE):
        stop = min(start + _RECORDS_AT_ONCE, num)
        with walker.take(start, stop - start) as records:
            found = [_label(value) for value in records.values]
            lacking = found.index(_MISSING) if _MISSING in found else -1
            key = bytes(records.keys[lacking])
        source.check()  # bytes of a changed database prove nothing
        if lacking >= 0:
            message = (
                f"stratify needs a label in every record, and record {start + lacking}, "
                f"key '{printable_key(key)}', has none; leave stratify out"
            )
            raise ConfigError("subset", (ConfigFault("subset.stratify", message),))
        labels[start:stop] = found
        if clock() - reported >= _REPORT_EVERY_S:
            reported = clock()
            logger.info("subset.stratify: read the labels of %d of %d records", stop, num)
    return labels


def _label(value: memoryview) -> int:
    """Return a record's label, or the value for no label."""
    try:
        datum = DATUM.read(value)
    except BadRecordError:
        return _BAD
    return datum.label if datum.has_label else _MISSING
