"""``ringfeed merge``: several databases as one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path  # noqa: TC003 - typer looks it up
from typing import Annotated

import typer

from prefetch.cli.arguments.configs import JsonOption, ThreadsOption  # noqa: TC001 - as above
from prefetch.cli.arguments.databases import (
    ReplaceOption,
    ResumeOption,
    place_of,
)
from prefetch.cli.reports.copies import Copier
from prefetch.cli.terminal.progress import DelayedProgress


def merge(
    databases: Annotated[
        list[Path], typer.Argument(metavar="DB...", help="Folders of LMDBs, two or more.")
    ],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The database to make.")],
    *,
    renumber: Annotated[
        bool,
        typer.Option(
            "--renumber",
            help="Put each record's place, eight digits and an underscore, in front of its key: "
            "for databases that have keys in common.",
        ),
    ] = False,
    resume: ResumeOption = False,
    force: ReplaceOption = False,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Join databases: all records of all of them, bit for bit, in a new one.

    Keys stay as they are, and no two may be the same; with --renumber records come a database
    after the other. Names of classes are joined, where they agree; databases whose raw records hold
    RGB are not joined with others.
    """
    from prefetch._source.source import RecordSource  # noqa: PLC0415 - slow to import
    from prefetch._tools.stored.carried_files import carried_files  # noqa: PLC0415 - as above
    from prefetch._tools.stored.copies import StoredExamples, order_by_key  # noqa: PLC0415

    if len(databases) < 2:
        raise typer.BadParameter("give two databases or more, and then OUT")
    place = place_of(output, databases)
    copier = Copier(threads=threads, resume=resume, force=force)
    copier.check_free(place)
    files = carried_files(databases)
    with DelayedProgress() as progress, ExitStack() as undo:
        order = None
        if not renumber:
            each = [undo.enter_context(RecordSource.open(one)) for one in databases]
            order = order_by_key(each, lambda done, total: progress("sorting keys", done, total))
        source = undo.enter_context(RecordSource.open(list(databases)))
        examples = StoredExamples(source, databases, order=order, renumber=renumber)
        copier.make(examples, place, progress, files=files)
    copier.report({"merged": [str(one.absolute()) for one in databases]}, as_json=as_json)
