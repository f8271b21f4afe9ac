"""``ringfeed labels``: which labels a database has, others for it, and the names of classes."""

from __future__ import annotations

import time
from pathlib import Path  # noqa: TC003 - typer looks it up
from typing import Annotated, Literal

import typer

from prefetch._errors.printable import counted, printable_line, printable_short_key
from prefetch.cli.arguments.configs import JsonOption, ThreadsOption  # noqa: TC001 - as above
from prefetch.cli.arguments.databases import (
    DatabaseArgument,
    ReplaceOption,
    ResumeOption,
    place_of,
)
from prefetch.cli.arguments.outputs import check_free, check_no_input
from prefetch.cli.reports.copies import Copier
from prefetch.cli.reports.printing import print_fields, print_json
from prefetch.cli.terminal.progress import DelayedProgress

_MOST_NAMED = 5


def labels(
    database: DatabaseArgument,
    output: Annotated[
        Path | None,
        typer.Argument(metavar="NEW", help="The database to make, with --set."),
    ] = None,
    *,
    new_labels: Annotated[
        Path | None,
        typer.Option(
            "--set",
            metavar="LIST",
            help="New labels: a key, a space and a label a line; others stay as they are.",
        ),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(
            "--names",
            metavar="FILE",
            help="Names of the classes, one a line from label 0 on, or label, tab and name: kept "
            "beside the database as classes.tsv.",
        ),
    ] = None,
    rule: Annotated[
        Literal["strict", "int32"],
        typer.Option("--labels", help="strict: 0 to 2147483647; int32: negative ones too."),
    ] = "strict",
    resume: ResumeOption = False,
    force: ReplaceOption = False,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count the labels of a database, or store it with others, or name its classes.

    All records are read. With --set a new database is made, in which all but the labels is as it
    was; without it the database stays, and --names writes classes.tsv into its folder.
    """
    if (new_labels is None) != (output is None):
        raise typer.BadParameter("--set LIST and NEW belong together: a new database is made")
    if new_labels is not None and output is not None:
        copier = Copier(threads=threads, resume=resume, force=force)
        _relabel(copier, database, output, listed=new_labels, names=names, rule=rule)
        copier.report({"relabelled": str(database.absolute())}, as_json=as_json)
        return
    if names is not None:
        _name_classes(database, names, force=force)
    _count(database, as_json=as_json)


def _relabel(
    copier: Copier, database: Path, output: Path, *, listed: Path, names: Path | None, rule: str
) -> None:
    from prefetch._source.source import RecordSource  # noqa: PLC0415 - slow to import
    from prefetch._tools import convert as conversion  # noqa: PLC0415 - as above
    from prefetch._tools.stored.carried_files import carried_files, parse_class_names  # noqa: PLC0415
    from prefetch._tools.stored.copies import StoredExamples, keys_of  # noqa: PLC0415
    from prefetch._tools.stored.relabel import read_new_labels, relabel  # noqa: PLC0415

    place = place_of(output, [database, listed])
    copier.check_free(place)
    new = read_new_labels(listed, conversion.LabelRule(rule))
    classes = None if names is None else parse_class_names(names)
    files = carried_files([database], class_names=classes)
    with DelayedProgress() as progress, RecordSource.open(database) as source:
        unknown = set(new)
        unknown.difference_update(
            keys_of(source, lambda done, total: progress("reading keys", done, total))
        )
        if unknown:
            some = ", ".join(map(printable_short_key, sorted(unknown)[:_MOST_NAMED]))
            more = ", ..." if len(unknown) > _MOST_NAMED else ""
            raise conversion.InputError(
                str(listed.absolute()),
                f"{counted(len(unknown), 'key')} of it no record has: {some}{more}",
            )
        digest = _digest(new)
        examples = StoredExamples(
            source, [database], change=relabel(new), change_name=f"labels {digest}"
        )
        copier.make(examples, place, progress, files=files)


def _digest(new: dict[bytes, int]) -> str:
    """Return a digest of new labels, by which an interrupted run knows that they are the same."""
    import hashlib  # noqa: PLC0415 - slow to import

    digest = hashlib.sha256()
    for key, label in sorted(new.items()):
        digest.update(b"%d %b %d\n" % (len(key), key, label))
    return digest.hexdigest()


def _name_classes(database: Path, names: Path, *, force: bool) -> None:
    from prefetch._files.output import write_whole  # noqa: PLC0415 - slow to import
    from prefetch._source.sidecar_files import CLASSES_FILE, format_classes, sidecar  # noqa: PLC0415
    from prefetch._source.source import RecordSource  # noqa: PLC0415 - as above
    from prefetch._tools.stored.carried_files import parse_class_names  # noqa: PLC0415 - as above

    RecordSource.open(database).close()  # else a file would be made beside no database
    table = sidecar(database, CLASSES_FILE)
    check_no_input(table, [names])
    check_free(table, force=force)
    classes = parse_class_names(names)
    write_whole(table, format_classes(classes).encode("utf-8", "surrogateescape"))


def _count(database: Path, *, as_json: bool) -> None:
    from prefetch._source.source import RecordSource  # noqa: PLC0415 - slow to import
    from prefetch._tools.stored.carried_files import read_class_names  # noqa: PLC0415 - as above
    from prefetch._tools.stored.copies import count_labels  # noqa: PLC0415 - as above

    began = time.perf_counter()
    with DelayedProgress() as progress, RecordSource.open(database) as source:
        counts, num_without = count_labels(
            source, lambda done, total: progress("reading labels", done, total)
        )
        num_records = source.num_records
    classes = read_class_names(database)
    if as_json:
        print_json(
            {
                "database": str(database.absolute()),
                "num_records": num_records,
                "num_without_label": num_without,
                "labels": {str(label): counts[label] for label in sorted(counts)},
                "class_names": {str(label): name for label, name in classes.items()},
                "elapsed_s": time.perf_counter() - began,
            }
        )
        return
    rows = {**dict.fromkeys(sorted(classes), 0), **counts}
    print_fields(
        [
            ("database", str(database)),
            ("records", f"{num_records} with {counted(len(counts), 'label')}"),
            *([("no label", str(num_without))] if num_without else []),
            *(
                (str(label), f"{rows[label]}  {printable_line(classes.get(label, ''))}".rstrip())
                for label in sorted(rows)
            ),
        ]
    )
