"""MNIST's idx files, or any in their format, gzipped or not."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefetch._errors.printable import printable_shape
from prefetch._files.input import check_regular, open_regular
from prefetch._tools.convert.errors import InputError
from prefetch._tools.convert.inputs.arrays import ArrayExamples, check_array_labels
from prefetch._tools.convert.inputs.labels import LabelRule
from prefetch._tools.convert.stamps import stamp_of_all

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_IDX_IMAGES: Final = 2051
_IDX_LABELS: Final = 2049


def read_mnist(
    images_path: Path, labels_path: Path, *, rule: LabelRule = LabelRule.STRICT
) -> ArrayExamples:
    """Read MNIST's two files, or any in its format; they may be gzipped.

    Raises:
        InputError: They are no such files, or cut.
        OSError: A file cannot be read.
    """
    for path in (images_path, labels_path):
        check_regular(path)
    stamp = stamp_of_all([images_path, labels_path])
    images = _read_idx(images_path, _IDX_IMAGES, 3)
    labels = _read_idx(labels_path, _IDX_LABELS, 1)
    of_images, of_labels = (os.fspath(path.absolute()) for path in (images_path, labels_path))
    checked = check_array_labels(of_labels, labels, rule)
    return ArrayExamples(
        of_images, images[:, np.newaxis], checked, labels_path=of_labels, stamp=stamp
    )


def is_idx(path: Path) -> bool:
    """Return whether a file begins as MNIST's images or labels do, gzipped or not.

    Raises:
        OSError: It cannot be read.
    """
    try:
        with _open_file(path) as file:
            return int.from_bytes(file.read(4), "big") in {_IDX_IMAGES, _IDX_LABELS}
    except (EOFError, zlib.error):
        return False


def _open_file(path: Path) -> Any:
    with open_regular(path) as file:
        is_gzipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if is_gzipped else open_regular(path)


def _read_idx(path: Path, magic: int, num_axes: int) -> NDArray[np.uint8]:
    """Return the array of a file in MNIST's format."""
    shown = os.fspath(path.absolute())
    try:
        with _open_file(path) as file:
            content: bytes = file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(shown, f"cannot be unpacked: {error}") from None
    header = np.frombuffer(content, ">u4", min(1 + num_axes, len(content) // 4))
    if not len(header) or header[0] != magic:
        raise InputError(
            shown,
            f"expected the magic number {magic} of MNIST's format, found "
            f"{header[0] if len(header) else 'nothing'}{_swapped(header, magic)}",
        )
    if len(header) != 1 + num_axes:
        raise InputError(
            shown,
            f"ends in its header: it has {len(content)} bytes, and the header alone takes "
            f"{4 * (1 + num_axes)}; it is cut",
        )
    shape = tuple(int(size) for size in header[1:])
    begin = header.nbytes
    if len(content) - begin != math.prod(shape):
        raise InputError(
            shown,
            f"has {len(content) - begin} bytes behind its header, and "
            f"{printable_shape(shape)} takes {math.prod(shape)} bytes; it is cut, or damaged",
        )
    return np.frombuffer(content, np.uint8, offset=begin).reshape(shape)


def _swapped(header: NDArray[Any], magic: int) -> str:
    """Say what a file is whose magic number is that of MNIST's other kind."""
    others = {_IDX_IMAGES: "the images", _IDX_LABELS: "the labels"}
    found = int(header[0]) if len(header) else 0
    if found in others and found != magic:
        return f", that of {others[found]}: give IMAGES, then LABELS"
    return ""
