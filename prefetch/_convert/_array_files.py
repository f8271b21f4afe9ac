"""Files of arrays: .npy and .npz, MNIST's idx format, CIFAR's binary batches."""

from __future__ import annotations

import gzip
import math
import os
import zipfile
import zlib
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from prefetch._convert._arrays import ArrayExamples
from prefetch._convert._errors import InputError
from prefetch._convert._labels import LabelError, LabelRule, check_labels

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Layout = Literal["nchw", "nhwc"]

_IDX_IMAGES: Final = 2051
_IDX_LABELS: Final = 2049
_CIFAR_PIXELS: Final = 3 * 32 * 32
_FEW_CHANNELS: Final = (1, 3, 4)


def read_arrays(
    images_path: Path,
    labels_path: Path | None = None,
    *,
    names: tuple[str, str] | None = None,
    layout: Layout | None = None,
    reverse_channels: bool = False,
    rule: LabelRule = LabelRule.STRICT,
) -> ArrayExamples:
    """Read images, and labels where there are any, from NumPy's files.

    Args:
        images_path: ``.npy``, which is read as it is needed, or ``.npz`` with the labels in it.
        labels_path: ``.npy`` of the labels.
        names: Names of images and labels in the ``.npz``; None for the only array of 3 or 4 axes
            and the only one of 1.
        layout: Order of the axes; None where one of them tells, with 1, 3 or 4 channels.
        reverse_channels: Store the channels in reverse, as for RGB that is to be stored as BGR.
        rule: Which labels are accepted.

    Raises:
        InputError: The arrays cannot be converted.
        OSError: A file cannot be read.
    """
    path = os.fspath(images_path.absolute())
    labels: NDArray[Any] | None
    if images_path.suffix == ".npz":
        images, labels = _from_npz(images_path, names)
    else:
        images, labels = _load(images_path), None
    if labels_path is not None:
        labels = _load(labels_path)
    if images.ndim == 3:
        images = images[:, np.newaxis]
    elif images.ndim == 4 and (layout or _layout(path, images.shape)) == "nhwc":
        images = images.transpose(0, 3, 1, 2)
    if reverse_channels and images.ndim == 4:
        images = images[:, ::-1]
    return ArrayExamples(path, images, _checked(path, labels, rule))


def read_mnist(
    images_path: Path, labels_path: Path, *, rule: LabelRule = LabelRule.STRICT
) -> ArrayExamples:
    """Read MNIST's two files, or any in its format; they may be gzipped.

    Raises:
        InputError: They are no such files, or cut.
        OSError: A file cannot be read.
    """
    images = _read_idx(images_path, _IDX_IMAGES, 3)
    labels = _read_idx(labels_path, _IDX_LABELS, 1)
    path = os.fspath(images_path.absolute())
    return ArrayExamples(path, images[:, np.newaxis], _checked(path, labels, rule))


def read_cifar(
    paths: Sequence[Path], *, coarse: bool = False, rule: LabelRule = LabelRule.STRICT
) -> ArrayExamples:
    """Read binary batches of CIFAR-10 or CIFAR-100, one after the other.

    The planes stay red, green, blue, and keys have five digits, as Caffe's converter does it.

    Args:
        paths: The batches.
        coarse: Of CIFAR-100's two labels, take the one of 20 classes, not the one of 100.
        rule: Which labels are accepted.

    Raises:
        InputError: They are no such files, or cut.
        OSError: A file cannot be read.
    """
    images, labels = [], []
    for path in paths:
        size = path.stat().st_size
        num_labels = next((num for num in (1, 2) if size % (num + _CIFAR_PIXELS) == 0), 0)
        if size == 0 or num_labels == 0:
            raise InputError(
                os.fspath(path.absolute()),
                f"has {size} bytes; expected a multiple of 3073 bytes (CIFAR-10) or 3074 bytes "
                f"(CIFAR-100): the file is cut, or no binary batch",
            )
        rows = np.fromfile(path, np.uint8).reshape(-1, num_labels + _CIFAR_PIXELS)
        images.append(rows[:, num_labels:].reshape(-1, 3, 32, 32))
        labels.append(rows[:, 0 if coarse else num_labels - 1])
    first = os.fspath(paths[0].absolute())
    return ArrayExamples(
        first,
        np.concatenate(images),
        _checked(first, np.concatenate(labels), rule),
        digits=5,
    )


def is_idx(path: Path) -> bool:
    """Return whether a file begins as MNIST's images do, gzipped or not.

    Raises:
        OSError: It cannot be read.
    """
    try:
        with _opened(path) as file:
            return int.from_bytes(file.read(4), "big") == _IDX_IMAGES
    except (EOFError, zlib.error):
        return False


def _checked(path: str, labels: NDArray[Any] | None, rule: LabelRule) -> NDArray[np.int32] | None:
    if labels is None:
        return None
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        shape = " x ".join(map(str, labels.shape))
        raise InputError(path, f"expected one label a record, found labels of shape {shape}")
    try:
        return check_labels(labels, rule)
    except LabelError as error:
        raise InputError(path, str(error)) from None


def _load(path: Path) -> NDArray[Any]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(os.fspath(path.absolute()), f"is no NumPy array: {error}") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(os.fspath(path.absolute()), "holds several arrays; one is expected here")
    return array


def _from_npz(
    path: Path, names: tuple[str, str] | None
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return images, and labels where there are any."""
    shown = os.fspath(path.absolute())
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name in (names or file.files)}
            held = ", ".join(file.files) or "none"
    except (ValueError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise InputError(shown, f"is no .npz file that can be read: {error}") from None
    if names is not None:
        for name in names:
            if name not in arrays:
                raise InputError(shown, f"holds no array {name!r}, but {held}")
        return arrays[names[0]], arrays[names[1]]
    images = [name for name, array in arrays.items() if array.ndim in (3, 4)]
    labels = [name for name, array in arrays.items() if array.ndim == 1]
    if len(images) != 1 or len(labels) > 1:
        found = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InputError(
            shown,
            f"does not tell which of its arrays are the images and which the labels; "
            f"name them with --arrays IMAGES,LABELS; it holds {found or 'none'}",
        )
    return arrays[images[0]], arrays[labels[0]] if labels else None


def _layout(path: str, shape: tuple[int, ...]) -> Layout:
    first, last = (shape[axis] in _FEW_CHANNELS for axis in (1, 3))
    if first == last:
        raise InputError(
            path,
            f"the shape {' x '.join(map(str, shape))} does not tell which axis is the channels; "
            f"say so with --layout nchw or --layout nhwc",
        )
    return "nchw" if first else "nhwc"


def _opened(path: Path) -> Any:
    with path.open("rb") as file:
        is_gzipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if is_gzipped else path.open("rb")


def _read_idx(path: Path, magic: int, num_axes: int) -> NDArray[np.uint8]:
    """Return the array of a file in MNIST's format."""
    shown = os.fspath(path.absolute())
    try:
        with _opened(path) as file:
            content: bytes = file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(shown, f"cannot be unpacked: {error}") from None
    header = np.frombuffer(content, ">u4", min(1 + num_axes, len(content) // 4))
    if len(header) != 1 + num_axes or header[0] != magic:
        raise InputError(
            shown,
            f"expected the magic number {magic} of MNIST's format, found "
            f"{header[0] if len(header) else 'nothing'}",
        )
    shape = tuple(int(size) for size in header[1:])
    begin = header.nbytes
    if len(content) - begin != math.prod(shape):
        raise InputError(
            shown,
            f"has {len(content) - begin} bytes behind its header, and "
            f"{' x '.join(map(str, shape))} takes {math.prod(shape)} bytes; it is cut, or damaged",
        )
    return np.frombuffer(content, np.uint8, offset=begin).reshape(shape)
