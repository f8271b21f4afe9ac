"""``ringfeed convert``: images into a database."""

from __future__ import annotations

import logging
import time
from pathlib import Path  # noqa: TC003 - typer looks it up
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from prefetch._errors.printable import counted
from prefetch._files.output import OutputError, check_writable
from prefetch._source.sidecar_files import CHANNELS_FILE, CLASSES_FILE, format_classes
from prefetch.cli.arguments.configs import JsonOption, ThreadsOption  # noqa: TC001 - as above
from prefetch.cli.arguments.databases import ReplaceOption  # noqa: TC001 - as above
from prefetch.cli.arguments.images import (
    BackgroundOption,
    CropOption,
    HeightOption,
    QualityOption,
    RoiOption,
    ShorterOption,
    WidthOption,
    parse_color,
)
from prefetch.cli.arguments.outputs import check_folder, check_no_dangling_link, check_no_input
from prefetch.cli.reports.conversion import (
    conversion_as_fields,
    conversion_as_json,
    warn_of_input,
    warn_of_output,
)
from prefetch.cli.reports.printing import print_fields, print_json
from prefetch.cli.reports.tables import (
    check_unreadable,
    remove_unreadable,
    write_unreadable,
)
from prefetch.cli.terminal.progress import DelayedProgress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefetch._tools.convert import Input, Unreadable

logger = logging.getLogger(__name__)


def convert(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...",
            help="ROOT LIST: a folder, and a file of image names and labels; or a folder of class "
            "folders; or .npy or .npz arrays; or MNIST's IMAGES LABELS; or CIFAR's .bin batches; "
            "or a LevelDB's folder.",
        ),
    ],
    database: Annotated[Path, typer.Argument(metavar="DB", help="The folder to make.")],
    *,
    kind: Annotated[
        Literal["auto", "list", "folders", "arrays", "mnist", "cifar", "leveldb"],
        typer.Option("--from", help="What INPUT is; auto: what it looks like."),
    ] = "auto",
    gray: Annotated[bool, typer.Option("--gray", help="Store one channel.")] = False,
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Store in another order than the list's.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Seed of that order.")] = 0,
    resize_width: WidthOption = 0,
    resize_height: HeightOption = 0,
    resize_shorter: ShorterOption = 0,
    center_crop: CropOption = 0,
    background: BackgroundOption = "",
    check_size: Annotated[
        bool,
        typer.Option("--check-size", "--check_size", help="Refuse records of several shapes."),
    ] = False,
    encoded: Annotated[
        bool,
        typer.Option("--encoded", help="Store image files, unchanged where possible, not pixels."),
    ] = False,
    encode_type: Annotated[
        str,
        typer.Option(
            "--encode-type", "--encode_type", help="Their type, such as png or jpg; empty: own."
        ),
    ] = "",
    quality: QualityOption = None,
    roi: RoiOption = False,
    max_pixels_per_byte: Annotated[
        int,
        typer.Option(
            "--max-pixels-per-byte",
            min=1,
            help="As the feed's option: which images are too large for their files' bytes.",
        ),
    ] = 2048,
    labels: Annotated[
        Literal["strict", "int32", "caffe"],
        typer.Option(
            help="strict: 0 to 2147483647; int32: negative ones too; caffe: whatever C's atoi "
            "makes of the text."
        ),
    ] = "strict",
    arrays: Annotated[
        str, typer.Option(metavar="IMAGES,LABELS", help="Names of the arrays in a .npz file.")
    ] = "",
    layout: Annotated[
        Literal["auto", "nchw", "nhwc"],
        typer.Option(
            help="Order of an array's axes: channels before rows and columns, or behind them; "
            "auto: by the shape."
        ),
    ] = "auto",
    reverse_channels: Annotated[
        bool, typer.Option("--reverse-channels", help="Store an array's RGB as BGR.")
    ] = False,
    coarse: Annotated[
        bool, typer.Option("--coarse", help="Take CIFAR-100's coarse labels.")
    ] = False,
    skip_unreadable: Annotated[
        bool,
        typer.Option("--skip-unreadable", help="Leave out images that cannot be read."),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where such images are listed; DB.unreadable.tsv if not given."
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue what an interrupted run has left in DB.partial, if its images are as "
            "they were; do nothing where it has finished.",
        ),
    ] = False,
    force: ReplaceOption = False,
    threads: ThreadsOption = None,
    backend: Annotated[  # noqa: ARG001 - for scripts that were written for Caffe
        Literal["lmdb"], typer.Option(help="The kind of database.")
    ] = "lmdb",
    as_json: JsonOption = False,
) -> None:
    """Convert images to a database of Caffe Datum records.

    Options and results are those of Caffe's convert_imageset and of its converters for MNIST and
    CIFAR. The database gets its name when it is whole; before, it is in DB.partial, and the same
    command with --resume continues it.
    """
    from prefetch._tools import convert as conversion  # noqa: PLC0415 - OpenCV is slow to import

    default_report = _beside(database, ".unreadable.tsv")
    report = report or default_report
    _check_places(database, inputs, report, is_default=report == default_report)
    if not (resume and conversion.is_finished(database)):
        conversion.check_free(database, force=force)  # before a large input is read
    began = time.perf_counter()
    try:
        options = conversion.InputOptions(
            labels=conversion.LabelRule(labels),
            treatment=conversion.Treatment(
                gray=gray,
                resize_height=resize_height,
                resize_width=resize_width,
                encoded=encoded or roi,
                encode_type=encode_type,
                max_pixels_per_byte=max_pixels_per_byte,
                resize_shorter=resize_shorter,
                center_crop=center_crop,
                background=parse_color(background),
                quality=quality,
                roi=roi,
            ),
            shuffle=shuffle,
            seed=seed,
            layout=None if layout == "auto" else layout,
            names=_array_names(arrays),
            reverse_channels=reverse_channels,
            coarse=coarse,
        )
        opened = conversion.open_input(
            inputs, options, kind=None if kind == "auto" else conversion.Kind(kind)
        )
    except conversion.OptionsError as error:
        raise typer.BadParameter(str(error)) from None
    _check_outside(database, inputs[0], opened)
    warn_of_input(options, opened)
    try:
        with DelayedProgress() as progress:
            done = conversion.convert(
                opened.examples,
                database,
                threads=threads,
                check_size=check_size,
                skip_unreadable=skip_unreadable,
                resume=resume,
                force=force,
                files=_files_beside(opened),
                progress=lambda num, total: progress("converting", num, total),
                left_out=lambda unreadable: _list_unreadable(report, unreadable),
            )
    except conversion.UnreadableImagesError as error:
        try:
            _list_unreadable(report, error.unreadable)
        except OutputError as of_list:  # the images are what the caller wants to hear of
            logger.error("%s", of_list)  # noqa: TRY400 - a line, no traceback
        raise
    if not done.unreadable:
        remove_unreadable(default_report)
    listed_in = report if done.unreadable else None
    warn_of_output(database, done)
    elapsed_s = time.perf_counter() - began
    if as_json:
        print_json(conversion_as_json(database, opened, done, listed_in, elapsed_s))
    else:
        print_fields(
            conversion_as_fields(database, opened, done, listed_in, elapsed_s, is_shuffled=shuffle)
        )


def _check_places(
    database: Path, inputs: Sequence[Path], report: Path, *, is_default: bool
) -> None:
    """Refuse places where the database or the list of unreadable images cannot go.

    Raises:
        BadParameter: One is an input, or holds something else, or is in no folder.
        OutputError: The list cannot be written there.
    """
    check_folder(None if is_default else report)
    partial = _beside(database, ".partial")
    for made in (database, partial):
        check_no_input(made, inputs, cure="DB, the last argument, is another folder, to be made")
    check_no_input(report, [*inputs, database, partial])
    check_no_dangling_link(report)
    check_unreadable(report)
    if not is_default:  # the default is in the database's folder, which may have to be made
        check_writable(report)


def _beside(database: Path, ending: str) -> Path:
    """Return the path beside a database that has its name and an ending.

    Raises:
        BadParameter: The database has no name.
    """
    place = database.absolute()
    if place.name in {"", ".."}:
        raise typer.BadParameter(f"{database} is no name for a folder to make; name one in it")
    return place.with_name(f"{place.name}{ending}")


def _check_outside(database: Path, root: Path, opened: Input) -> None:
    """Refuse a database among class folders: a later conversion would take it for a class.

    Raises:
        BadParameter: It would be there.
    """
    if opened.kind == "folders" and database.resolve().is_relative_to(root.resolve()):
        raise typer.BadParameter(
            f"{database} would be in {root}, and be taken for a class folder; name a place "
            f"outside of it"
        )


def _array_names(text: str) -> tuple[str, str] | None:
    if not text:
        return None
    images, comma, labels = text.partition(",")
    if not (images and comma and labels):
        raise typer.BadParameter(f"--arrays: expected two names as IMAGES,LABELS, found {text!r}")
    return images, labels


def _files_beside(opened: Input) -> dict[str, str]:
    """Return the label of each class folder by its name, and the order of channels if it is RGB."""
    files = {}
    if opened.classes:
        files[CLASSES_FILE] = format_classes({label: name for name, label in opened.classes})
    if opened.holds_rgb:
        files[CHANNELS_FILE] = "rgb\n"
    return files


def _list_unreadable(path: Path, unreadable: Sequence[Unreadable]) -> None:
    """Write the list of images that cannot be read.

    Raises:
        OutputError: It cannot be written.
    """
    from prefetch._tools.convert import read_or_written  # noqa: PLC0415 - OpenCV is slow to import

    write_unreadable(path, unreadable)
    count = counted(len(unreadable), "image")
    logger.warning("%s: lists %s that cannot be %s", path, count, read_or_written(unreadable))
