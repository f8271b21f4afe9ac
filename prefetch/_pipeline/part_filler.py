"""Filling parts of batches: from records in a database to rows of a slot.

A bad record is an error, or its place takes the next good record of the epoch's order (cyclic):
places never move. Under ``rng: counter`` the substitute has its own random words, under ``caffe``
those of the place, so that the stream goes on as Caffe's would.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from prefetch._bad_records.policy import BadRecord
from prefetch._errors.classes import RecordError
from prefetch._errors.printable import printable_key
from prefetch._plan.draws import CounterDraws
from prefetch._process.nvtx import ranged
from prefetch._record.faults import Fault
from prefetch._source.mapped_records import MappedRecords
from prefetch._transform.host import RecordTransformer
from prefetch._transform.record_filler import never_cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import numpy.typing as npt

    from prefetch._pipeline.components import Components
    from prefetch._pipeline.schedule import Part
    from prefetch._plan.order import PlannedBatch
    from prefetch._ring.slot import Slot
    from prefetch._source.source import Records

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
        self._last_layout: tuple[int, tuple[int, ...]] | None = None
        self._allowed_shape: tuple[int, ...] | None = None

    def first_shape(self, slot: Slot) -> tuple[int, ...]:
        """Return the sample shape of a slot's batch: that of its first record.

        Where bad records are replaced, all batches have the one that was found at opening.
        Otherwise, after a raw batch of one part, that of the next one is guessed to be the same;
        where that is wrong, the first record does not fit, and `fill` looks at it.

        Raises:
            RecordError: The first record is bad.
        """
        if self._last_layout is not None and slot.records is None:
            most_rows, shape = self._last_layout
            if slot.size <= most_rows:
                slot.is_raw = True
                slot.is_guessed = self._fixed_shape is None
                return shape
        return self._find_shape(slot)

    def give_memory(self, slot: Slot, sample_shape: tuple[int, ...]) -> None:
        """Give a slot the memory for its batch, in which every sample has a shape.

        Raises:
            RingTooLargeError: The machine's or the device's memory cannot hold a ring of such.
            SyncedMemoryError: It does not suffice for this batch.
        """
        components = self._components
        if sample_shape != self._allowed_shape:
            components.refuse_too_large(sample_shape)
            self._allowed_shape = sample_shape
        slot.shape(
            sample_shape,
            dtype=components.transform.dtype,
            label_dtype=components.label_dtype,
            most_rows=components.most_rows,
        )

    def _find_shape(self, slot: Slot) -> tuple[int, ...]:
        planned = _planned(slot)
        with self._records(slot, slice(0, 1)) as records:
            if self._fixed_shape is not None:
                is_mapped = isinstance(records, MappedRecords)
                slot.is_raw = is_mapped and self._components.first.kind != "encoded"
                return self._fixed_shape
            found = self._transformer.sample_shape(_values(records))
            if isinstance(found, Fault):
                suspect = _Suspect.at(0, records, int(planned.records[0]), found)
                raise self._error(suspect, slot)
            slot.is_raw = isinstance(records, MappedRecords) and records.is_raw
            return found

    @ranged("transform")
    def fill_ahead(self, parts: Sequence[Part]) -> bool:
        """Have several light batches filled in one go, if that is possible.

        `fill` has to follow for each part: it looks at what came of it, and raises.
        """
        transformer = self._transformer
        if len(parts) < 2 or not isinstance(transformer, RecordTransformer):
            return False
        if not all(part.slot.is_small_raw for part in parts):  # the last one opened may be another
            return False
        requests = []
        try:
            for part in parts:
                slot = part.slot
                records = self._reader.locate_lazily(_planned(slot).records)
                if records is None or slot.records is not None:
                    return False
                assert slot.words is not None
                assert isinstance(slot.data, np.ndarray)
                requests.append((records, slot.words, slot.data, slot.labels))
            database = requests[0][0].database
            if any(records.database is not database for records, *_ in requests):
                return False
            transformer.fill_ahead(requests)
        except Exception:  # noqa: BLE001 - `fill` meets it again, and each batch raises its own
            return False
        for part, (records, *_) in zip(parts, requests, strict=True):
            part.slot.records = records
        return True

    def fill(self, part: Part) -> None:
        """Fill the part's rows, labels, indices and keys, and list its bad records.

        Raises:
            RecordError: A record is bad, and bad records are not replaced.
            TooManyBadRecordsError: More records are bad than allowed.
            DatabaseChangedError: A writer has got past the snapshot; what was read proves nothing.
        """
        slot = part.slot
        assert slot.words is not None
        rows = slice(part.start, part.stop)
        with self._records(slot, rows) as records:
            faults = self._write(slot, rows, records, slot.words[rows])
            if faults and faults[0].position == 0 and slot.is_guessed:
                self._fill_anew(part)
                return
            keys = records.pack_keys()
            suspects = {
                fault.position: _Suspect.at(
                    fault.position,
                    records,
                    int(_planned(slot).records[part.start + fault.position]),
                    fault,
                )
                for fault in faults
            }
        self._source.check()
        if suspects:
            bad = slot.bad[part.number] = {}
            for row in sorted(suspects):
                key = self._substitute(slot, part.start + row, suspects[row], bad)
                keys = keys.replace(row, key)
        slot.keys[part.number] = keys
        # A batch of several parts could not be opened anew by one of them.
        can_guess = slot.is_raw and slot.num_parts == 1 and not faults
        if can_guess and isinstance(self._transformer, RecordTransformer):
            assert isinstance(slot.data, np.ndarray)
            self._last_layout = slot.size, slot.data.shape[1:]

    def _fill_anew(self, part: Part) -> None:
        """Fill the only part of a batch whose shape, perhaps, was not what had been guessed."""
        slot = part.slot
        slot.is_guessed = slot.is_small_raw = False
        slot.release_records()
        self.give_memory(slot, self._find_shape(slot))
        self.fill(part)
        self._last_layout = None  # of its shape, the next may be one of several parts

    @ranged("transform")
    def _write(
        self, slot: Slot, rows: slice, records: AnyRecords, words: npt.NDArray[np.uint32]
    ) -> list[Fault]:
        assert slot.data is not None
        labels = None if slot.labels is None else slot.labels[rows]
        return self._transformer.fill(_values(records), words, slot.data[rows], labels)

    def _substitute(
        self, slot: Slot, position: int, suspect: _Suspect, bad: dict[int, BadRecord]
    ) -> bytes:
        """Put the next good record in the place of a bad one; return its key.

        Those that the part has met already are not looked at again: a run of n bad records would
        take n squared looks.
        """
        planned = _planned(slot)
        assert slot.indices is not None
        row = slice(position, position + 1)
        self._check_cancelled()
        self._refuse(bad, suspect, slot)
        for record in self._substitutes(planned, position):
            if record in bad:
                continue
            self._check_cancelled()
            with self._fetched(np.array([record])) as records:
                faults = self._write(slot, row, records, self._words(slot, position, record))
                if not faults:
                    self._source.check()
                    slot.indices[position] = record
                    return bytes(records.keys[0])
                suspect = _Suspect.at(0, records, record, faults[0])
            self._refuse(bad, suspect, slot)
        raise AssertionError("the record that the feed was opened by is good")

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

    def _words(self, slot: Slot, position: int, record: int) -> npt.NDArray[np.uint32]:
        augmentation = self._components.augmentation
        if isinstance(augmentation, CounterDraws):
            epoch = _planned(slot).epochs[position : position + 1]
            return augmentation.words_at(epoch, np.array([record]))
        assert slot.words is not None
        return slot.words[position : position + 1]

    def _records(self, slot: Slot, rows: slice) -> AbstractContextManager[AnyRecords]:
        """Give the records of some rows: those walked for the slot, or fetched here."""
        records = slot.records
        if records is None:
            return self._fetched(_planned(slot).records[rows])
        return records if isinstance(records, MappedRecords) else nullcontext(records[rows])

    @ranged("read")
    def _fetched(self, indices: npt.NDArray[np.int64]) -> AbstractContextManager[AnyRecords]:
        """Give records, and release them in the end."""
        records = self._reader.locate_lazily(indices)
        return self._reader.fetch(indices) if records is None else records

    def _refuse(self, bad: dict[int, BadRecord], suspect: _Suspect, slot: Slot) -> None:
        """Add to the bad records; raises unless this one is to be replaced."""
        error = self._error(suspect, slot)
        fault = suspect.fault
        policy = self._components.bad_records
        if not policy.skip:
            raise error
        bad[suspect.record] = found = BadRecord(suspect.record, fault.reason.name, error)
        policy.refuse_too_many(len(bad), found)
        if policy.quarantine is not None:
            policy.quarantine.keep(suspect.record, suspect.key, suspect.value)

    def _error(self, suspect: _Suspect, slot: Slot) -> RecordError:
        fault = suspect.fault
        database, index, _ = self._source.describe(suspect.record)
        other = self._other(slot, database) if fault.is_of_its_batch else None
        self._source.check()  # bytes of a changed database prove nothing
        return RecordError(
            fault.message(other),
            database=database,
            record=index,
            key=suspect.key,
            batch=_planned(slot).number,
            stage=fault.stage,
        )

    def _other(self, slot: Slot, database: str) -> str | None:
        """Say which record a batch has its shape from, and its sizes.

        Args:
            slot: The batch.
            database: Where the record is that differs from it.
        """
        first = self._components.first
        record, key, image = first.record, first.key, first.image
        says = "the first that can be used, which all batches follow, is"
        if self._fixed_shape is None:
            says = "the first of its batch, is"
            record = int(_planned(slot).records[0])
            with self._records(slot, slice(0, 1)) as records:
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


def _planned(slot: Slot) -> PlannedBatch:
    assert slot.planned is not None
    return slot.planned
