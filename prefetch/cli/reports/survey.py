"""What ``ringfeed inspect`` reports."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

from prefetch._errors.printable import counted, printable_key, printable_name, printable_shape
from prefetch._source.sidecar_files import class_names
from prefetch.cli.reports.printing import printable_size, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from prefetch._tools.database_problems import Problem
    from prefetch._tools.survey import Survey

_LABELS_LISTED = 20
_SHAPES_LISTED = 5
_BAR = 40  # characters of the longest


def survey_as_json(survey: Survey, picture: Path | None) -> dict[str, Any]:
    """Return a survey for programs."""
    return {
        "database": survey.path,
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


def survey_as_fields(survey: Survey, picture: Path | None) -> Iterator[tuple[str, str]]:
    """Yield names and values of a survey for people."""
    yield "database", survey.path
    seen = "all examined" if survey.is_complete else f"{survey.num_examined} at random examined"
    if survey.num_decoded:
        seen += f", {survey.num_decoded} decoded"
    yield "records", f"{survey.num_records}; {seen}"
    yield "kinds", ", ".join(f"{kind} {count}" for kind, count in survey.kinds.items())
    num_jpegs = survey.num_with_restarts + survey.num_without_restarts
    if num_jpegs:
        decoded = counted(num_jpegs, "JPEG")
        yield "roi", f"{survey.num_with_restarts} of {decoded} decoded have restart markers"
    shapes = [f"{printable_shape(shape)}: {count}" for shape, count in survey.shapes.items()]
    more = len(shapes) - _SHAPES_LISTED
    listed = ", ".join(shapes[:_SHAPES_LISTED]) + (f" and {more} more" if more > 0 else "")
    yield "shapes", f"{listed or 'unknown'} (channels x height x width)"
    yield from rows("labels", _labels(survey.labels, class_names([survey.path])))
    yield from rows("keys", map(printable_key, survey.keys))
    mean = f"{survey.mean_bytes:.0f} on average"
    yield "values", f"{survey.smallest_bytes} to {survey.largest_bytes} bytes, {mean}"
    yield from _sizes(survey)
    if picture is not None:
        yield "picture", str(picture)
    yield from rows("problems", _problems(survey.problems) if survey.problems else ["none found"])


def _problems(problems: Iterable[Problem]) -> Iterator[str]:
    for problem in problems:
        num = problem.num_records
        concerned = "" if num is None else f" ({counted(num, 'record')})"
        yield f"{problem.severity}: {problem.message}{concerned}"
        if problem.keys:
            yield f"  keys: {', '.join(map(printable_key, problem.keys))}"


def _labels(labels: dict[int, int], names: Sequence[str]) -> Iterator[str]:
    if not labels:
        yield "none"
    elif len(labels) <= _LABELS_LISTED:
        most = max(labels.values())
        digits = max(len(str(label)) for label in labels)
        room = len(str(most))
        for label, count in labels.items():
            bar = _bar_character() * max(1, round(_BAR * count / most))
            name = f"  {printable_name(names[label])}" if 0 <= label < len(names) else ""
            yield f"{label:>{digits}}  {count:>{room}}  {bar}{name}"
    else:
        by_count = sorted(labels, key=lambda label: (-labels[label], label))
        yield f"{len(labels)} different ones, {min(labels)} to {max(labels)}"
        yield f"most frequent: {_with_counts(labels, by_count[:5])}"
        yield f"least frequent: {_with_counts(labels, by_count[-5:])}"


def _bar_character() -> str:
    return "\N{FULL BLOCK}" if (sys.stdout.encoding or "").lower().startswith("utf") else "#"


def _with_counts(labels: dict[int, int], chosen: list[int]) -> str:
    return ", ".join(f"{label} ({labels[label]})" for label in chosen)


def _sizes(survey: Survey) -> Iterator[tuple[str, str]]:
    storage = survey.storage
    about = "" if survey.is_complete else "about "
    yield "content", f"{about}{printable_size(storage.content_bytes)} of keys and values"
    yield "pages", f"{printable_size(storage.used_bytes)} in use"
    yield (
        "file",
        f"{printable_size(storage.file_bytes)}, {printable_size(storage.disk_bytes)} on the disk",
    )
