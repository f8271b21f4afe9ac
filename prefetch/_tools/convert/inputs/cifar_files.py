"""CIFAR-10's and CIFAR-100's binary batches."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import numpy as np

from prefetch._files.input import check_regular, read_regular
from prefetch._tools.convert.errors import InputError, OptionsError
from prefetch._tools.convert.inputs.arrays import ArrayExamples, check_array_labels
from prefetch._tools.convert.inputs.labels import LabelRule
from prefetch._tools.convert.stamps import stamp_of_all

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_CIFAR_PIXELS: Final = 3 * 32 * 32
_CIFAR_KINDS: Final = {1: "CIFAR-10", 2: "CIFAR-100"}
"""By the labels that a record has."""
_CIFAR_CLASSES: Final = {1: (10,), 2: (20, 100)}
"""How many values each of its labels has: of CIFAR-100 the coarse one stands first."""


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
    return ArrayExamples(
        first, images, check_array_labels(first, labels, rule), digits=5, stamp=stamp
    )


def _check_different(paths: Sequence[Path]) -> None:
    """Refuse a file that is given twice, by any name: its records would be doubled.

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
        num_labels: Labels of a record, by which the kind is known.

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
