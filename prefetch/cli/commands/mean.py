"""``ringfeed mean``: the mean image of a database."""

from __future__ import annotations

import logging
import time
from pathlib import Path  # noqa: TC003 - typer looks it up
from typing import Annotated

import typer

from prefetch._errors.printable import printable_shape
from prefetch.cli.arguments.configs import JsonOption, ThreadsOption  # noqa: TC001 - typer looks them up
from prefetch.cli.arguments.outputs import (
    ForceOption,
    check_folder,
    check_free,
    check_no_input,
    database_files,
)
from prefetch.cli.reports.printing import print_fields, print_json
from prefetch.cli.terminal.progress import DelayedProgress

logger = logging.getLogger(__name__)

_SUFFIXES = (".binaryproto", ".npy")


def _check_name(path: Path | None) -> Path | None:
    """Refuse a name whose ending is of no kind of mean file, before anything is read."""
    from prefetch._files.output import is_written_into  # noqa: PLC0415 - slow to import

    if path is not None and path.suffix not in _SUFFIXES and not is_written_into(path):
        raise typer.BadParameter(f"expected a name that ends in {' or '.join(_SUFFIXES)}")
    return check_folder(path)


def mean(
    database: Annotated[
        Path, typer.Argument(metavar="DB", help="The database's folder, or its data.mdb.")
    ],
    output: Annotated[
        Path | None,
        typer.Argument(
            metavar="OUT",
            help="OUT.binaryproto, Caffe's mean file, or OUT.npy; without it the means of the "
            "channels are printed only.",
            callback=_check_name,
        ),
    ] = None,
    *,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Sum up in float64; without it in float32, as Caffe does."),
    ] = False,
    force_color: Annotated[
        bool, typer.Option("--force-color", help="Decode encoded images to 3 channels.")
    ] = False,
    force_gray: Annotated[
        bool, typer.Option("--force-gray", help="Decode encoded images to 1 channel.")
    ] = False,
    threads: ThreadsOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compute the mean image of a database, bit for bit as Caffe's compute_image_mean does.

    All records must have one shape. Encoded images are decoded as they are stored.
    """
    from prefetch._source.source import RecordSource  # noqa: PLC0415 - as above
    from prefetch._tools.mean import compute_mean  # noqa: PLC0415 - slow to import

    if force_color and force_gray:
        raise typer.BadParameter("--force-color and --force-gray exclude each other")
    check_no_input(output, database_files(database))
    check_free(output, force=force)
    began = time.perf_counter()
    with DelayedProgress() as progress, RecordSource.open(database) as source:
        found = compute_mean(
            source,
            exact=exact,
            force_color=force_color,
            force_gray=force_gray,
            threads=threads,
            progress=lambda done, total: progress("adding up", done, total),
        )
    if found.num_odd:
        logger.warning(
            "of the mean's %d values %d are no finite numbers, since records hold such; a feed "
            "takes no such mean file",
            found.image.size,
            found.num_odd,
        )
    if output is not None:
        found.save(output)
    elapsed_s = time.perf_counter() - began
    if as_json:
        print_json(
            {
                "database": str(database.absolute()),
                "mean_file": None if output is None else str(output.absolute()),
                "records": found.num_records,
                "shape": list(found.image.shape),
                "channel_means": list(found.channels),
                "exact": exact,
                "elapsed_s": elapsed_s,
            }
        )
        return
    fields = [
        ("records", f"{found.num_records} in {elapsed_s:.1f} s"),
        ("shape", printable_shape(found.image.shape)),
        *((f"channel {index}", f"{value:.6g}") for index, value in enumerate(found.channels)),
    ]
    print_fields(iter(fields if output is None else [*fields, ("mean file", str(output))]))
