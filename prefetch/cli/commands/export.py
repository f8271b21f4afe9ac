"""``ringfeed export``: the records of a database as files."""

from __future__ import annotations

import logging
import time
from pathlib import Path  # noqa: TC003 - typer looks it up
from typing import Annotated

import typer

from prefetch._errors.printable import counted
from prefetch.cli.arguments.configs import JsonOption  # noqa: TC001 - as above
from prefetch.cli.arguments.databases import (  # noqa: TC001 - as above
    DatabaseArgument,
    ResumeOption,
    SkipOption,
)
from prefetch.cli.arguments.outputs import check_no_input, database_files
from prefetch.cli.reports.printing import print_fields, print_json
from prefetch.cli.terminal.progress import DelayedProgress

logger = logging.getLogger(__name__)


def export(
    database: DatabaseArgument,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to make.")],
    *,
    by_class: Annotated[
        bool,
        typer.Option(
            "--by-class",
            help="A folder for each label, named as classes.tsv beside the database says, or by "
            "the label's number.",
        ),
    ] = False,
    skip_unreadable: SkipOption = False,
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the records of a database as files, with a list of names and labels.

    Image files come out as they are, raw records as PNG, with the
    colours that channels.txt beside the database says, others as .npy. FOLDER/list.txt is what
    ringfeed convert reads. The folder gets its name when it is whole.
    """
    from prefetch._source.source import RecordSource  # noqa: PLC0415 - slow to import
    from prefetch._tools.stored.carried_files import read_class_names  # noqa: PLC0415 - as above
    from prefetch._tools.stored.export import export as export_records  # noqa: PLC0415 - as above

    check_no_input(folder, database_files(database))
    began = time.perf_counter()
    with DelayedProgress() as progress, RecordSource.open(database) as source:
        done = export_records(
            source,
            folder,
            class_names=read_class_names(database),
            by_class=by_class,
            skip_unreadable=skip_unreadable,
            resume=resume,
            progress=lambda num, total: progress("exporting", num, total),
        )
    for one in done.unreadable[:5]:
        logger.warning("%s", one)
    elapsed_s = time.perf_counter() - began
    if as_json:
        print_json(
            {
                "database": str(database.absolute()),
                "folder": str(folder.absolute()),
                "num_records": done.num_records,
                "num_files": done.num_files,
                "num_resumed": done.num_resumed,
                "num_unreadable": len(done.unreadable),
                "kinds": done.kinds,
                "elapsed_s": elapsed_s,
            }
        )
        return
    kinds = ", ".join(f"{ending} {num}" for ending, num in sorted(done.kinds.items()))
    fields = [
        ("folder", str(folder)),
        ("files", f"{done.num_files} in {elapsed_s:.1f} s"),
        ("kinds", kinds),
    ]
    if done.unreadable:
        fields.append(("left out", counted(len(done.unreadable), "record")))
    print_fields(fields)
