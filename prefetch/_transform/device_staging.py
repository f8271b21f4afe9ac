"""Records into staging memory, for a device that transforms them: the host's part of it.

The host parses, checks and copies. A record's pixels are copied as they are stored wherever its
size is that of its place; else its window is cut. Every fault is one that the host kernel finds in
the same record, so that all errors are the host's, word for word.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from prefetch._record.faults import Fault, Reason
from prefetch._source.mapped_records import MappedRecords, views
from prefetch._transform.box_staging import BoxStager
from prefetch._transform.host import RecordTransformer
from prefetch._transform.operation import Stage
from prefetch._transform.record_filler import never_cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from prefetch._transform.device import DeviceTransform
    from prefetch._transform.record_filler import StoredImage
    from prefetch._transform.staged_rows import StagedRows


class RecordStager:
    """Fills staged rows from records, for one thread; see `RecordFiller`.

    Args:
        device_transform: What the device will do to them; shared with other threads.
        check_cancelled: As for `RecordTransformer`.
    """

    def __init__(
        self,
        device_transform: DeviceTransform,
        *,
        check_cancelled: Callable[[], object] = never_cancelled,
    ) -> None:
        transform = device_transform.transform
        self._device_transform = device_transform
        self._transform = transform
        as_stored = transform.restrict(Stage.DECODE)
        cut = transform.restrict(Stage.DECODE, Stage.PIXELS)
        self._copying = RecordTransformer(as_stored, check_cancelled=check_cancelled)
        self._cutting = RecordTransformer(cut, check_cancelled=check_cancelled)
        self._finishing = RecordTransformer(transform, check_cancelled=check_cancelled)
        self._boxes = (
            BoxStager(transform, check_cancelled=check_cancelled)
            if device_transform.holds_boxes
            else None
        )

    def sample_shape(
        self, records: Sequence[memoryview] | MappedRecords
    ) -> tuple[int, ...] | Fault:
        """Return the size of the records' places in a batch that begins with the first of some.

        Returns:
            (channels, height, width), or what is wrong with the record, at position 0; a JPEG is
            read up to its pixels only, so fill() may still find it bad.
        """
        image = self.stored_image(records)
        return image if isinstance(image, Fault) else self._device_transform.choose_place(image)

    def stored_image(self, records: Sequence[memoryview] | MappedRecords) -> StoredImage | Fault:
        """Return what the first of some records holds, or what is wrong with it."""
        return self._finishing.stored_image(records)

    def fill(
        self,
        records: Sequence[memoryview] | MappedRecords,
        words: NDArray[np.uint32],
        data: StagedRows,
        labels: NDArray[Any] | None,
    ) -> list[Fault]:
        """Fill rows from records; bad bytes never raise. See `RecordTransformer.fill`."""
        if self._boxes is not None:
            return self._boxes.stage(records, words, data, labels)
        windows = self._device_transform.holds_windows(data.place)
        data.begin(words, windows=windows)
        first = self._cutting if windows else self._copying
        faults = []
        # The kernel for uint8 batches refuses what is no fault here: another size, where there is a
        # crop, and floats. Such a record is tried again by itself, and what that finds counts.
        for fault in first.fill(records, words, data.pixels, labels):
            row = fault.position
            retried: list[Fault] = [fault]
            if fault.reason is Reason.FLOATS_AS_UINT8:
                retried = self._finish(row, views(records), words, data)
            elif fault.reason is Reason.SIZE_DIFFERS and self._transform.recipe.crop_height:
                # Where there is a mean image, the record is of the wrong size for that.
                has_image = self._transform.mean_image is not None
                retry = self._finish if has_image else self._cut
                retried = retry(row, views(records), words, data)
            faults += [dataclasses.replace(found, position=row) for found in retried]
        return faults

    def _cut(
        self, row: int, values: Sequence[memoryview], words: NDArray[np.uint32], data: StagedRows
    ) -> list[Fault]:
        """Fill one row with a window."""
        window = data.window(row, self._transform.recipe)
        return self._cutting.fill([values[row]], words[row : row + 1], window, None)

    def _finish(
        self, row: int, values: Sequence[memoryview], words: NDArray[np.uint32], data: StagedRows
    ) -> list[Fault]:
        """Fill one row by the host alone."""
        shape = self._device_transform.sample_shape(data.place)
        sample = np.empty((1, *shape), self._transform.dtype)
        faults = self._finishing.fill([values[row]], words[row : row + 1], sample, None)
        if not faults:
            data.finish(row, sample[0])
        return faults
