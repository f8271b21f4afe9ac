"""``ringfeed inspect``: what is in a database."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from prefetch.cli.arguments.configs import JsonOption  # noqa: TC001 - typer reads the annotations
from prefetch.cli.arguments.databases import ChannelsOption, is_shown_blue_first
from prefetch.cli.arguments.outputs import (
    ForceOption,
    check_free,
    check_no_input,
    check_picture_name,
    database_files,
)
from prefetch.cli.reports.printing import print_fields, print_json
from prefetch.cli.reports.survey import survey_as_fields, survey_as_json
from prefetch.cli.terminal.progress import DelayedProgress


def inspect(
    database: Annotated[
        Path, typer.Argument(metavar="DB", help="Folder of an LMDB, or its data.mdb.")
    ],
    *,
    full: Annotated[
        bool, typer.Option("--full", help="Read every record and decode every image.")
    ] = False,
    show: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT",
            help="Draw records with labels and keys, such as records.png.",
            callback=check_picture_name,
        ),
    ] = None,
    images: Annotated[int, typer.Option(min=1, max=4096, help="How many records to draw.")] = 48,
    channels: ChannelsOption = "auto",
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say what is in a database: kinds, shapes, labels, keys, sizes, and what is wrong with it.

    Looks at a random sample for half a second; numbers are of the records examined. The exit
    status is 1 where records are found that no feed can use.
    """
    from prefetch._tools.survey import survey_database  # noqa: PLC0415 - slow to import

    check_no_input(show, database_files(database))
    check_free(show, force=force)
    with DelayedProgress() as progress:
        survey = survey_database(database, full=full, progress=progress)
    if show is not None:
        from prefetch._report.contact_sheet import write_picture  # noqa: PLC0415 - OpenCV is slow to import
        from prefetch._tools.preview import record_sheet  # noqa: PLC0415 - as above

        blue_first = is_shown_blue_first(channels, database)
        sheet = record_sheet(database, num_records=images, blue_first=blue_first)
        write_picture(show, sheet)
    if as_json:
        print_json(survey_as_json(survey, show))
    else:
        print_fields(survey_as_fields(survey, show))
    if not survey.is_sound:
        raise typer.Exit(1)
