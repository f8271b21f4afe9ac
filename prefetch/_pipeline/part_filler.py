"""Filling parts of batches: from records in a database to rows of a slot.

A bad record is an error, or its place takes the next good record of the epoch's order (cyclic):
places never move. Under ``rng: counter`` the substitute has its own random words, under ``caffe``
those of the place, so that the stream continues as Caffe's would.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from prefetch._bad_records.policy import BadRecord
from prefetch._errors.classes import RecordError
from prefetch._errors.printable import printable_key
from prefetch._pipeline.light_batches import LightBatches
from prefetch._plan.draws import CounterDraws
from prefetch._process.nvtx import ranged
from prefetch._record.faults import Fault
from prefetch._ring.filling import FoundShape
from prefetch._source.mapped_records import MappedRecords
from prefetch._transform.hooks import FunctionTransformer
from prefetch._transform.record_filler import never_cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import numpy.typing as npt

    from prefetch._pipeline.components import Components
    from prefetch._pipeline.light_batches import FilledRows
    from prefetch._pipeline.reader_jobs import Part
    from prefetch._plan.order import PlannedBatch
    from prefetch._ring.filling import Filling
    from prefetch._source.records import Records

    AnyRecords: TypeAlias = Records | MappedRecords


_MAX_CANDIDATES = 256  # substitutes in one go, after a few that were bad as well


class _Suspect(NamedTuple):
    """A record that cannot be used, with copies of what there is to say and keep of it."""

    record: int
    key: bytes
    value: bytes
    fault: Fault

    @classmethod
    def at(cls, row: int, records: AnyRecords, record: int, fault: Fault) -> _Suspect:
        return cls(record, bytes(records.keys[row]), bytes(records.values[row]), fault)


class Filler:
    """Fills parts for one reader thread; owns what is not shared. Not thread-safe.

    Args:
        components: The source, the order and the transformation.
        check_cancelled: Called before each record that takes long, one to be decoded or looked up
            as a substitute; what it raises ends the part.

    Attributes:
        light: The fast path of light batches.
    """

    def __init__(
        self, components: Components, *, check_cancelled: Callable[[], object] = never_cancelled
    ) -> None:
        self._components = components
        self._check_cancelled = check_cancelled
        self._source = components.source
        self._transformer = components.record_filler(check_cancelled)
        self._reader = components.source.reader(
            in_place=components.transform.decoding.record_layout.is_native
        )
        self._fixed_shape = components.fixed_shape
        self._dtype = components.transform.dtype
        self._most_rows = components.most_rows
        self._label_form = components.label_form
        self._fields = components.fields
        self.light = LightBatches(
            self._transformer,
            self._reader,
            check_source=self._source.check,
            is_fixed=self._fixed_shape is not None,
        )
        transformer = self._transformer
        self._own = transformer if isinstance(transformer, FunctionTransformer) else None
        self._allowed_shape: tuple[int, ...] | None = None

    def find_shape(self, filling: Filling) -> FoundShape:
        """Return the shape of the samples of a batch: that of its first record.

        Where bad records are replaced, all batches have the one that was found at opening.
        Otherwise that of a light batch is guessed; where that is wrong, the first record does not
        fit, and `fill` looks at it.

        Raises:
            RecordError: The first record is bad.
        """
        return self.light.guess(filling) or self._shape_of_first(filling)

    def give_memory(self, filling: Filling, shape: FoundShape) -> None:
        """Give a batch memory in which every sample has a shape.

        Raises:
            RingTooLargeError: The machine's or the device's memory cannot hold a ring of such.
            SyncedMemoryError: It does not suffice for this batch.
        """
        if shape.sample != self._allowed_shape:
            self._components.refuse_too_large(shape.sample)
            self._allowed_shape = shape.sample
        assert filling.lease is not None
        filling.shape = shape
        filling.contents = filling.slot.bind(
            (filling.size, *shape.sample),
            self._dtype,
            self._components.label_dtype,
            filling.lease,
            most_rows=self._most_rows,
            fields=self._fields,
        )

    def _shape_of_first(self, filling: Filling) -> FoundShape:
        with self._records(filling, slice(0, 1)) as records:
            # With a function none is light: its parts are for several readers.
            is_mapped = self._own is None and isinstance(records, MappedRecords)
            if self._fixed_shape is not None:
                is_raw = is_mapped and self._components.first.kind != "encoded"
                return FoundShape(self._fixed_shape, is_raw=is_raw)
            found = self._transformer.sample_shape(_values(records))
            if isinstance(found, Fault):
                record = int(_planned(filling).records[0])
                raise self._error(_Suspect.at(0, records, record, found), filling)
            is_raw = self._own is None and isinstance(records, MappedRecords) and records.is_raw
            return FoundShape(found, is_raw=is_raw)

    def fill(self, part: Part, filled: FilledRows | None = None) -> None:
        """Fill the part's rows, labels, indices and keys, and list its bad records.

        Args:
            part: The part.
            filled: What `LightBatches.fill_together` has made of its batch already.

        Raises:
            RecordError: A record is bad, and bad records are not replaced.
            TooManyBadRecordsError: More records are bad than allowed.
            DatabaseChangedError: A writer has overwritten the snapshot, so nothing read since can
                be trusted.
        """
        filling, number, start, stop = part
        rows = slice(start, stop)
        assert filling.words is not None
        found = self._records(filling, rows) if filled is None else filled.records
        with found as records:
            faults = self._write(filling, rows, records, filling.words[rows], filled)
            if self._label_form is not None:
                faults = self._find_labels_at_fault(filling, rows, faults)
            keys = records.pack_keys()
            suspects = {}
            if faults:
                if faults[0].position == 0 and filling.shape and filling.shape.is_guessed:
                    self._fill_anew(part)
                    return
                planned = _planned(filling).records[rows]
                suspects = {
                    fault.position: _Suspect.at(
                        fault.position, records, int(planned[fault.position]), fault
                    )
                    for fault in faults
                }
        # Behind the reading and before anything is made of it: a writer may have come meanwhile.
        # What was filled together was checked together.
        if filled is None or faults:
            self._source.check()
        if suspects:
            bad = filling.bad[number] = {}
            for row in sorted(suspects):
                key = self._substitute(filling, start + row, suspects[row], bad)
                keys = keys.replace(row, key)
        elif number == 0 and filling.parts is not None and filling.parts.num == 1:
            self.light.learn(filling)
        filling.keys[number] = keys

    def _fill_anew(self, part: Part) -> None:
        """Fill the only part of a batch whose shape, perhaps, was not what had been guessed."""
        filling = part.filling
        filling.release_records()
        self.give_memory(filling, self._shape_of_first(filling))
        assert filling.parts is not None
        filling.parts.is_small_raw = False
        self.fill(part)
        self.light.forget()  # of its shape, the next may be one of several parts

    @ranged("transform")
    def _write(
        self,
        filling: Filling,
        rows: slice,
        records: AnyRecords,
        words: npt.NDArray[np.uint32],
        filled: FilledRows | None = None,
        *,
        record: int | None = None,
    ) -> list[Fault]:
        assert filling.contents is not None
        data, labels = filling.contents
        if filled is not None:
            return self.light.finish(filled, words, data)
        labels = None if labels is None else labels[rows]
        if self._own is not None:
            planned = _planned(filling)
            numbers = planned.records[rows] if record is None else np.array([record])
            self._own.key_by(self._components.order.seed, planned.epochs[rows], numbers)
        return self._transformer.fill(_values(records), words, data[rows], labels)

    def _find_labels_at_fault(
        self, filling: Filling, rows: slice, faults: list[Fault]
    ) -> list[Fault]:
        assert self._label_form is not None
        assert filling.contents is not None
        return self._label_form.find_faults(filling.contents[1][rows], faults)

    def _substitute(
        self, filling: Filling, position: int, suspect: _Suspect, bad: dict[int, BadRecord]
    ) -> bytes:
        """Put the next good record in the place of a bad one; return its key.

        Those that the part has met already are not looked at again: a run of n bad records would
        take n squared looks.
        """
        planned = _planned(filling)
        assert filling.indices is not None
        row = slice(position, position + 1)
        self._check_cancelled()
        self._refuse(bad, suspect, filling)
        for record in self._substitutes(planned, position):
            if record in bad:
                continue
            self._check_cancelled()
            with self._fetched(np.array([record])) as records:
                words = self._words(filling, position, record)
                faults = self._write(filling, row, records, words, record=record)
                if self._label_form is not None:
                    faults = self._find_labels_at_fault(filling, row, faults)
                if not faults:
                    self._source.check()
                    filling.indices[position] = record
                    return bytes(records.keys[0])
                suspect = _Suspect.at(0, records, record, faults[0])
            self._refuse(bad, suspect, filling)
        # The record that the feed was opened by is good, but for a function of the user's.
        error = self._error(suspect, filling)
        error.add_note(f"none of the other {self._source.num_records - 1} records can replace it")
        raise error

    def _substitutes(self, planned: PlannedBatch, position: int) -> Iterator[int]:
        """Yield the records of the places behind a place, once around the epoch's order."""
        order = self._components.order
        epoch = planned.epochs[position : position + 1]
        place = planned.places[position : position + 1]
        step, most = 1, 1
        while step < order.num_records:
            stop = min(step + most, order.num_records)
            places = place + np.arange(step, stop)
            yield from order.record_at(np.repeat(epoch, stop - step), places).tolist()
            step, most = stop, min(4 * most, _MAX_CANDIDATES)

    def _words(self, filling: Filling, position: int, record: int) -> npt.NDArray[np.uint32]:
        augmentation = self._components.augmentation
        if isinstance(augmentation, CounterDraws):
            epoch = _planned(filling).epochs[position : position + 1]
            return augmentation.words_at(epoch, np.array([record]))
        assert filling.words is not None
        return filling.words[position : position + 1]

    def _records(self, filling: Filling, rows: slice) -> AbstractContextManager[AnyRecords]:
        """Give the records of some rows: those walked for the slot, or fetched here."""
        records = filling.records
        if records is None:
            return self._fetched(_planned(filling).records[rows])
        return nullcontext(records[rows])

    @ranged("read")
    def _fetched(self, indices: npt.NDArray[np.int64]) -> AbstractContextManager[AnyRecords]:
        """Give records, and release them in the end."""
        records = self._reader.locate_lazily(indices)
        return self._reader.fetch(indices) if records is None else records

    def _refuse(self, bad: dict[int, BadRecord], suspect: _Suspect, filling: Filling) -> None:
        """Add to the bad records; raises unless this one is to be replaced."""
        error = self._error(suspect, filling)
        fault = suspect.fault
        policy = self._components.bad_records
        if not policy.skip:
            raise error
        bad[suspect.record] = found = BadRecord(suspect.record, fault.reason.name, error)
        policy.refuse_too_many(len(bad), found)
        if policy.quarantine is not None:
            policy.quarantine.keep(suspect.record, suspect.key, suspect.value)

    def _error(self, suspect: _Suspect, filling: Filling) -> RecordError:
        fault = suspect.fault
        database, index, _ = self._source.describe(suspect.record)
        other = self._other(filling, database) if fault.is_of_its_batch else None
        self._source.check()  # bytes of a changed database prove nothing
        error = RecordError(
            fault.message(other),
            database=database,
            record=index,
            key=suspect.key,
            batch=_planned(filling).number,
            stage=fault.stage,
        )
        error.__cause__ = fault.cause
        return error

    def _other(self, filling: Filling, database: str) -> str | None:
        """Say which record a batch has its shape from, and its sizes.

        Args:
            filling: The batch.
            database: Where the record is that differs from it.
        """
        first = self._components.first
        record, key, image = first.record, first.key, first.image
        says = "the first that can be used, which all batches follow, is"
        if self._fixed_shape is None:
            says = "the first of its batch, is"
            record = int(_planned(filling).records[0])
            with self._records(filling, slice(0, 1)) as records:
                key = bytes(records.keys[0])
                found = self._transformer.stored_image(_values(records))
                image = None if isinstance(found, Fault) else found
        if image is None:
            return None
        place, index, _ = self._source.describe(record)
        name = f"record {index}" if place == database else f"record {index} of {place}"
        return f"{name}, key '{printable_key(key)}', {says} {' x '.join(map(str, image[:3]))}"


def _values(records: AnyRecords) -> Sequence[memoryview] | MappedRecords:
    """Return records as a transformer takes them."""
    return records if isinstance(records, MappedRecords) else records.values


def _planned(filling: Filling) -> PlannedBatch:
    assert filling.planned is not None
    return filling.planned
