"""``ringfeed inspect``: what is in a database."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prefetch._errors.printable import counted, printable_key
from prefetch.cli.opening import ChannelsOption, JsonOption  # noqa: TC001 - typer reads the annotations
from prefetch.cli.outputs import ForceOption, check_free, check_no_input, database_files
from prefetch.cli.show import check_picture_name
from prefetch.cli.terminal import Patience, print_fields, print_json, shown_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefetch._tools.survey import Survey

_LABELS_LISTED = 20
_SHAPES_LISTED = 5
_BAR = 40  # characters of the longest


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
    channels: ChannelsOption = "bgr",
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
    with Patience() as patience:
        survey = survey_database(database, full=full, progress=patience)
    if show is not None:
        from prefetch._report.contact_sheet import write_picture  # noqa: PLC0415 - OpenCV is slow to import
        from prefetch._tools.preview import record_sheet  # noqa: PLC0415 - as above

        sheet = record_sheet(database, num_records=images, blue_first=channels == "bgr")
        write_picture(show, sheet)
    if as_json:
        print_json(_as_json(survey, show))
    else:
        print_fields(_fields(survey, show))
    if not survey.is_sound:
        raise typer.Exit(1)


def _as_json(survey: Survey, picture: Path | None) -> dict[str, Any]:
    return {
        **dataclasses.asdict(survey),
        "is_complete": survey.is_complete,
        "is_sound": survey.is_sound,
        "shapes": {"x".join(map(str, shape)): count for shape, count in survey.shapes.items()},
        "keys": [printable_key(key) for key in survey.keys],
        "problems": [
            dataclasses.asdict(problem) | {"keys": [printable_key(key) for key in problem.keys]}
            for problem in survey.problems
        ],
        "picture": None if picture is None else str(picture.absolute()),
    }


def _fields(survey: Survey, picture: Path | None) -> Iterator[tuple[str, str]]:
    yield "database", survey.path
    seen = "all examined" if survey.is_complete else f"{survey.num_examined} at random examined"
    if survey.num_decoded:
        seen += f", {survey.num_decoded} decoded"
    yield "records", f"{survey.num_records}; {seen}"
    yield "kinds", ", ".join(f"{kind} {count}" for kind, count in survey.kinds.items())
    shapes = [f"{' x '.join(map(str, shape))}: {count}" for shape, count in survey.shapes.items()]
    more = len(shapes) - _SHAPES_LISTED
    listed = ", ".join(shapes[:_SHAPES_LISTED]) + (f" and {more} more" if more > 0 else "")
    yield "shapes", f"{listed or 'unknown'} (channels x height x width)"
    yield from _labels(survey.labels)
    for number, key in enumerate(survey.keys):
        yield "" if number else "keys", printable_key(key)
    mean = f"{survey.mean_bytes:.0f} on average"
    yield "values", f"{survey.smallest_bytes} to {survey.largest_bytes} bytes, {mean}"
    yield from _sizes(survey)
    if picture is not None:
        yield "picture", str(picture)
    for number, problem in enumerate(survey.problems):
        num = problem.num_records
        concerned = "" if num is None else f" ({counted(num, 'record')})"
        yield "" if number else "problems", f"{problem.severity}: {problem.message}{concerned}"
        if problem.keys:
            yield "", f"  keys: {', '.join(printable_key(key) for key in problem.keys)}"
    if not survey.problems:
        yield "problems", "none found"


def _labels(labels: dict[int, int]) -> Iterator[tuple[str, str]]:
    if not labels:
        yield "labels", "none"
        return
    most = max(labels.values())
    if len(labels) <= _LABELS_LISTED:
        digits = max(len(str(label)) for label in labels)
        room = len(str(most))
        for number, (label, count) in enumerate(labels.items()):
            bar = _bar_character() * max(1, round(_BAR * count / most))
            yield "" if number else "labels", f"{label:>{digits}}  {count:>{room}}  {bar}"
        return
    by_count = sorted(labels, key=lambda label: (-labels[label], label))
    yield "labels", f"{len(labels)} different ones, {min(labels)} to {max(labels)}"
    yield "", f"most frequent: {_counted(labels, by_count[:5])}"
    yield "", f"least frequent: {_counted(labels, by_count[-5:])}"


def _bar_character() -> str:
    return "\N{FULL BLOCK}" if (sys.stdout.encoding or "").lower().startswith("utf") else "#"


def _counted(labels: dict[int, int], chosen: list[int]) -> str:
    return ", ".join(f"{label} ({labels[label]})" for label in chosen)


def _sizes(survey: Survey) -> Iterator[tuple[str, str]]:
    storage = survey.storage
    about = "" if survey.is_complete else "about "
    yield "content", f"{about}{shown_bytes(storage.content_bytes)} of keys and values"
    yield "pages", f"{shown_bytes(storage.used_bytes)} in use"
    yield (
        "file",
        f"{shown_bytes(storage.file_bytes)}, {shown_bytes(storage.disk_bytes)} on the disk",
    )
