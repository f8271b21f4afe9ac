"""The record by which a feed is opened: the first, in key order, that fits the configuration.

All ranks see the same one, wherever each starts. With ``on_bad_record: raise`` only the very first
is asked: it says what the records hold and what the ring will take, and each batch has the shape of
its own first record, as in Caffe. Where bad records are replaced, every batch has the shape of the
one found here, so that an odd record costs only itself wherever it stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefetch._errors.classes import ConfigError, ConfigFault, RecordError
from prefetch._record.faults import BadRecordError, Fault
from prefetch._transform.hooks import make_transformer
from prefetch._transform.operation import REFUSALS

if TYPE_CHECKING:
    from prefetch._record.layout import RecordKind, RecordLayout
    from prefetch._source.records import Records
    from prefetch._source.source import RecordSource
    from prefetch._transform.hooks import FunctionTransformer
    from prefetch._transform.host import RecordTransformer
    from prefetch._transform.options import Transform
    from prefetch._transform.record_filler import StoredImage


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """The record by which a feed is opened.

    Attributes:
        record: Its index in the source.
        key: Its key.
        kind: What it holds; ``raw`` for one that does not parse.
        image: Its sizes; None where it is bad, which is raised with its batch.
    """

    record: int
    key: bytes
    kind: RecordKind
    image: StoredImage | None


def find_first_record(
    source: RecordSource, transform: Transform, *, skip: bool, max_bad_records: int
) -> FirstRecord:
    """Look for the record by which a feed is opened; blocks while pages are read.

    Where bad records are replaced, no more than ``max_bad_records`` + 1 are looked at.

    Raises:
        ConfigError: The first record is sound and the configuration cannot take it, or, where bad
            ones are replaced, none of those looked at fits.
        SourceError: The database is damaged, or was changed or truncated.
    """
    most = min(source.num_records, max_bad_records + 1) if skip else 1
    transformer = make_transformer(transform)
    walker = source.walker()
    refused: RecordError | None = None
    option = ""
    for record in range(most):
        with walker.take(record, 1) as records:
            key = bytes(records.keys[0])
            kind = _kind(transform.decoding.record_layout, records.values[0])
            found = _look(records, transformer, kind, skip=skip)
        source.check()  # bytes of a changed database prove nothing
        if not isinstance(found, Fault):
            return FirstRecord(record, key, kind, found)
        if not skip and found.reason not in REFUSALS:
            return FirstRecord(record, key, kind, None)
        if refused is None:
            option = REFUSALS.get(found.reason, "source")
            refused = _error(source, record, key, found)
    message = str(refused)
    if skip and most > 1:
        allows = f", and max_bad_records allows {max_bad_records}"
        limit = "" if most == source.num_records else allows
        message = f"none of the first {most} records can be used{limit}; the first: {message}"
    raise ConfigError(option.partition(".")[0], (ConfigFault(option, message),)) from refused


def _look(
    records: Records,
    transformer: RecordTransformer | FunctionTransformer,
    kind: RecordKind,
    *,
    skip: bool,
) -> StoredImage | Fault:
    """Return what the first of some records holds, or what is wrong with it.

    An image is decoded where all depends on it being sound: its header may be all that was read.
    """
    found = transformer.stored_image(records.values)
    if kind == "encoded" and (skip or (isinstance(found, Fault) and found.reason in REFUSALS)):
        return transformer.damage(records.values) or found
    return found


def _kind(layout: RecordLayout, value: memoryview) -> RecordKind:
    try:
        return layout.read(value).kind
    except BadRecordError:
        return "raw"


def _error(source: RecordSource, record: int, key: bytes, fault: Fault) -> RecordError:
    database, place, _ = source.describe(record)
    return RecordError(fault.message(), database=database, record=place, key=key, stage=fault.stage)
