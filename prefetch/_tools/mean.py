"""The mean image of a database, bit for bit that of Caffe's compute_image_mean.

A float32 sum is exact below 2**24 (65,793 records of white); beyond, every addition rounds, so that
the result depends on the order. It is that of the keys for any number of threads: all decode, and
each then adds its own pixels, record after record.
"""

from __future__ import annotations

import io
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefetch._files.output import write_whole
from prefetch._kernels.sums import sum_kernels
from prefetch._process.resource_limits import num_cores
from prefetch._tools.mean_images import ThreadDecoders, check_shapes, read_images
from prefetch._tools.step_thread import run_steps, step_on_thread

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
# The smallest share of the pixels that is worth waking a thread for.
_SHARE_PIXELS: Final = 1 << 15


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
    decoding = ThreadDecoders(force_color=force_color, force_gray=force_gray)
    num_threads = threads or num_cores()
    total = run_steps(
        step_on_thread(lambda: _add_all(source, num_threads, decoding, exact=exact)),
        None if progress is None else lambda done: progress(done, source.num_records),
    )
    values = total.pixels.reshape(total.shape)
    with np.errstate(invalid="ignore", over="ignore"):  # `num_odd` counts what is not finite
        image = (values / values.dtype.type(source.num_records)).astype(np.float32)
        if exact:
            channels = values.mean(axis=(1, 2)) / source.num_records
        else:
            # One after the other, unlike numpy.sum, and divided by the number of pixels.
            sums = np.cumsum(image.reshape(image.shape[0], -1), axis=1, dtype=np.float32)[:, -1]
            channels = sums / np.float32(image.shape[1] * image.shape[2])
    return Mean(image, tuple(channels.tolist()), source.num_records)


def _add_all(
    source: RecordSource, num_threads: int, decoding: ThreadDecoders, *, exact: bool
) -> Generator[int, None, _Total]:
    """Add up all records, and yield how many are; while one block is added, the next is read."""
    with ThreadPoolExecutor(num_threads, thread_name_prefix="ringfeed-mean") as pool:
        return (yield from _add_with(pool, source, num_threads, decoding, exact=exact))


def _add_with(
    pool: ThreadPoolExecutor,
    source: RecordSource,
    num_threads: int,
    decoding: ThreadDecoders,
    *,
    exact: bool,
) -> Generator[int, None, _Total]:
    walker = source.walker()
    total: _Total | None = None
    done = 0
    count = 1  # the first record gives the shape
    try:
        while done < source.num_records:
            records = walker.take(done, min(count, source.num_records - done))
            try:
                known = None if total is None else total.find_bytes(records.values)
                images = read_images(
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
                check_shapes(images, total.shape, source, done)
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
