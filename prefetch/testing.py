"""Public aids for tests and examples: small databases made on the spot."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb
import numpy as np

from prefetch._record.wire import encode_datum

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

__all__ = ["encode_image", "example_database", "fingerprinted_images", "write_database"]


def write_database(path: str | os.PathLike[str], records: Iterable[tuple[bytes, bytes]]) -> Path:
    """Write a new LMDB.

    Args:
        path: Folder to create; it must not exist yet.
        records: (key, value) pairs, in any order; a value is usually an encoded Datum.

    Returns:
        The folder.

    Raises:
        FileExistsError: There is something at the path already.
    """
    folder = Path(path)
    folder.mkdir(parents=True)
    content = list(records)
    nbytes = sum(len(key) + len(value) for key, value in content)
    # Twice the content and a page a record: no node wastes more than that.
    map_size = 2 * nbytes + 8192 * len(content) + (1 << 20)
    with (
        lmdb.open(os.fsencode(folder), map_size=map_size, mode=0o777) as environment,
        environment.begin(write=True) as transaction,
    ):
        for key, value in content:
            transaction.put(key, value)
    (folder / "lock.mdb").unlink()
    return folder


def encode_image(pixels: npt.NDArray[np.uint8], *, label: int) -> bytes:
    """Return the Datum of a raw image, as Caffe's tools write it.

    Args:
        pixels: (C, H, W) uint8.
        label: An int32.
    """
    channels, height, width = pixels.shape
    return encode_datum(
        channels=channels, height=height, width=width, data=pixels.tobytes(), label=label
    )


def fingerprinted_images(
    num_records: int, shape: tuple[int, int, int] = (3, 8, 8)
) -> Iterator[tuple[bytes, bytes]]:
    """Yield records whose every pixel tells which record it is.

    Record i has the key ``%08d`` of i, the label i and the pixel value i modulo 251 everywhere.

    Args:
        num_records: How many.
        shape: (C, H, W) of the uint8 images.

    Yields:
        (key, encoded Datum) pairs.
    """
    for index in range(num_records):
        yield b"%08d" % index, encode_image(np.full(shape, index % 251, np.uint8), label=index)


@contextmanager
def example_database(
    num_records: int = 10, shape: tuple[int, int, int] = (3, 8, 8)
) -> Iterator[Path]:
    """Give a temporary database of `fingerprinted_images`; it is removed afterwards.

    Args:
        num_records: How many records.
        shape: (C, H, W) of the uint8 images.

    Yields:
        Its folder.
    """
    with tempfile.TemporaryDirectory(prefix="ringfeed-") as folder:
        yield write_database(Path(folder) / "lmdb", fingerprinted_images(num_records, shape))
