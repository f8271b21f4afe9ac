"""The works that loaders are compared on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

Settings = dict[str, Any]
"""How a loader is set up; plain values, which go into the report as they are."""

Arrays = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""A batch: (N, C, H, W) data and (N,) labels, valid until the next batch is asked for."""

Stream = Iterator[Arrays]

PREFETCH = 4
"""Batches that every loader may make ready ahead of the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is done with each record.

    Attributes:
        name: What the report calls it.
        shape: (C, H, W) of the stored images, or of the decoded ones.
        encoded: Whether the records hold JPEG files, which are decoded to BGR, or to RGB where
            `std` is given.
        batch_size: Records in a batch.
        crop: Side of the square cut out at a random place, in pixels; 0: no crop.
        resized_crop: Side of the square, in pixels, that a rectangle drawn at random is resized
            to; 0: no rectangle.
        mirror: Whether every second image, by chance, is flipped left to right.
        mean: Subtracted from every pixel, one a channel; empty: nothing.
        std: Where given, pixels are divided by 255, less the mean, divided by this; one a channel.
        scale: Factor after that.
        dtype: Of the batch: ``uint8``, with neither mean nor scale, or ``float32``.
    """

    name: str
    shape: tuple[int, int, int]
    encoded: bool = False
    batch_size: int
    crop: int = 0
    resized_crop: int = 0
    mirror: bool = False
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    scale: float = 1.0
    dtype: str = "float32"

    @property
    def sample_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of an image in the batch."""
        channels, height, width = self.shape
        side = self.resized_crop or self.crop
        return (channels, side or height, side or width)

    @property
    def is_large(self) -> bool:
        """Whether a record is an image rather than a thumbnail, of which there are more."""
        return self.shape[1] > 64

    @property
    def database(self) -> str:
        """Which kind of database it reads; several works may share one."""
        channels, height, width = self.shape
        kind = "photographs" if self.resized_crop else "jpeg" if self.encoded else "raw"
        return f"{kind}-{channels}x{height}x{width}"


class OpenStream(Protocol):
    """Opens a loader; the function ``open_stream`` of a loader's module."""

    def __call__(
        self, work: Work, database: Path, settings: Settings
    ) -> AbstractContextManager[Stream]:
        """Open a loader on a database.

        Args:
            work: What it shall do.
            database: Folder of the LMDB.
            settings: One of the module's ``candidates``.

        Returns:
            A context with its stream of batches.
        """


_IMAGE = (3, 256, 256)
_MEAN = (104.0, 117.0, 123.0)
_SCALE = 0.017  # about one over the standard deviation of natural images

WORKS = (
    Work(name="uint8", shape=_IMAGE, batch_size=64, dtype="uint8"),
    Work(
        name="float", shape=_IMAGE, batch_size=64, crop=227, mirror=True, mean=_MEAN, scale=_SCALE
    ),
    Work(
        name="jpeg",
        shape=_IMAGE,
        encoded=True,
        batch_size=64,
        crop=227,
        mirror=True,
        mean=_MEAN,
        scale=_SCALE,
    ),
    Work(
        name="rrc",
        shape=(3, 375, 500),
        encoded=True,
        batch_size=64,
        resized_crop=224,
        mirror=True,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    ),
    Work(name="1x28x28", shape=(1, 28, 28), batch_size=256, crop=28, scale=1 / 256),
    Work(name="3x32x32", shape=(3, 32, 32), batch_size=256, crop=28, scale=1 / 256),
)
