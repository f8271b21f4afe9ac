"""``ringfeed split``: one database as two."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer looks it up
from typing import Annotated

import typer

from prefetch.cli.arguments.configs import JsonOption, ThreadsOption  # noqa: TC001 - as above
from prefetch.cli.arguments.databases import (
    DatabaseArgument,
    ReplaceOption,
    ResumeOption,
    place_of,
)
from prefetch.cli.reports.copies import Copier
from prefetch.cli.terminal.progress import DelayedProgress


def split(
    database: DatabaseArgument,
    first: Annotated[Path, typer.Argument(metavar="A", help="The first database to make.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="The other one.")],
    *,
    fraction: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Share of the records that goes into A, drawn at random."
        ),
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(min=1, help="How many records go into A, from the first key on."),
    ] = None,
    stratify: Annotated[
        bool, typer.Option("--stratify", help="Draw the same share of each label.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Seed of what is drawn.")] = 0,
    resume: ResumeOption = False,
    force: ReplaceOption = False,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Divide a database into two, bit for bit, keys and all.

    A holds what a feed with subset: {fraction, seed, stratify} serves, B what one with complement
    does. The names of classes and the order of channels go with both.
    """
    import numpy as np  # noqa: PLC0415 - slow to import

    from prefetch._feed.subset_labels import read_labels  # noqa: PLC0415 - as above
    from prefetch._plan.subset import draw_subset  # noqa: PLC0415 - as above
    from prefetch._source.source import RecordSource  # noqa: PLC0415 - as above
    from prefetch._tools.stored.carried_files import carried_files  # noqa: PLC0415 - as above
    from prefetch._tools.stored.copies import StoredExamples  # noqa: PLC0415

    if (fraction is None) == (at is None):
        raise typer.BadParameter("give one of --fraction and --at")
    if fraction is None and (stratify or seed):
        raise typer.BadParameter("--stratify and --seed are for --fraction")
    places = [place_of(one, [database]) for one in (first, second)]
    if places[0] == places[1]:
        raise typer.BadParameter("A and B are the same")
    copier = Copier(threads=threads, resume=resume, force=force)
    copier.check_free(*places)
    files = carried_files([database])
    with DelayedProgress() as progress, RecordSource.open(database) as source:
        num = source.num_records
        if fraction is None:
            assert at is not None
            drawn = np.arange(min(at, num))
        else:
            labels = read_labels(source) if stratify else None
            drawn = draw_subset(num, fraction, seed=seed, labels=labels)
        others = np.setdiff1d(np.arange(num), drawn, assume_unique=True)
        if not (len(drawn) and len(others)):
            raise typer.BadParameter(
                f"of {num} records {len(drawn)} would go into A and {len(others)} into B; a "
                f"database needs at least one"
            )
        for place, order in zip(places, (drawn, others), strict=True):
            examples = StoredExamples(source, [database], order=order)
            copier.make(examples, place, progress, files=files)
    copier.report({"split": str(database.absolute())}, as_json=as_json)
