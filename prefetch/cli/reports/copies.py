"""Databases made of others: made, and what is reported of that."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from prefetch._errors.printable import counted, printable_shape
from prefetch.cli.reports.conversion import known_shapes
from prefetch.cli.reports.printing import print_fields, print_json, printable_size, rows
from prefetch.cli.reports.restart_markers import restarts_as_fields, restarts_as_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from prefetch._tools.convert import Report
    from prefetch._tools.convert.examples import Examples
    from prefetch.cli.terminal.progress import DelayedProgress

logger = logging.getLogger(__name__)


class Copier:
    """Makes databases as a command's options say, and reports them together.

    Args:
        threads: How many read; None for one a core.
        resume: Whether to continue what an interrupted run has left.
        force: Whether to replace databases that are there.
        skip_unreadable: Whether to leave out records that cannot be changed as asked.
    """

    def __init__(
        self,
        *,
        threads: int | None,
        resume: bool,
        force: bool,
        skip_unreadable: bool = False,
    ) -> None:
        self._threads = threads
        self._resume = resume
        self._force = force
        self._skip_unreadable = skip_unreadable
        self._made: list[tuple[Path, Report]] = []
        self._began = time.perf_counter()

    def check_free(self, *places: Path) -> None:
        """Refuse places that are taken, before anything is read.

        Raises:
            ConversionError: One is.
        """
        from prefetch._tools import convert as conversion  # noqa: PLC0415 - slow to import

        for place in places:
            if not (self._resume and conversion.is_finished(place)):
                conversion.check_free(place, force=self._force)

    def make(
        self,
        examples: Examples,
        place: Path,
        progress: DelayedProgress,
        *,
        files: dict[str, str],
    ) -> None:
        """Make a database; an empty one is refused where it would be made.

        Args:
            examples: Its records.
            place: Its folder.
            progress: Is called as records are stored.
            files: What goes beside it: names and contents.
        """
        from prefetch._tools import convert as conversion  # noqa: PLC0415 - slow to import

        done = conversion.convert(
            examples,
            place,
            threads=self._threads,
            resume=self._resume,
            force=self._force,
            skip_unreadable=self._skip_unreadable,
            files=files,
            progress=lambda num, total: progress("copying", num, total),
        )
        for one in done.unreadable[:5]:
            logger.warning("left out: %s", one)
        if done.was_finished:
            logger.warning("%s: is finished already; nothing was done", place)
        self._made.append((place, done))

    def report(self, inputs: Mapping[str, Any], *, as_json: bool) -> None:
        """Print what was made.

        Args:
            inputs: What it was made of, by the names of the JSON report.
            as_json: Whether programs read it.
        """
        elapsed_s = time.perf_counter() - self._began
        made = [_as_json(place, done) for place, done in self._made]
        if as_json:
            one = made[0] if len(made) == 1 else {"databases": made}
            print_json({**inputs, **one, "elapsed_s": elapsed_s})
            return
        fields: list[tuple[str, str]] = []
        for place, done in self._made:
            fields += _as_fields(place, done)
        print_fields([*fields, ("time", f"{elapsed_s:.1f} s")])


def _as_json(place: Path, done: Report) -> dict[str, Any]:
    return {
        "database": str(place.absolute()),
        "num_records": done.num_stored,
        "num_resumed": done.num_resumed,
        "num_unchanged": done.num_unchanged,
        "num_unreadable": len(done.unreadable),
        "shapes": {"x".join(map(str, shape)): num for shape, num in known_shapes(done).items()},
        "file_bytes": done.size_bytes,
        **restarts_as_json(done),
    }


def _as_fields(place: Path, done: Report) -> Iterator[tuple[str, str]]:
    yield "database", str(place)
    resumed = f", {done.num_resumed} of them before" if done.num_resumed else ""
    yield "records", f"{done.num_stored}{resumed}"
    if done.num_unchanged != done.num_stored:
        yield "", f"{counted(done.num_unchanged, 'record')} unchanged"
    if done.unreadable:
        yield "left out", counted(len(done.unreadable), "record")
    yield from rows(
        "shapes",
        [f"{printable_shape(shape)}: {num}" for shape, num in known_shapes(done).items()][:10],
    )
    yield from restarts_as_fields(done)
    yield "size", printable_size(done.size_bytes)
