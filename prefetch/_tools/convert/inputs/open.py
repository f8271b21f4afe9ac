"""From paths and options to examples: what kind of input it is, and how it is read."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from prefetch._errors.printable import counted
from prefetch._plan.permutation import shuffled
from prefetch._tools.convert.errors import InputError, OptionsError
from prefetch._tools.convert.inputs.cifar_files import read_cifar
from prefetch._tools.convert.inputs.class_folders import find_classes
from prefetch._tools.convert.inputs.images import ImageExamples
from prefetch._tools.convert.inputs.keys import is_shortened
from prefetch._tools.convert.inputs.labels import LabelRule
from prefetch._tools.convert.inputs.leveldb import LevelDbExamples, is_leveldb
from prefetch._tools.convert.inputs.list_file import read_list
from prefetch._tools.convert.inputs.mnist_files import is_idx, read_mnist
from prefetch._tools.convert.inputs.numpy_files import read_arrays
from prefetch._tools.convert.inputs.treatment import Treatment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from prefetch._tools.convert.examples import Examples
    from prefetch._tools.convert.inputs.arrays import ArrayExamples
    from prefetch._tools.convert.inputs.listing import Listing


class Kind(enum.StrEnum):
    """The kinds of input."""

    LIST = "list"
    """A folder and a list of images in it with their labels."""

    FOLDERS = "folders"
    """A folder of class folders."""

    ARRAYS = "arrays"
    """Images and labels in NumPy's .npy or .npz files."""

    MNIST = "mnist"
    """Images and labels in MNIST's idx files."""

    CIFAR = "cifar"
    """CIFAR-10's or CIFAR-100's binary batches."""

    LEVELDB = "leveldb"
    """A LevelDB of Caffe's tools, whose records are copied."""


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How an input is read; what does not fit its kind is refused.

    Attributes:
        treatment: What is done with image files.
        shuffle: Store images in another order than the list's, which `seed` makes.
        layout: Order of an array's axes, None to go by its shape; as for `read_arrays` are
            ``names`` and ``reverse_channels``, and ``coarse`` as for `read_cifar`.
    """

    labels: LabelRule = LabelRule.STRICT
    treatment: Treatment = field(default_factory=Treatment)
    shuffle: bool = False
    seed: int = 0
    layout: Literal["nchw", "nhwc"] | None = None
    names: tuple[str, str] | None = None
    reverse_channels: bool = False
    coarse: bool = False


@dataclass(frozen=True, slots=True)
class Input:
    """An input that was opened.

    Attributes:
        kind: Its kind.
        examples: What is in it.
        classes: (name, label) of each class folder; empty for other kinds.
        num_keys_shortened: Images whose names are too long for LMDB's keys.
        notes: What is hardly meant, or easily taken for something else, one sentence each.
        has_labels: Whether records have labels; arrays may come without.
        holds_rgb: Whether records of three channels have red first, as Caffe's do not.
    """

    kind: Kind
    examples: Examples
    classes: tuple[tuple[str, int], ...] = ()
    num_keys_shortened: int = 0
    notes: tuple[str, ...] = ()
    has_labels: bool = True
    holds_rgb: bool = False


_Names: TypeAlias = frozenset[str]
_ARRAY_OPTIONS: _Names = frozenset({"layout", "names", "reverse_channels"})
_IMAGE_OPTIONS: _Names = frozenset({"treatment", "shuffle", "seed"})
_OPTIONS: dict[Kind, _Names] = {
    Kind.LIST: _IMAGE_OPTIONS | {"labels"},
    Kind.FOLDERS: _IMAGE_OPTIONS,
    Kind.ARRAYS: _ARRAY_OPTIONS | {"labels"},
    Kind.MNIST: frozenset({"labels"}),
    Kind.CIFAR: frozenset({"labels", "coarse"}),
    Kind.LEVELDB: frozenset(),
}
_NUM_PATHS = {
    Kind.LIST: (2, 2, "ROOT and LIST"),
    Kind.FOLDERS: (1, 1, "the folder of class folders"),
    Kind.ARRAYS: (1, 2, "IMAGES.npy and LABELS.npy, or one .npz file"),
    Kind.MNIST: (2, 2, "IMAGES and LABELS"),
    Kind.CIFAR: (1, 1000, "the binary batches"),
    Kind.LEVELDB: (1, 1, "the LevelDB's folder"),
}


def open_input(paths: Sequence[Path], options: InputOptions, *, kind: Kind | None = None) -> Input:
    """Open an input.

    Args:
        paths: What there is: as many files and folders as its kind has.
        options: How it is read.
        kind: Its kind; None to find out by what the paths are.

    Raises:
        OptionsError: The options or the number of paths do not fit the kind.
        InputError: The input cannot be converted.
        OSError: A file cannot be read.
    """
    kind = kind or kind_of(paths)
    least, most, words = _NUM_PATHS[kind]
    if not least <= len(paths) <= most:
        raise OptionsError(f"expected {words} before DB, found {counted(len(paths), 'path')}")
    _check_options(kind, options)
    if kind in (Kind.LIST, Kind.FOLDERS):
        return _open_images(kind, paths, options)
    if kind is Kind.LEVELDB:
        return Input(kind, LevelDbExamples(paths[0]))
    arrays = _open_arrays(kind, paths, options)
    # Of arrays nobody says it, but hardly any hold BGR; CIFAR's files hold red planes first.
    holds_rgb = arrays.num_channels in {3, 4} and not options.reverse_channels
    return Input(kind, arrays, has_labels=arrays.has_labels, holds_rgb=holds_rgb)


def kind_of(paths: Sequence[Path]) -> Kind:
    """Return an input's kind, by what its paths are.

    Raises:
        OptionsError: They are nothing that is known here.
        OSError: One of them is not there, or cannot be looked at.
    """
    for path in paths:
        try:
            path.stat()
        except FileNotFoundError:
            raise FileNotFoundError(f"{path.absolute()}: there is no such file or folder") from None
    first = paths[0]
    if first.is_dir():
        if len(paths) > 1:
            return Kind.LIST
        if sorted(first.glob("*_batch*.bin")):
            raise OptionsError(
                f"{first}: name CIFAR's batches one by one: {first}/data_batch_*.bin"
            )
        return Kind.LEVELDB if is_leveldb(first) else Kind.FOLDERS
    if first.suffix in (".npy", ".npz"):
        return Kind.ARRAYS
    if first.suffix == ".bin":
        return Kind.CIFAR
    if is_idx(first):
        return Kind.MNIST
    if len(paths) > 1 and paths[1].is_dir():
        raise OptionsError(
            f"{first.absolute()}: is no folder, and {paths[1]} is one: give ROOT, then LIST"
        )
    raise OptionsError(
        f"{first.absolute()}: is no folder, no .npy or .npz file, none of MNIST's format and no "
        f".bin of CIFAR's; --from says what it is, and a list of images stands behind their ROOT"
    )


def _check_options(kind: Kind, options: InputOptions) -> None:
    default = InputOptions()
    for option in fields(options):
        name = option.name
        if getattr(options, name) != getattr(default, name) and name not in _OPTIONS[kind]:
            kinds = ", ".join(other for other in Kind if name in _OPTIONS[other])
            raise OptionsError(
                f"{_option_name(name, options)}: not for input of the kind {kind}, only for {kinds}"
            )
    if options.labels is LabelRule.CAFFE and kind is not Kind.LIST:
        raise OptionsError(
            f"--labels caffe: it says what becomes of a list's text, and input of the kind {kind} "
            f"has labels that are numbers; --labels int32 accepts negative ones"
        )


def _option_name(name: str, options: InputOptions) -> str:
    """Return what the command calls an option; of the treatment, what is given of it."""
    default, given = Treatment(), options.treatment
    names = ["arrays" if name == "names" else name]
    if name == "treatment":
        options_of_it = (one.name for one in fields(given))
        names = [one for one in options_of_it if getattr(given, one) != getattr(default, one)]
    return " and ".join(f"--{one.replace('_', '-')}" for one in names)


def _open_images(kind: Kind, paths: Sequence[Path], options: InputOptions) -> Input:
    if kind is Kind.FOLDERS:
        listing = find_classes(paths[0])
    elif paths[0].is_dir():
        listing = read_list(paths[0], paths[1], rule=options.labels)
    else:
        raise InputError(os.fspath(paths[0].absolute()), "is no folder; ROOT is one")
    if options.shuffle:
        listing = shuffled_listing(listing, options.seed)
    num_shortened = sum(
        is_shortened(index, os.fsencode(entry.name)) for index, entry in enumerate(listing.entries)
    )
    return Input(
        kind,
        ImageExamples(listing, options.treatment),
        classes=listing.classes,
        num_keys_shortened=num_shortened,
        notes=listing.notes,
    )


def shuffled_listing(listing: Listing, seed: int) -> Listing:
    """Return a listing in another order, the same for the same seed."""
    size = len(listing.entries)
    order = shuffled(np.arange(size), 0, size=size, seed=seed)
    return replace(listing, entries=tuple(listing.entries[place] for place in order.tolist()))


def _open_arrays(kind: Kind, paths: Sequence[Path], options: InputOptions) -> ArrayExamples:
    if kind is Kind.MNIST:
        return read_mnist(paths[0], paths[1], rule=options.labels)
    if kind is Kind.CIFAR:
        return read_cifar(paths, coarse=options.coarse, rule=options.labels)
    return read_arrays(
        paths[0],
        paths[1] if len(paths) > 1 else None,
        names=options.names,
        layout=options.layout,
        reverse_channels=options.reverse_channels,
        rule=options.labels,
    )
