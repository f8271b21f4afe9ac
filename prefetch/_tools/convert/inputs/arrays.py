"""Images that are in arrays already: NumPy's files, MNIST's and CIFAR's."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from prefetch._errors.printable import counted, printable_shape
from prefetch._record.wire import encode_datum
from prefetch._tools.convert.errors import InputError
from prefetch._tools.convert.examples import Example
from prefetch._tools.convert.inputs.labels import FLOATS_HINT, LabelError, LabelRule, check_labels

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ArrayExamples:
    """Images of one array; see `Examples`.

    uint8 becomes a Datum's data, float16 and float32 its float_data.

    Args:
        path: The array's file, for messages.
        images: (n, channels, height, width) of uint8, float16 or float32; need not be contiguous.
        labels: (n,) int32; None leaves the field out, which reads as 0.
        digits: Digits of the keys, which are the records' numbers; more where they do not suffice,
            since keys are sorted as text.
        labels_path: What the labels are from, for messages; None where that is the images' file.
        stamp: That of the files, from before they were read.

    Raises:
        InputError: The array has another shape or type, or the labels are not as many.
    """

    chunk = 256

    def __init__(
        self,
        path: str,
        images: NDArray[Any],
        labels: NDArray[np.int32] | None,
        *,
        digits: int = 8,
        labels_path: str | None = None,
        stamp: bytes = b"",
    ) -> None:
        check_some(path, images)
        if images.ndim != 4:
            raise InputError(
                path,
                f"expected images of shape records x channels x height x width, found "
                f"{printable_shape(images.shape)}",
            )
        if images.dtype.newbyteorder("=") not in (np.uint8, np.float16, np.float32):
            raise InputError(
                path,
                f"expected elements of type uint8, float16 or float32, found {images.dtype}; "
                f"convert the array first, so that it is you who decides what is rounded or cut",
            )
        if labels is not None and len(labels) != len(images):
            there = f"there are {counted(len(labels), 'label')} and {counted(len(images), 'image')}"
            of_images = "" if labels_path in {None, path} else f" in {path}"
            raise InputError(labels_path or path, f"{there}{of_images}; expected as many")
        self._path = path
        self._images = images
        self._labels = labels
        self._digits = max(digits, len(str(len(images) - 1)))
        self._stamp = stamp

    @property
    def num_channels(self) -> int:
        """Channels of each record."""
        return int(self._images.shape[1])

    @property
    def has_labels(self) -> bool:
        """Whether records have labels."""
        return self._labels is not None

    def __len__(self) -> int:
        return len(self._images)

    def key(self, index: int) -> bytes:
        """Return an image's number."""
        return b"%0*d" % (self._digits, index)

    def name(self, index: int) -> str:
        """Return which of the file's images it is."""
        return f"{self._path}, image {index}"

    def read(self, index: int) -> Example:
        """Make an image a record."""
        image = np.ascontiguousarray(self._images[index])
        channels, height, width = image.shape
        is_bytes = image.dtype == np.uint8
        value = encode_datum(
            channels=channels,
            height=height,
            width=width,
            data=image.data if is_bytes else None,
            label=None if self._labels is None else int(self._labels[index]),
            floats=None if is_bytes else image.ravel().astype(np.float32),
        )
        return Example(value, (channels, height, width), stamp=self._stamp)

    def stamp(self, index: int) -> bytes:  # noqa: ARG002 - all are from the same files
        """Return the stamp of the files."""
        return self._stamp

    def fingerprint(self) -> dict[str, str]:
        """Return the form of the records, and a digest of the labels."""
        labels = b"none" if self._labels is None else self._labels.tobytes()
        shape = printable_shape(self._images.shape)
        return {
            # Strides differ where the file has another order of axes, or channels are reversed.
            "array": f"{shape} {self._images.dtype}, strides {self._images.strides}, "
            f"keys of {self._digits} digits",
            "labels": hashlib.sha256(labels).hexdigest(),
        }


def check_some(path: str, images: NDArray[Any]) -> None:
    """Refuse an array of no elements.

    Raises:
        InputError: It is one.
    """
    if 0 in images.shape:
        lacks = "pixels" if len(images) else "records"
        raise InputError(path, f"holds no {lacks}: it is {printable_shape(images.shape)}")


def check_array_labels(
    path: str, labels: NDArray[Any] | None, rule: LabelRule
) -> NDArray[np.int32] | None:
    """Return an array of labels as (n,) int32, or None for none.

    Args:
        path: Their file, for messages.
        labels: (n,) or (n, 1).
        rule: Which are accepted.

    Raises:
        InputError: The shape is another, or a label is not accepted.
    """
    if labels is None:
        return None
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        shape = printable_shape(labels.shape)
        raise InputError(
            path, f"expected one label a record, found labels of shape {shape}; {FLOATS_HINT}"
        )
    try:
        return check_labels(labels, rule)
    except LabelError as error:
        raise InputError(path, str(error)) from None
