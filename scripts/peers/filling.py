"""Filling batches with NumPy, for loaders that bring machinery but no transformation.

The fastest ways found of doing the work with NumPy, OpenCV and simplejpeg: whole-array operations
over pieces that stay in the cache, the lock of the interpreter released in nearly all of the time,
no memory allocated for an image.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import simplejpeg
from numpy.lib.stride_tricks import sliding_window_view

from peers.records import Records

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    from peers.works import Work


def decode_simplejpeg(file: memoryview, buffer: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Decode a JPEG file to (H, W, 3) BGR, into a buffer of that many bytes."""
    pixels: npt.NDArray[np.uint8] = simplejpeg.decode_jpeg(file, colorspace="BGR", buffer=buffer)
    return pixels


class Filler:
    """Fills batches of the endless stream, each by its number. Thread-safe.

    Args:
        work: What to do.
        database: Folder of the LMDB.
        decode: Decodes a JPEG file to (H, W, 3) BGR, with or without the help of the buffer.
    """

    def __init__(
        self,
        work: Work,
        database: Path,
        *,
        decode: Callable[
            [memoryview, npt.NDArray[np.uint8]], npt.NDArray[np.uint8]
        ] = decode_simplejpeg,
    ) -> None:
        cv2.setNumThreads(1)  # the loader's threads are the parallelism that is measured
        self.work = work
        self.shape = (work.batch_size, *work.sample_shape)
        self._records = Records(database, work)
        self._decode = decode
        self._mean = np.array(work.mean, np.float32).reshape(-1, 1, 1)
        self._scale = np.float32(work.scale)
        self._local = threading.local()

    def fill(
        self,
        number: int,
        rng: np.random.Generator,
        data: npt.NDArray[Any],
        labels: npt.NDArray[np.int64],
    ) -> None:
        """Fill a batch.

        Args:
            number: Which batch of the stream, from 0.
            rng: Draws crops and mirrors.
            data: (N, C, H, W) of the work's dtype, C-contiguous.
            labels: (N,) int64.
        """
        size = self.work.batch_size
        payloads, labels[:] = self._records.take(number * size % self._records.num_records, size)
        if self.work.is_large:
            self._fill_large(payloads, rng, data)
        else:
            self._fill_small(payloads, rng, data)

    def close(self) -> None:
        """Close the database; no thread may be filling."""
        self._records.close()

    def _draw(self, rng: np.random.Generator, size: int) -> npt.NDArray[np.int64]:
        """Return (N, 3) row and column of the crops, and whether to mirror."""
        _, height, width = self.work.shape
        crop = self.work.crop
        high = (height - crop + 1 if crop else 1, width - crop + 1 if crop else 1)
        return rng.integers(0, (*high, 2 if self.work.mirror else 1), (size, 3))

    def _fill_large(
        self, payloads: list[memoryview], rng: np.random.Generator, data: npt.NDArray[Any]
    ) -> None:
        """Fill image by image, since one fits into the cache and a batch does not."""
        channels, height, width = self.work.shape
        _, rows, columns = self.work.sample_shape
        scratch = self._scratch()
        draws = self._draw(rng, len(payloads)).tolist()
        for number, (payload, (top, left, mirrored)) in enumerate(
            zip(payloads, draws, strict=True)
        ):
            row = data[number]
            if self.work.encoded:
                pixels = self._decode(payload, scratch.decoded)
                cv2.split(pixels, mv=scratch.channels)
                planes = scratch.planes
            else:
                planes = np.frombuffer(payload, np.uint8).reshape(channels, height, width)
            start = left
            if mirrored:
                # Flipping bytes first is four times as fast as a cast of a reversed view.
                flat = planes.reshape(channels * height, width)
                cv2.flip(flat, 1, dst=scratch.flipped.reshape(channels * height, width))
                planes, start = scratch.flipped, width - columns - left
            np.copyto(row, planes[:, top : top + rows, start : start + columns])
            if data.dtype != np.uint8:
                if self.work.mean:
                    np.subtract(row, self._mean, out=row)
                np.multiply(row, self._scale, out=row)

    def _fill_small(
        self, payloads: list[memoryview], rng: np.random.Generator, data: npt.NDArray[Any]
    ) -> None:
        """Fill all at once, since a call for each record would take longer than its pixels."""
        size = len(payloads)
        images = np.frombuffer(b"".join(payloads), np.uint8).reshape(size, *self.work.shape)
        if self.work.sample_shape != self.work.shape:
            top, left, _ = self._draw(rng, size).T
            windows = sliding_window_view(images, self.work.sample_shape[1:], axis=(2, 3))
            images = windows[np.arange(size), :, top, left]
        np.copyto(data, images)
        if self.work.mean:
            data -= self._mean
        data *= self._scale

    def _scratch(self) -> _Scratch:
        scratch: _Scratch | None = getattr(self._local, "scratch", None)
        if scratch is None:
            scratch = self._local.scratch = _Scratch(self.work.shape)
        return scratch


class _Scratch:
    """What a thread needs for one image.

    Attributes:
        decoded: (H, W, C) uint8.
        planes: (C, H, W) uint8.
        channels: Views of the planes, (H, W) each.
        flipped: (C, H, W) uint8.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        channels, height, width = shape
        self.decoded = np.empty((height, width, channels), np.uint8)
        self.planes = np.empty(shape, np.uint8)
        self.channels = list(self.planes)
        self.flipped = np.empty(shape, np.uint8)


class Slots:
    """Batches that are filled again and again, since new memory costs a page fault every 4 kB.

    A pipeline that hands batches out in order, and is never more than ``num`` ahead of the loop,
    may fill batch k into slot k modulo ``num``.

    Args:
        work: Whose batches they hold.
        num: How many.
    """

    def __init__(self, work: Work, num: int) -> None:
        self._slots = [
            (
                np.zeros((work.batch_size, *work.sample_shape), work.dtype),
                np.zeros(work.batch_size, np.int64),
            )
            for _ in range(num)
        ]

    def __getitem__(self, number: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Return the slot of a batch by the batch's number."""
        return self._slots[number % len(self._slots)]
