"""Files of arrays: .npy and .npz, MNIST's idx format, CIFAR's binary batches."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from prefetch._errors.printable import counted
from prefetch._files.input import check_regular, open_regular, read_regular
from prefetch._tools.convert.arrays import ArrayExamples, check_some
from prefetch._tools.convert.errors import InputError, OptionsError
from prefetch._tools.convert.examples import stamp_of_all
from prefetch._tools.convert.labels import FLOATS_HINT, LabelError, LabelRule, check_labels

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Layout = Literal["nchw", "nhwc"]

_IDX_IMAGES: Final = 2051
_IDX_LABELS: Final = 2049
_CIFAR_PIXELS: Final = 3 * 32 * 32
_CIFAR_KINDS: Final = {1: "CIFAR-10", 2: "CIFAR-100"}
"""By the labels that a record has."""
_CIFAR_CLASSES: Final = {1: (10,), 2: (20, 100)}
"""How many values each of its labels has: of CIFAR-100 the coarse one stands first."""
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
        layout: Order of the axes; None where the shape tells: with 1, 3 or 4 channels, fewer than
            rows and columns, or as (records, labels, 1, 1).
        reverse_channels: Store the channels in reverse, as for RGB that is to be stored as BGR.
        rule: Which labels are accepted.

    Raises:
        InputError: The arrays cannot be converted.
        OptionsError: Names are given, and there is no ``.npz``.
        OSError: A file cannot be read.
    """
    path = of_labels = os.fspath(images_path.absolute())
    if names is not None and images_path.suffix != ".npz":
        raise OptionsError(f"--arrays names arrays of a .npz file, and {path} is none")
    for one in (images_path, labels_path):
        if one is not None:
            check_regular(one)
    stamp = stamp_of_all([images_path] if labels_path is None else [images_path, labels_path])
    labels: NDArray[Any] | None
    if images_path.suffix == ".npz":
        images, labels = _from_npz(images_path, names)
        of_labels = f"{path}, the labels"
    else:
        images, labels = _load(images_path), None
    if labels_path is not None:
        if labels is not None:
            raise InputError(path, f"holds labels, and {labels_path} gives others; leave one out")
        labels = _load(labels_path)
        of_labels = os.fspath(labels_path.absolute())
    check_some(path, images)
    if images.ndim == 3:
        images = images[:, np.newaxis]
    elif images.ndim == 4 and (layout or _layout(path, images.shape)) == "nhwc":
        images = images.transpose(0, 3, 1, 2)
    if reverse_channels and images.ndim == 4:
        images = images[:, ::-1]
    checked = _checked(of_labels, labels, rule)
    return ArrayExamples(path, images, checked, labels_path=of_labels, stamp=stamp)


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
    checked = _checked(of_labels, labels, rule)
    return ArrayExamples(
        of_images, images[:, np.newaxis], checked, labels_path=of_labels, stamp=stamp
    )


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
        InputError: They are no such files, or cut, or of both kinds, or one is given twice.
        OptionsError: Coarse labels are asked for, and there are none.
        OSError: A file cannot be read.
    """
    for path in paths:
        check_regular(path)
    _check_different(paths)
    stamp = stamp_of_all(paths)
    contents = [read_regular(path) for path in paths]
    num_labels = _cifar_labels(paths, [len(content) for content in contents])
    if coarse and num_labels == 1:
        raise OptionsError(
            f"--coarse: {paths[0].absolute()} is of CIFAR-10, which has one label a record; only "
            f"CIFAR-100 has coarse and fine ones"
        )
    rows = [
        np.frombuffer(content, np.uint8).reshape(-1, num_labels + _CIFAR_PIXELS)
        for content in contents
    ]
    for path, batch in zip(paths, rows, strict=True):
        _check_classes(path, batch[:, :num_labels], num_labels)
    images = np.concatenate([one[:, num_labels:].reshape(-1, 3, 32, 32) for one in rows])
    labels = np.concatenate([one[:, 0 if coarse else num_labels - 1] for one in rows])
    first = os.fspath(paths[0].absolute())
    return ArrayExamples(first, images, _checked(first, labels, rule), digits=5, stamp=stamp)


def _check_different(paths: Sequence[Path]) -> None:
    """Refuse a file that is given twice, by whatever name: its records would be doubled.

    Raises:
        InputError: One is.
    """
    seen: dict[tuple[int, int], Path] = {}
    for path in paths:
        status = path.stat()
        identity = status.st_dev, status.st_ino
        before = seen.get(identity)
        if before is not None:
            also = "" if before == path else f", also as {before.absolute()}"
            raise InputError(
                os.fspath(path.absolute()), f"is given twice{also}; name each batch once"
            )
        seen[identity] = path


def _check_classes(path: Path, labels: NDArray[np.uint8], num_labels: int) -> None:
    """Refuse labels that a kind of CIFAR has not, as of a file that only has its size.

    Args:
        path: The batch.
        labels: (n, num_labels).
        num_labels: Labels of a record, which tell the kind.

    Raises:
        InputError: There are.
    """
    for column, num_classes in enumerate(_CIFAR_CLASSES[num_labels]):
        largest = int(labels[:, column].argmax())
        if labels[largest, column] >= num_classes:
            raise InputError(
                os.fspath(path.absolute()),
                f"record {largest} has the label {labels[largest, column]}, and those of "
                f"{_CIFAR_KINDS[num_labels]} are 0 to {num_classes - 1}: the file is damaged, or "
                f"no binary batch; an array of other labels converts as .npy",
            )


def _cifar_labels(paths: Sequence[Path], sizes: Sequence[int]) -> int:
    """Return how many labels a record of all batches has.

    Raises:
        InputError: A file is no such batch, or they are of both kinds.
    """
    kinds: list[set[int]] = []
    for path, size in zip(paths, sizes, strict=True):
        fitting = {num for num in _CIFAR_KINDS if size and size % (num + _CIFAR_PIXELS) == 0}
        if not fitting:
            raise InputError(
                os.fspath(path.absolute()),
                f"has {size} bytes; expected a multiple of 3073 bytes (CIFAR-10) or 3074 bytes "
                f"(CIFAR-100): the file is cut, or no binary batch",
            )
        if kinds and not kinds[-1] & fitting:
            before, found = (_CIFAR_KINDS[min(one)] for one in (kinds[-1], fitting))
            raise InputError(
                os.fspath(path.absolute()),
                f"is of {found}, and {paths[0].absolute()} of {before}, whose labels mean other "
                f"classes; make a database of each",
            )
        kinds.append(fitting & kinds[-1] if kinds else fitting)
    return min(kinds[-1])


def is_idx(path: Path) -> bool:
    """Return whether a file begins as MNIST's images or labels do, gzipped or not.

    Raises:
        OSError: It cannot be read.
    """
    try:
        with _opened(path) as file:
            return int.from_bytes(file.read(4), "big") in {_IDX_IMAGES, _IDX_LABELS}
    except (EOFError, zlib.error):
        return False


def _checked(path: str, labels: NDArray[Any] | None, rule: LabelRule) -> NDArray[np.int32] | None:
    if labels is None:
        return None
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        shape = " x ".join(map(str, labels.shape))
        raise InputError(
            path, f"expected one label a record, found labels of shape {shape}; {FLOATS_HINT}"
        )
    try:
        return check_labels(labels, rule)
    except LabelError as error:
        raise InputError(path, str(error)) from None


def _load(path: Path) -> NDArray[Any]:
    shown = os.fspath(path.absolute())
    size = path.stat().st_size
    if size == 0:
        raise InputError(shown, "the file is empty")
    try:
        with np.errstate(over="ignore"):  # of a shape's product, which the error is about
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - NumPy lets through what its parsers raise
        if "mmap length" in str(error):
            raise InputError(
                shown, f"is cut: it has {counted(size, 'byte')}, and its header tells of more"
            ) from None
        raise InputError(shown, f"is no NumPy array: {_why(error)}") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(shown, "holds several arrays; one is expected here")
    if isinstance(array, np.memmap):
        num_behind = size - array.offset - array.nbytes
        if num_behind > 0:
            raise InputError(
                shown,
                f"has {counted(num_behind, 'byte')} behind its array of "
                f"{' x '.join(map(str, array.shape))} {array.dtype}; it is damaged, or holds "
                f"several arrays: save each in a file of its own",
            )
    return array


def _why(error: Exception) -> str:
    """Return why an array cannot be read, by what NumPy says of it."""
    message = " ".join(str(error).split())
    if "Python objects in dtype" in message or "Object arrays" in message:
        return (
            "it holds Python objects, which are not read, since that could run code; save an array "
            "of numbers, all images of one shape"
        )
    if "pickle" in message:
        return "the file does not begin as one"
    return message or type(error).__name__


def _from_npz(
    path: Path, names: tuple[str, str] | None
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return images, and labels where there are any."""
    shown = os.fspath(path.absolute())
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name in (names or file.files)}
            behind = {name: _num_behind(file.zip, name, array) for name, array in arrays.items()}
            held = ", ".join(file.files) or "none"
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - NumPy lets through what its parsers raise
        raise InputError(shown, f"is no .npz file that can be read: {_why(error)}") from None
    for name, num_behind in behind.items():
        if num_behind:
            raise InputError(
                shown, f"has {counted(num_behind, 'byte')} behind its array {name!r}; it is damaged"
            )
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


def _num_behind(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> int:
    """Return how many bytes follow an array in its file in an archive."""
    member = f"{name}.npy" if f"{name}.npy" in archive.namelist() else name
    with archive.open(member) as file:
        begin = file.read(12)
    # Behind 6 bytes of magic and 2 of the version, the header's length: of 2 bytes in version 1.
    end = 10 if begin[6] == 1 else 12
    header = end + int.from_bytes(begin[8:end], "little")
    return archive.getinfo(member).file_size - header - int(array.nbytes)


def _layout(path: str, shape: tuple[int, ...]) -> Layout:
    """Return the order of the axes that a shape tells.

    Channels are few, and fewer than rows and columns: 8 x 3 x 3 may be 8 channels of 3 x 3, or
    8 x 3 pixels of 3 channels. Arrays of labels have no rows and columns: theirs are 1 x 1.

    Raises:
        InputError: It tells none.
    """
    if shape[2:] == (1, 1):
        return "nchw"
    if _may_be_channels(shape[1], shape[2:]) != _may_be_channels(shape[3], shape[1:3]):
        return "nchw" if _may_be_channels(shape[1], shape[2:]) else "nhwc"
    raise InputError(
        path,
        f"the shape {' x '.join(map(str, shape))} does not tell which axis is the channels; "
        f"say so with --layout nchw or --layout nhwc",
    )


def _may_be_channels(size: int, others: tuple[int, ...]) -> bool:
    return size in _FEW_CHANNELS and size < min(others)


def _opened(path: Path) -> Any:
    with open_regular(path) as file:
        is_gzipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if is_gzipped else open_regular(path)


def _read_idx(path: Path, magic: int, num_axes: int) -> NDArray[np.uint8]:
    """Return the array of a file in MNIST's format."""
    shown = os.fspath(path.absolute())
    try:
        with _opened(path) as file:
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
            f"{' x '.join(map(str, shape))} takes {math.prod(shape)} bytes; it is cut, or damaged",
        )
    return np.frombuffer(content, np.uint8, offset=begin).reshape(shape)


def _swapped(header: NDArray[Any], magic: int) -> str:
    """Say what a file is whose magic number is that of MNIST's other kind."""
    others = {_IDX_IMAGES: "the images", _IDX_LABELS: "the labels"}
    found = int(header[0]) if len(header) else 0
    if found in others and found != magic:
        return f", that of {others[found]}: give IMAGES, then LABELS"
    return ""
