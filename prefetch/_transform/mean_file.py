"""Mean files: the mean image of a data set, as Caffe's compute_image_mean or NumPy wrote it."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from prefetch._errors.classes import ConfigError, ConfigFault
from prefetch._errors.os_errors import describe_os_error
from prefetch._errors.printable import counted
from prefetch._files.input import open_regular, read_regular
from prefetch._record.wire import DatumError, parse_datum

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

logger = logging.getLogger("prefetch")

_BEGINNING_BYTES = 512  # enough to recognise a web page or a Git LFS pointer
_LEGACY_DIMENSIONS = ("num", "channels", "height", "width")


def load_mean(path: Path) -> NDArray[np.float32]:
    """Read a mean image.

    Args:
        path: A ``.npy`` file, or else a binary BlobProto, whose shape may be in the legacy
            fields (they win where any of them is set, as in Caffe) or in ``shape``, and whose
            values may be floats or doubles (those win where there are any). The shape is
            (channels, height, width), or (1, channels, height, width); of several images in a
            BlobProto the first is the mean, as in Caffe.

    Returns:
        float32 (channels, height, width), C-contiguous, channels in the order of the records that
        it was made from.

    Raises:
        ConfigError: The file cannot be read, or is no mean image.
    """
    try:
        values = _load_npy(path) if path.suffix == ".npy" else _load_blob(path)
    except OSError as error:
        _refuse(path, f"the mean file cannot be read: {describe_os_error(error)}")
    shape = values.shape[1:] if values.ndim == 4 and values.shape[0] == 1 else values.shape
    if len(shape) != 3 or 0 in shape:
        _refuse(
            path,
            "expected a mean of shape channels x height x width, or 1 x channels x height x "
            f"width; found {_join(values.shape)}; a mean of one value a channel goes into "
            "mean_value",
        )
    with np.errstate(over="ignore"):
        mean = np.ascontiguousarray(values.reshape(shape), np.float32)
    num_bad = mean.size - np.count_nonzero(np.isfinite(mean))
    if num_bad:
        _refuse(path, f"{num_bad} of the mean's {mean.size} values are no finite float32 numbers")
    return mean


def _load_npy(path: Path) -> NDArray[Any]:
    with open_regular(path) as file:
        try:
            values: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - NumPy lets through what its parsers raise
            file.seek(0)
            other = _other_file(file.read(_BEGINNING_BYTES))
            found = f"the file ends in .npy, but is no NumPy array: {error}"
            _refuse(path, found if other is None else other)
    if values.dtype.kind not in "fiu":
        _refuse(path, f"expected a mean of numbers, found elements of type {values.dtype}")
    return values


def _load_blob(path: Path) -> NDArray[Any]:
    from google.protobuf.message import DecodeError  # noqa: PLC0415 (as below)

    from prefetch.caffe import BlobProto  # noqa: PLC0415 (protobuf takes 40 ms; few feeds need it)

    content = read_regular(path)
    blob = BlobProto()
    try:
        blob.ParseFromString(content)
    except DecodeError:
        _refuse(path, _other_file(content[:_BEGINNING_BYTES]) or _damage(content))
    shape = tuple(blob.shape.dim)
    if any(blob.HasField(name) for name in _LEGACY_DIMENSIONS):
        shape = tuple(getattr(blob, name) for name in _LEGACY_DIMENSIONS)
    values = np.array(blob.double_data or blob.data, np.float64 if blob.double_data else np.float32)
    if values.size == 0:
        _refuse(path, "the file holds no values; it is no mean file, or was cut")
    if min(shape, default=0) < 0 or values.size != math.prod(shape):
        _refuse(
            path,
            f"the mean's shape is {_join(shape)}, but the file holds {values.size} values; "
            "it was cut, or is no mean file",
        )
    if len(shape) == 4 and shape[0] > 1:
        logger.warning("%s: it holds %d images; the first is the mean, as in Caffe", path, shape[0])
        return values.reshape(shape)[:1]
    return values.reshape(shape)


def _other_file(beginning: bytes) -> str | None:
    """Return what a file is instead, if its first bytes show that."""
    text = beginning.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith(b"version https://git-lfs"):
        return "the file is a Git LFS pointer, not the mean itself: run git lfs pull"
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "the file is a web page, as a failed download leaves one: download the mean again"
    return None


def _damage(content: bytes) -> str:
    """Return where bytes that protobuf refuses stop being a BlobProto."""
    if content.startswith(b"\x93NUMPY"):
        return "the file is a NumPy array: give it a name that ends in .npy"
    try:
        # It has the same rules for where fields begin and end, and passes over a BlobProto's own.
        parse_datum(memoryview(content))
    except DatumError as error:
        found, place = str(error).replace("the record", "the file"), error.numbers[0]
    else:
        return "the file is no BlobProto (.binaryproto), and does not end in .npy either"
    # A length is named by its own place, and the field begins a byte before.
    for end in (place, place - 1):
        if end > 0 and _is_whole(content[:end]):
            extra = content[end:]
            more = "..." if len(extra) > 4 else ""
            return (
                f"{counted(len(extra), 'byte')} too many ({extra[:4]!r}{more}) behind a whole "
                f"BlobProto of {end} bytes: cut off what is behind, as head -c {end} does, or make "
                "the mean again"
            )
    return f"{found}: the file was cut, is damaged, or is no BlobProto (.binaryproto)"


def _is_whole(content: bytes) -> bool:
    from google.protobuf.message import DecodeError  # noqa: PLC0415 (as below)

    from prefetch.caffe import BlobProto  # noqa: PLC0415 (see _load_blob)

    try:
        blob = BlobProto.FromString(content)
    except DecodeError:
        return False
    return bool(blob.data or blob.double_data)


def _join(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "that of a single value"


def _refuse(path: Path, message: str) -> NoReturn:
    raise ConfigError(str(path), (ConfigFault("transform.mean_file", message),)) from None
