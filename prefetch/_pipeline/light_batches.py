"""The fast path of small raw batches: one reader fills several of them in one native call.

Such a batch takes less time than a few hand-offs between threads, so what counts is how few steps
of Python it takes. Its shape is guessed to be that of the one before, several are planned in a row,
and they are handed over together.

The smallest take the kernel less time than the steps of Python around it, which hold the GIL: a
second reader adds none, but changes of the GIL and wake-ups (batches of 256 times 1x28x28: two
readers served 0.7 of what one did). So one reader at a time works at them, and one that finds
another awake sleeps where no batch that comes back wakes it.
"""

from __future__ import annotations

from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from prefetch._process.nvtx import ranged
from prefetch._ring.filling import FoundShape
from prefetch._transform.host import RecordTransformer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from prefetch._pipeline.components import Components
    from prefetch._record.faults import Fault
    from prefetch._ring.filling import Filling
    from prefetch._source.mapped_records import FillResult, MappedRecords
    from prefetch._source.records import RecordReader
    from prefetch._transform.record_filler import RecordFiller

_MIN_RAW_BYTES_TO_SPLIT = 4 * 1024 * 1024  # a batch of 3x32x32 to 28, 2.4 MB, takes 0.11 ms
_MAX_PER_CALL = 4
_LEAST_BYTES_TO_SHARE = 1 << 20  # 256 times 1x28x28 are 0.8 MB, 3x32x32 cropped to 28 2.4 MB


def max_per_call(prefetch: int) -> int:
    """Return how many light batches a reader opens and fills in one call.

    Args:
        prefetch: Batches kept ahead of the consumer.
    """
    # More save hand-offs, but delay the first of them.
    return min(prefetch // 2, _MAX_PER_CALL)


def is_small_raw(shape: FoundShape, nbytes: int) -> bool:
    """Return whether a batch is light.

    Args:
        shape: What each of its records takes.
        nbytes: What all of them take, in bytes.
    """
    return shape.is_raw and nbytes < _MIN_RAW_BYTES_TO_SPLIT


def least_bytes_to_share(components: Components) -> int:
    """Return of how many bytes on a light batch is for several readers; 0 for any.

    Args:
        components: What the feed works with.
    """
    recipe = components.transform.recipe
    # What takes longer for its bytes, or waits for something else than the GIL.
    takes_long = (
        recipe.resizing is not None
        or recipe.jitter is not None
        or recipe.erasing is not None
        or components.works_on_batches
        or components.device.has_device_memory
    )
    return 0 if takes_long or components.num_threads == 1 else _LEAST_BYTES_TO_SHARE


class SpareReaders:
    """Where readers sleep that are not needed, since another one suffices.

    The coordinator's lock guards it, but for what says otherwise.

    Args:
        least_bytes_to_share: See the function of that name.

    Attributes:
        num: How many are to sleep.
        one_suffices: Whether one reader does as much as several, as far as the last batch tells.
        waits_for_disk: Whether a reader has waited for the disk in its last piece of work: then
            several wait for more of it at a time. Set without the lock.
    """

    def __init__(self, least_bytes_to_share: int) -> None:
        self.num = 0
        self.one_suffices = False
        self.waits_for_disk = False
        self._least_bytes_to_share = least_bytes_to_share
        self._wake_ups: SimpleQueue[None] = SimpleQueue()

    def note_light_batch(self, nbytes: int) -> None:
        """Learn from a light batch of so many bytes."""
        self.one_suffices = nbytes < self._least_bytes_to_share and not self.waits_for_disk

    def is_spare(self, num_not_idle: int) -> bool:
        """Return whether the reader that asks is not needed: another one suffices, and is awake.

        Wakes those that sleep where one suffices no more.

        Args:
            num_not_idle: Readers that do not wait for what comes back to the ring, asleep or not.
        """
        if self.one_suffices:
            return num_not_idle - self.num > 1
        if self.num:
            self.wake_all()
        return False

    def sleep(self) -> None:
        """Wait until woken; without the lock, after `num` has counted the caller."""
        self._wake_ups.get()

    def wake_all(self) -> None:
        """Wake all of them."""
        # They count as awake from here on: whoever finds them so, and falls asleep, leaves the work
        # to them.
        num, self.num = self.num, 0
        self.wake_in_any_case(num)

    def wake_in_any_case(self, num: int) -> None:
        """Wake so many, or have those not sleep that are about to; takes no lock."""
        for _ in range(num):
            self._wake_ups.put(None)


class FilledRows(NamedTuple):
    """What `LightBatches.fill_together` has made of one batch.

    Attributes:
        records: The batch's records.
        result: What the native call says of them.
    """

    records: MappedRecords
    result: FillResult


class LightBatches:
    """What one reader knows of the light batches that it fills. Not thread-safe.

    Args:
        transformer: Fills rows.
        reader: Finds records.
        check_source: Raises unless all that was read so far is intact.
        is_fixed: Whether all batches have one shape; else each has that of its first record.
    """

    def __init__(
        self,
        transformer: RecordFiller,
        reader: RecordReader,
        *,
        check_source: Callable[[], object],
        is_fixed: bool,
    ) -> None:
        # A stager's rows are the device's: there is no call that fills several batches of them.
        self._transformer = transformer if isinstance(transformer, RecordTransformer) else None
        self._reader = reader
        self._check_source = check_source
        self._is_fixed = is_fixed
        self._guess: FoundShape | None = None
        self._max_rows = 0

    def guess(self, filling: Filling) -> FoundShape | None:
        """Return the shape that a batch has if it is like the last raw one; None for no guess."""
        planned = filling.planned
        assert planned is not None
        # A larger batch might be cut in parts, and no part could open the batch anew.
        if filling.records is not None or len(planned.records) > self._max_rows:
            return None
        return self._guess

    def learn(self, filling: Filling) -> None:
        """Have later batches guessed to be like one of one part that was filled without a fault."""
        shape = filling.shape
        if shape is self._guess and filling.size <= self._max_rows:
            return
        assert shape is not None
        if shape.is_raw and self._transformer is not None:
            self._guess = FoundShape(shape.sample, is_raw=True, is_guessed=not self._is_fixed)
            self._max_rows = filling.size

    def forget(self) -> None:
        """Guess no more until another batch was filled."""
        self._guess, self._max_rows = None, 0

    @ranged("transform")
    def fill_together(self, fillings: Sequence[Filling]) -> list[FilledRows] | None:
        """Fill several light batches in one native call; None where that is not possible.

        The source is checked behind it. `Filler.fill` has to follow for each of them.
        """
        transformer = self._transformer
        # The last one that was opened may be another kind.
        if len(fillings) < 2 or transformer is None or not fillings[-1].is_small_raw:
            return None
        requests = []
        try:
            for filling in fillings:
                assert filling.planned is not None
                records = self._reader.locate_lazily(filling.planned.records)
                if records is None or filling.records is not None:
                    return None
                assert filling.words is not None
                assert filling.contents is not None
                data, labels = filling.contents
                assert isinstance(data, np.ndarray)
                requests.append((records, filling.words, data, labels))
            database = requests[0][0].database
            if any(records.database is not database for records, *_ in requests):
                return None
            results = transformer.fill_together(requests)
            self._check_source()
        except Exception:  # noqa: BLE001 - `fill` meets it again, and each batch raises its own
            return None
        return [
            FilledRows(request[0], result)
            for request, result in zip(requests, results, strict=True)
        ]

    def finish(self, filled: FilledRows, words: npt.NDArray[np.uint32], data: Any) -> list[Fault]:
        """Return the bad records of one batch of `fill_together`.

        Args:
            filled: What that has returned for the batch.
            words: The batch's words.
            data: The batch's rows.

        Raises:
            SourceError: The database is damaged, or was changed or truncated.
        """
        assert self._transformer is not None
        return self._transformer.fill(filled.records, words, data, None, filled.result)
