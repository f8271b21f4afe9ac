"""The mean image of a database, with the sums that Caffe's compute_image_mean forms.

Caffe adds each record to a float32 sum in the order of the keys and divides by their number. The
sum is exact as long as it stays below 2**24 (65,793 records of white); beyond, every addition
rounds, so that the result depends on the order. Here it is the same order for any number of
threads: images are decoded by all of them, and each then adds its own pixels, record after record.
"""

from __future__ import annotations

import io
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefetch._errors.classes import RecordError
from prefetch._files.output import write_whole
from prefetch._kernels.sums import sum_kernels
from prefetch._process.limits import num_cores
from prefetch._record.decode import ImageDecoder
from prefetch._record.faults import BadRecordError
from prefetch._record.layouts.datum import DATUM
from prefetch._tools.step_thread import aside, finish

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from prefetch._kernels.sums import Image
    from prefetch._source.records import Records
    from prefetch._source.source import RecordSource

    Progress = Callable[[int, int], None]

# Records are taken in blocks: of so many bytes that the threads are worth waking, and that two
# blocks, the one being added and the one being read, take little memory.
_BLOCK_BYTES: Final = 1 << 26
_BLOCK_RECORDS: Final = 4096
# A thread's share of the pixels at the least: less is not worth its waking.
_SHARE_PIXELS: Final = 1 << 15
_FLOAT: Final = np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class Mean:
    """What was found.

    Attributes:
        image: float32 (channels, height, width), channels as stored; blue first where encoded
            images were decoded.
        channels: Mean of each channel, summed up in float32 as Caffe prints it, or in float64.
        num_records: How many records it is the mean of.
    """

    image: NDArray[np.float32]
    channels: tuple[float, ...]
    num_records: int

    @property
    def num_odd(self) -> int:
        """How many of the image's values are no finite numbers; a feed takes no such mean file."""
        return self.image.size - int(np.isfinite(self.image).sum())

    def save(self, path: Path) -> None:
        """Write the image: as an array where the name ends in ``.npy``, else as a BlobProto.

        The BlobProto has Caffe's legacy dimensions, 1 x channels x height x width. The file takes
        its name when it is whole.

        Raises:
            OutputError: It cannot be written.
        """
        write_whole(path, self._array() if path.suffix == ".npy" else self._blob())

    def _array(self) -> bytes:
        file = io.BytesIO()
        np.save(file, self.image)
        return file.getvalue()

    def _blob(self) -> bytes:
        from prefetch.caffe import BlobProto  # noqa: PLC0415 (protobuf takes 40 ms)

        channels, height, width = self.image.shape
        blob = BlobProto(
            num=1, channels=channels, height=height, width=width, data=self.image.ravel()
        )
        written: bytes = blob.SerializeToString()
        return written


def compute_mean(
    source: RecordSource,
    *,
    exact: bool = False,
    force_color: bool = False,
    force_gray: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Mean:
    """Compute the mean image of all records.

    Args:
        source: The records; all of one shape.
        exact: Sum up in float64, where every sum is exact; otherwise in float32, as Caffe does.
        force_color: Decode encoded images to 3 channels, as the feed's option of this name does.
        force_gray: Decode encoded images to 1 channel.
        threads: How many decode and add; None for one a core. The result does not depend on it.
        progress: Called with the records done and the records in all, after each block.

    Raises:
        RecordError: A record is bad, or its shape is not that of the first.
        SourceError: The database is damaged, or was changed meanwhile.
    """
    decoding = _Decoding(force_color=force_color, force_gray=force_gray)
    num_threads = threads or num_cores()
    total = finish(
        aside(lambda: _add_all(source, num_threads, decoding, exact=exact)),
        None if progress is None else lambda done: progress(done, source.num_records),
    )
    values = total.pixels.reshape(total.shape)
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is told by `num_odd`
        image = (values / values.dtype.type(source.num_records)).astype(np.float32)
        if exact:
            channels = values.mean(axis=(1, 2)) / source.num_records
        else:
            # One after the other, unlike numpy.sum, and divided by the number of pixels.
            sums = np.cumsum(image.reshape(image.shape[0], -1), axis=1, dtype=np.float32)[:, -1]
            channels = sums / np.float32(image.shape[1] * image.shape[2])
    return Mean(image, tuple(channels.tolist()), source.num_records)


def _add_all(
    source: RecordSource, num_threads: int, decoding: _Decoding, *, exact: bool
) -> Generator[int, None, _Total]:
    """Add up all records, and yield how many are; while one block is added, the next is read."""
    with ThreadPoolExecutor(num_threads, thread_name_prefix="ringfeed-mean") as pool:
        return (yield from _add_with(pool, source, num_threads, decoding, exact=exact))


def _add_with(
    pool: ThreadPoolExecutor,
    source: RecordSource,
    num_threads: int,
    decoding: _Decoding,
    *,
    exact: bool,
) -> Generator[int, None, _Total]:
    walker = source.walker()
    total: _Total | None = None
    done = 0
    count = 1  # the first record alone tells the shape
    try:
        while done < source.num_records:
            records = walker.take(done, min(count, source.num_records - done))
            try:
                known = None if total is None else total.find_bytes(records.values)
                images = _images(
                    records.values,
                    known,
                    source=source,
                    first=done,
                    pool=pool,
                    decoding=decoding,
                )
                if total is None:
                    channels, height, width = np.asarray(images[0]).shape
                    total = _Total((channels, height, width), num_threads, exact=exact)
                    count = max(1, min(_BLOCK_RECORDS, _BLOCK_BYTES // images[0].nbytes))
                _check_shapes(images, total.shape, source, done)
                total.wait()
                source.check()
            except BaseException:
                records.release()
                raise
            total.add(images, records, pool)
            done += len(images)
            yield done
    finally:
        if total is not None:
            total.wait()
    source.check()
    assert total is not None, "a source holds at least one record"
    return total


class _Total:
    """A sum of images, formed pixel by pixel in the order in which they are added."""

    def __init__(self, shape: tuple[int, int, int], num_threads: int, *, exact: bool) -> None:
        self.shape = shape
        size = int(np.prod(shape, dtype=np.int64))
        self.pixels: NDArray[Any] = np.zeros(size, np.float64 if exact else np.float32)
        num_shares = max(1, min(num_threads, size // _SHARE_PIXELS))
        bounds = [size * share // num_shares for share in range(num_shares + 1)]
        self._shares = [slice(*pair) for pair in pairwise(bounds)]
        self._kernels = sum_kernels()
        self._under_way: list[Future[None]] = []
        self._records: Records | None = None

    def find_bytes(self, values: Sequence[memoryview]) -> list[memoryview | None]:
        """Return the pixels of raw records of the sum's shape; None for all else."""
        return self._kernels.find_bytes(values, self.shape)

    def add(self, images: Sequence[Image], records: Records, pool: ThreadPoolExecutor) -> None:
        """Begin to add images, each of the sum's shape, which lie in the memory of records.

        What was begun before must have been waited for. The records are released when this is.
        """
        self._records = records
        self._under_way = [
            pool.submit(self._kernels.add_up, images, share.start, self.pixels[share])
            for share in self._shares
        ]

    def wait(self) -> None:
        """Wait until what was begun is added, and release its records; idempotent."""
        under_way, self._under_way = self._under_way, []
        wait(under_way)
        records, self._records = self._records, None
        if records is not None:
            records.release()
        for share in under_way:
            share.result()


class _Decoding(threading.local):
    """The image decoder of each thread."""

    def __init__(self, *, force_color: bool, force_gray: bool) -> None:
        self.decoder = ImageDecoder(force_color=force_color, force_gray=force_gray)

    def planes(self, data: memoryview) -> NDArray[np.uint8]:
        """Return an image's pixels, uint8 (channels, height, width), in memory of their own.

        Raises:
            BadRecordError: It cannot be decoded.
        """
        return np.array(self.decoder.decode(data).transpose(2, 0, 1), order="C")


def _images(
    values: Sequence[memoryview],
    known: Sequence[memoryview | None] | None,
    *,
    source: RecordSource,
    first: int,
    pool: ThreadPoolExecutor,
    decoding: _Decoding,
) -> list[Image]:
    """Return the pixels of records, C-contiguous.

    Args:
        values: The records.
        known: Pixels that were found and need no look; None for a record where they were not.
        source: Where the records are from.
        first: Position of the first of them there.
        pool: Decodes images.
        decoding: Its decoders.

    Returns:
        What is known, and arrays of (channels, height, width) of the others.

    Raises:
        RecordError: One of them is bad; the first of them, if several are.
    """
    begun: list[Image | Future[NDArray[np.uint8]]] = []
    fault: RecordError | None = None
    for value, pixels in zip(values, known or repeat(None), strict=False):
        if pixels is not None:
            begun.append(pixels)
            continue
        try:
            datum = DATUM.read(value)
            begun.append(
                pool.submit(decoding.planes, datum.image_bytes())
                if datum.encoded
                else np.ascontiguousarray(datum.pixels(_FLOAT))
            )
        except BadRecordError as bad:
            fault = _record_error(source, first + len(begun), bad)
            break
    # The records may be released only when no thread reads them any more.
    wait([image for image in begun if isinstance(image, Future)])
    images: list[Image] = []
    for position, image in enumerate(begun, first):
        try:
            images.append(image.result() if isinstance(image, Future) else image)
        except BadRecordError as bad:
            raise _record_error(source, position, bad) from None
    if fault is not None:
        raise fault
    return images


def _check_shapes(
    images: Sequence[Image], shape: tuple[int, ...], source: RecordSource, first: int
) -> None:
    """Raise unless all arrays have a shape.

    Raises:
        RecordError: One has not.
    """
    for position, image in enumerate(images, first):
        if isinstance(image, np.ndarray) and image.shape != shape:
            raise _record_error(source, position, _other_shape(image.shape, shape))


def _other_shape(found: tuple[int, ...], expected: tuple[int, ...]) -> str:
    cure = (
        "make the database with one size of images (--resize-height, --resize-width)"
        if found[0] == expected[0]
        else "encoded images can be decoded alike with --force-color or --force-gray"
    )
    return (
        f"the record is {_shown(found)} (channels x height x width), but the first record is "
        f"{_shown(expected)}, and a mean needs all of one shape; {cure}"
    )


def _shown(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _record_error(source: RecordSource, position: int, what: str | BadRecordError) -> RecordError:
    """Return the error of the record at a position of the source."""
    stage, reason = "validate", what
    if isinstance(what, BadRecordError):
        fault = what.at(0)
        stage, reason = fault.stage, fault.message()
    database, record, _ = source.describe(position)
    records = source.reader().fetch(np.array([position], np.int64))
    key = bytes(records.keys[0])
    records.release()
    return RecordError(str(reason), database=database, record=record, key=key, stage=stage)
