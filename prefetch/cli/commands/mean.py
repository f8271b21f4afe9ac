"""``ringfeed mean``: the mean image of a database."""

from __future__ import annotations

import logging
import time
from pathlib import Path  # noqa: TC003 - typer looks it up
from typing import TYPE_CHECKING, Annotated

import typer

from prefetch._errors.printable import printable_shape
from prefetch.cli.arguments.configs import (  # noqa: TC001 - typer looks them up
    JsonOption,
    ThreadsOption,
)
from prefetch.cli.arguments.databases import ChannelsOption, is_shown_blue_first
from prefetch.cli.arguments.outputs import (
    ForceOption,
    check_folder,
    check_free,
    check_no_input,
    check_picture_name,
    database_files,
)
from prefetch.cli.reports.printing import print_fields, print_json
from prefetch.cli.terminal.progress import DelayedProgress

if TYPE_CHECKING:
    from prefetch._tools.mean import Mean

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
        Path,
        typer.Argument(
            metavar="DB",
            help="The database's folder, or its data.mdb; or a mean file, to be shown or written "
            "as OUT.",
        ),
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
    show: Annotated[
        Path | None,
        typer.Option(
            metavar="PICTURE",
            help="Draw the mean image, such as mean.png.",
            callback=check_picture_name,
        ),
    ] = None,
    channels: ChannelsOption = "auto",
    threads: ThreadsOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compute the mean image of a database, bit for bit as Caffe's compute_image_mean does.

    All records must have one shape. Encoded images are decoded as they are stored. A mean file in
    the place of DB is read, and written as OUT: mean.binaryproto as mean.npy, or the reverse.
    """
    if force_color and force_gray:
        raise typer.BadParameter("--force-color and --force-gray exclude each other")
    for written in (output, show):
        check_no_input(written, database_files(database))
        check_free(written, force=force)
    if output is not None and show is not None and output.absolute() == show.absolute():
        raise typer.BadParameter("OUT and --show are the same file")
    began = time.perf_counter()
    is_file = database.suffix in _SUFFIXES and database.is_file()
    if is_file:
        if exact or force_color or force_gray:
            raise typer.BadParameter("--exact, --force-color and --force-gray are for a database")
        found = _read(database)
    else:
        found = _compute(
            database, exact=exact, force_color=force_color, force_gray=force_gray, threads=threads
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
    if show is not None:
        _draw(found, database, show, blue_first=is_shown_blue_first(channels, database))
    num_records = None if is_file else found.num_records
    elapsed_s = time.perf_counter() - began
    if as_json:
        print_json(
            {
                "database": str(database.absolute()),
                "mean_file": None if output is None else str(output.absolute()),
                "picture": None if show is None else str(show.absolute()),
                "num_records": num_records,
                "records": num_records,  # as it was called before
                "shape": list(found.image.shape),
                "channel_means": list(found.channels),
                "exact": exact,
                "elapsed_s": elapsed_s,
            }
        )
        return
    fields = [] if is_file else [("records", f"{num_records} in {elapsed_s:.1f} s")]
    fields += [
        ("shape", printable_shape(found.image.shape)),
        *((f"channel {index}", f"{value:.6g}") for index, value in enumerate(found.channels)),
    ]
    written_files = (("mean file", output), ("picture", show))
    fields += [(name, str(path)) for name, path in written_files if path is not None]
    print_fields(fields)


def _compute(
    database: Path, *, exact: bool, force_color: bool, force_gray: bool, threads: int | None
) -> Mean:
    from prefetch._source.source import RecordSource  # noqa: PLC0415 - slow to import
    from prefetch._tools.mean import compute_mean  # noqa: PLC0415 - as above

    with DelayedProgress() as progress, RecordSource.open(database) as source:
        return compute_mean(
            source,
            exact=exact,
            force_color=force_color,
            force_gray=force_gray,
            threads=threads,
            progress=lambda done, total: progress("adding up", done, total),
        )


def _read(path: Path) -> Mean:
    import numpy as np  # noqa: PLC0415 - slow to import

    from prefetch._tools.mean import Mean  # noqa: PLC0415 - as above
    from prefetch._transform.mean_file import load_mean  # noqa: PLC0415 - as above

    image = load_mean(path)
    channels = image.mean(axis=(1, 2), dtype=np.float64)
    return Mean(image=image, channels=tuple(channels.tolist()), num_records=0)


def _draw(found: Mean, database: Path, picture: Path, *, blue_first: bool) -> None:
    from prefetch._report.contact_sheet import (  # noqa: PLC0415 - OpenCV is slow to import
        contact_sheet,
        make_tile,
        write_picture,
    )

    means = ", ".join(f"{value:.6g}" for value in found.channels)
    title = f"mean {printable_shape(found.image.shape)}"
    sheet = contact_sheet(
        [make_tile(found.image, title, f"channels {means}")],
        heading=str(database),
        notes=[f"means of the channels: {means}"],
        blue_first=blue_first,
    )
    write_picture(picture, sheet)
