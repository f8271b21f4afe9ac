"""NumPy's files, .npy and .npz, of images and labels."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from prefetch._errors.printable import counted, printable_shape
from prefetch._files.input import check_regular
from prefetch._tools.convert.errors import InputError, OptionsError
from prefetch._tools.convert.inputs.arrays import ArrayExamples, check_array_labels, check_some
from prefetch._tools.convert.inputs.labels import LabelRule
from prefetch._tools.convert.stamps import stamp_of_all

if TYPE_CHECKING:
    import zipfile
    from pathlib import Path

    from numpy.typing import NDArray

    Layout = Literal["nchw", "nhwc"]

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
        layout: Order of the axes; None to go by the shape: with 1, 3 or 4 channels, fewer than
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
    checked = check_array_labels(of_labels, labels, rule)
    return ArrayExamples(path, images, checked, labels_path=of_labels, stamp=stamp)


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
                shown, f"is cut: it has {counted(size, 'byte')}, and its header says more"
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
                f"{printable_shape(array.shape)} {array.dtype}; it is damaged, or holds "
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
    """Return the order of the axes, by the shape.

    Channels are few, and fewer than rows and columns: 8 x 3 x 3 may be 8 channels of 3 x 3, or
    8 x 3 pixels of 3 channels. Arrays of labels have no rows and columns: theirs are 1 x 1.

    Raises:
        InputError: Both orders are possible.
    """
    if shape[2:] == (1, 1):
        return "nchw"
    if _may_be_channels(shape[1], shape[2:]) != _may_be_channels(shape[3], shape[1:3]):
        return "nchw" if _may_be_channels(shape[1], shape[2:]) else "nhwc"
    raise InputError(
        path,
        f"the shape {printable_shape(shape)} does not tell which axis is the channels; "
        f"say so with --layout nchw or --layout nhwc",
    )


def _may_be_channels(size: int, others: tuple[int, ...]) -> bool:
    return size in _FEW_CHANNELS and size < min(others)
