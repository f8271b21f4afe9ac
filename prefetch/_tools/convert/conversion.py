"""Converting: all cores make records of the input, and one writer stores them in order."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn

from prefetch._errors.printable import counted, printable_shape
from prefetch._process.resource_limits import num_cores
from prefetch._tools.convert.draft import Draft
from prefetch._tools.convert.errors import (
    ConversionError,
    NothingConvertedError,
    ShapesDifferError,
    Unreadable,
    UnreadableImagesError,
)
from prefetch._tools.convert.examples import Example
from prefetch._tools.convert.inputs.images import one_thread_a_call
from prefetch._tools.convert.read_ahead import read_in_order
from prefetch._tools.convert.report import FINISHED_FILE, Report, finished_report, finished_text
from prefetch._tools.convert.restart_markers import MARKED
from prefetch._tools.convert.resume import Stored, check_unchanged, note_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from prefetch._tools.convert.examples import Examples

    Progress: TypeAlias = Callable[[int, int], None]
    Shape: TypeAlias = tuple[int, int, int]
    Outcome: TypeAlias = tuple[int, Example | str]

logger = logging.getLogger(__name__)

_REMARKS_KEPT: Final = 5


def convert(
    examples: Examples,
    database: Path,
    *,
    threads: int | None = None,
    check_size: bool = False,
    skip_unreadable: bool = False,
    resume: bool = False,
    force: bool = False,
    files: dict[str, str] | None = None,
    progress: Progress | None = None,
    left_out: Callable[[tuple[Unreadable, ...]], None] | None = None,
) -> Report:
    """Write a database of examples, in the order of their keys.

    It takes its name when it is whole. Whatever interrupts that leaves a folder beside it, of the
    same name with ``.partial`` behind it, which ``resume`` continues.

    Args:
        examples: What is stored.
        database: Folder to make; there must be nothing yet, but for ``force``.
        threads: How many read; None for one a core. The result does not depend on it.
        check_size: Refuse records whose shape is not that of the first.
        skip_unreadable: Leave out images that cannot be read, instead of failing at the end.
        resume: Continue what an interrupted conversion of the same input has left, if it has;
            where one has finished with the same names, labels and options, nothing is done.
        force: Replace a database that is there, once the new one is whole; without ``resume`` also
            remove what an interrupted conversion has left.
        files: Text files that go into the folder too: names and contents.
        progress: Called now and then with the images done and the images in all.
        left_out: Called with the images that are left out, if there are any, before the database
            takes its name; where it raises, the conversion can be resumed.

    Raises:
        UnreadableImagesError: Images cannot be read, and are not to be skipped.
        NothingConvertedError: None of them can be read.
        ChangedInputError: What an interrupted conversion has stored is of other content.
        ShapesDifferError: Shapes differ, and are not to.
        ConversionError: The disk is full, the place is taken, or no place to write.
    """
    num_threads = threads or num_cores()
    description = description_of(examples)
    finished = finished_report(database, description) if resume else None
    if finished is not None and _is_as_asked(
        finished, check_size=check_size, skip_unreadable=skip_unreadable
    ):
        _report_left_out(left_out, finished.unreadable)
        return finished
    with Draft(database, description, resume=resume, force=force) as draft:
        stored = frozenset(draft.keys())
        earlier = check_unchanged(draft, examples, stored, progress) if stored else Stored()
        todo: Sequence[int] = range(len(examples))
        if stored:
            todo = [index for index in todo if examples.key(index) not in stored]
        tally = _Tally(examples, earlier, one_shape_in=draft.folder if check_size else None)
        try:
            _store(draft, examples, todo, num_threads=num_threads, tally=tally, progress=progress)
        except ConversionError:
            raise  # which says what to do
        except KeyboardInterrupt:
            with suppress(ConversionError):
                draft.commit()  # what waits for the next commit may have taken minutes
            logger.warning(
                "%s: %d of %s stored; --resume continues it",
                draft.folder,
                draft.num_committed,  # the tally may be one ahead
                counted(len(examples), "record"),
            )
            raise
        except BaseException:
            logger.warning("%s: what is stored so far; --resume continues it", draft.folder)
            raise
        unreadable = tuple(tally.unreadable)
        if tally.num_stored == 0:
            draft.discard()
            raise NothingConvertedError(unreadable)
        if unreadable and not skip_unreadable:
            raise UnreadableImagesError(unreadable, len(examples))
        try:
            _report_left_out(left_out, unreadable)
        except BaseException:
            logger.warning(
                "%s: all that can be read is stored; --resume continues it", draft.folder
            )
            raise
        report = tally.report(len(examples))
        kept = {FINISHED_FILE: finished_text(description, report)}
        return replace(report, size_bytes=draft.finish({**(files or {}), **kept}))


def _report_left_out(
    left_out: Callable[[tuple[Unreadable, ...]], None] | None, unreadable: tuple[Unreadable, ...]
) -> None:
    """Call back with the images that are left out, if there are any."""
    if unreadable and left_out is not None:
        left_out(unreadable)


def _is_as_asked(finished: Report, *, check_size: bool, skip_unreadable: bool) -> bool:
    """Return whether a finished database could have come of these options too."""
    return (skip_unreadable or not finished.unreadable) and (
        len(finished.shapes) == 1 or not check_size
    )


def description_of(examples: Examples) -> dict[str, str | int]:
    """Return what a draft says of its conversion; the format is that of the draft's own files."""
    return {"format": 3, **examples.fingerprint()}


def _store(
    draft: Draft,
    examples: Examples,
    todo: Sequence[int],
    *,
    num_threads: int,
    tally: _Tally,
    progress: Progress | None,
) -> None:
    """Read what is to do, and store it in this order."""
    num_done = len(examples) - len(todo)
    with one_thread_a_call(), closing(read_in_order(examples, todo, num_threads)) as chunks:
        for outcomes in chunks:
            for index, outcome in outcomes:
                if isinstance(outcome, Example):
                    tally.count(index, outcome)
                    note = note_of(index, outcome)
                    draft.put(examples.key(index), outcome.value, note=note)
                else:
                    tally.unreadable.append(Unreadable(index, examples.name(index), outcome))
            num_done += len(outcomes)
            if progress is not None:
                progress(num_done, len(examples))
    draft.commit()


class _Tally:
    """Counts what is stored, and compares shapes where that is asked for.

    Args:
        examples: The input, for names.
        earlier: What an earlier process has stored; is counted on.
        one_shape_in: The draft, where its records are to have one shape; None where they need not.

    Raises:
        ShapesDifferError: What is stored already has several, and is to have one.
    """

    def __init__(self, examples: Examples, earlier: Stored, *, one_shape_in: Path | None) -> None:
        self.unreadable: list[Unreadable] = []
        self._examples = examples
        self._num_resumed = earlier.num_records
        self._counted = earlier
        self._one_shape_in = one_shape_in
        self._num_turned = self._num_remarked = self._num_gray = 0
        self._num_alpha_dropped = 0
        self._whole: Counter[str] = Counter()
        self._bytes_added = self._bytes_marked = 0
        self._remarks: list[tuple[str, str]] = []
        if one_shape_in is not None:
            for shape, index in list(earlier.first.items())[1:]:
                self._refuse(index, shape)

    @property
    def num_stored(self) -> int:
        return self._counted.num_records

    def count(self, index: int, example: Example) -> None:
        """Count an example.

        Raises:
            ShapesDifferError: Its shape is not that of the first, and is to be.
        """
        counted_on = self._counted
        if self._one_shape_in is not None and counted_on.first.keys() - {example.shape}:
            self._refuse(index, example.shape)
        counted_on.count(index, example.shape, unchanged=example.unchanged)
        self._num_turned += example.is_turned
        self._num_gray += example.is_grey
        self._num_alpha_dropped += example.drops_alpha
        if example.whole_because is not None:
            self._whole[example.whole_because] += 1
        if example.whole_because == MARKED:
            self._bytes_added += example.bytes_added
            self._bytes_marked += len(example.value)
        if example.remark:
            self._num_remarked += 1
            if len(self._remarks) < _REMARKS_KEPT:
                self._remarks.append((self._examples.name(index), example.remark))

    def report(self, num_images: int) -> Report:
        """Return what was counted, of a database whose size is not known yet."""
        return Report(
            num_images=num_images,
            num_stored=self.num_stored,
            num_resumed=self._num_resumed,
            num_unchanged=self._counted.num_unchanged,
            shapes=dict(self._counted.shapes.most_common()),
            unreadable=tuple(self.unreadable),
            size_bytes=0,
            num_turned=self._num_turned,
            remarks=tuple(self._remarks),
            num_remarked=self._num_remarked,
            num_gray=self._num_gray,
            num_alpha_dropped=self._num_alpha_dropped,
            num_marked=self._whole[MARKED],
            whole={why: num for why, num in self._whole.most_common() if why != MARKED},
            bytes_added=self._bytes_added,
            bytes_marked=self._bytes_marked,
        )

    def _refuse(self, index: int, shape: Shape) -> NoReturn:
        """Refuse an example whose shape is not that of the first."""
        first_shape, first = next(iter(self._counted.first.items()))
        raise ShapesDifferError(
            f"{self._examples.name(index)}: is {printable_shape(shape)} (channels x height x "
            f"width), but {self._examples.name(first)} is {printable_shape(first_shape)}, and "
            f"--check-size asks for one shape; replace it and continue with --resume, or remove "
            f"{self._one_shape_in} and begin anew with --resize-height and --resize-width"
        )
