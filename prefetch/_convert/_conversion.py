"""Converting: all cores make records of the input, and one writer stores them in order."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from prefetch._convert._draft import Draft
from prefetch._convert._errors import (
    ConversionError,
    NothingConvertedError,
    ShapesDifferError,
    Unreadable,
    UnreadableError,
    UnreadableImagesError,
)
from prefetch._convert._examples import Example
from prefetch._convert._images import one_thread_a_call
from prefetch._convert._resuming import check_unchanged, note_of
from prefetch._counted import counted
from prefetch._examine import Examiner

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from concurrent.futures import Future
    from pathlib import Path
    from typing import TypeAlias

    from prefetch._convert._examples import Examples

    Progress: TypeAlias = Callable[[int, int], None]
    Shape: TypeAlias = tuple[int, int, int]
    Outcome: TypeAlias = tuple[int, Example | str]

logger = logging.getLogger(__name__)

# Records that wait for the writer: enough for it to wait for the disk meanwhile.
_AHEAD_BYTES: Final = 1 << 26
_CHUNKS_A_THREAD: Final = 64


@dataclass(frozen=True, slots=True)
class Report:
    """What a conversion did.

    Attributes:
        num_images: Images of the input.
        num_stored: Records in the database.
        num_resumed: Those of them that an earlier process had stored.
        num_unchanged: Those stored by this one that hold an image file as it was.
        shapes: How many records stored by this one have which shape.
        unreadable: Images left out.
        size_bytes: Size of the database's file.
    """

    num_images: int
    num_stored: int
    num_resumed: int
    num_unchanged: int
    shapes: dict[Shape, int]
    unreadable: tuple[Unreadable, ...]
    size_bytes: int


def convert(
    examples: Examples,
    database: Path,
    *,
    threads: int | None = None,
    check_size: bool = False,
    skip_unreadable: bool = False,
    resume: bool = False,
    files: dict[str, str] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Write a database of examples, in the order of their keys.

    It takes its name when it is whole. Whatever interrupts that leaves a folder beside it, of the
    same name with ``.partial`` behind it, which ``resume`` goes on with.

    Args:
        examples: What is stored.
        database: Folder to make; there must be nothing yet.
        threads: How many read; None for one a core. The result does not depend on it.
        check_size: Refuse records whose shape is not that of the first.
        skip_unreadable: Leave out images that cannot be read, instead of failing at the end.
        resume: Go on with what an interrupted conversion of the same input has left, if it has.
        files: Text files that go into the folder too: names and contents.
        progress: Called now and then with the images done and the images in all.

    Raises:
        UnreadableImagesError: Images cannot be read, and are not to be skipped.
        NothingConvertedError: None of them can be read.
        ChangedInputError: What an interrupted conversion has stored is of other content.
        ShapesDifferError: Shapes differ, and are not to.
        ConversionError: The disk is full, the place is taken, or no place to write.
    """
    num_threads = threads or len(os.sched_getaffinity(0))
    with Draft(database, {"format": 2, **examples.fingerprint()}, resume=resume) as draft:
        stored = frozenset(draft.keys())
        if stored:
            check_unchanged(draft, examples, stored, progress)
        todo: Sequence[int] = range(len(examples))
        if stored:
            todo = [index for index in todo if examples.key(index) not in stored]
        tally = _Tally(draft if check_size else None, num_resumed=len(stored))
        try:
            _store(draft, examples, todo, num_threads=num_threads, tally=tally, progress=progress)
        except ConversionError:
            raise  # which says what to do
        except KeyboardInterrupt:
            with suppress(ConversionError):
                draft.commit()  # what waits for the next commit may have taken minutes
            logger.warning(
                "%s: %d of %s stored; --resume goes on with it",
                draft.folder,
                draft.num_committed,  # the tally may be one ahead
                counted(len(examples), "record"),
            )
            raise
        except BaseException:
            logger.warning("%s: what is stored so far; --resume goes on with it", draft.folder)
            raise
        unreadable = tuple(tally.unreadable)
        if tally.num_stored == 0:
            draft.discard()
            raise NothingConvertedError(unreadable)
        if unreadable and not skip_unreadable:
            raise UnreadableImagesError(unreadable, len(examples))
        return tally.report(len(examples), draft.finish(files))


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
    with one_thread_a_call(), closing(_in_order(examples, todo, num_threads)) as chunks:
        for outcomes in chunks:
            for index, outcome in outcomes:
                if isinstance(outcome, Example):
                    tally.count(outcome, examples.name(index))
                    note = note_of(index, outcome.stamp)
                    draft.put(examples.key(index), outcome.value, note=note)
                else:
                    tally.unreadable.append(Unreadable(index, examples.name(index), outcome))
            num_done += len(outcomes)
            if progress is not None:
                progress(num_done, len(examples))
    draft.commit()


class _Tally:
    """Counts what is stored, and compares shapes where that is asked for."""

    def __init__(self, compare_with: Draft | None, *, num_resumed: int) -> None:
        self.unreadable: list[Unreadable] = []
        self._num_resumed = num_resumed
        self._num_unchanged = 0
        self._shapes: Counter[Shape] = Counter()
        self._draft = compare_with
        self._first: tuple[Shape, str] | None = None
        value = compare_with.first_value() if compare_with is not None else None
        if value is not None:
            shape = Examiner().examine(memoryview(value), decode=True).shape
            assert shape is not None, "it was read when it was stored"
            self._first = shape, "the first record"

    @property
    def num_stored(self) -> int:
        return self._num_resumed + self._shapes.total()

    def count(self, example: Example, name: str) -> None:
        """Count an example.

        Raises:
            ShapesDifferError: Its shape is not that of the first.
        """
        if self._draft is not None:
            if self._first is None:
                self._first = example.shape, name
            shape, first_name = self._first
            if example.shape != shape:
                raise ShapesDifferError(
                    f"{name}: is {_shown(example.shape)} (channels x height x width), but "
                    f"{first_name} is {_shown(shape)}, and --check-size asks for one shape; "
                    f"replace it and go on with --resume, or remove {self._draft.folder} and begin "
                    f"anew with --resize-height and --resize-width"
                )
        self._shapes[example.shape] += 1
        self._num_unchanged += example.unchanged

    def report(self, num_images: int, size_bytes: int) -> Report:
        """Return what was counted."""
        return Report(
            num_images=num_images,
            num_stored=self.num_stored,
            num_resumed=self._num_resumed,
            num_unchanged=self._num_unchanged,
            shapes=dict(self._shapes.most_common()),
            unreadable=tuple(self.unreadable),
            size_bytes=size_bytes,
        )


def _in_order(
    examples: Examples, todo: Sequence[int], num_threads: int
) -> Generator[list[Outcome]]:
    """Yield chunks of examples, or why one cannot be read, in order; threads read ahead."""
    waiting: deque[Future[list[Outcome]]] = deque()
    ended = threading.Event()  # so that Ctrl-C waits for the images begun, not for their chunks
    pace = _Pace(chunk=1, most_waiting=2 * num_threads)
    start = 0
    with ThreadPoolExecutor(num_threads, thread_name_prefix="ringfeed-convert") as pool:
        try:
            while start < len(todo):
                part = todo[start : start + pace.chunk]
                waiting.append(pool.submit(_read, examples, part, ended))
                start += pace.chunk
                if len(waiting) > pace.most_waiting:
                    outcomes = waiting.popleft().result()
                    pace = _pace(outcomes, examples.chunk, num_threads)
                    yield outcomes
            while waiting:
                yield waiting.popleft().result()
        finally:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _read(examples: Examples, indices: Sequence[int], ended: threading.Event) -> list[Outcome]:
    """Read some examples, on one of the threads; fewer where nobody wants them any more."""
    outcomes: list[Outcome] = []
    for index in indices:
        if ended.is_set():
            break
        try:
            outcomes.append((index, examples.read(index)))
        except UnreadableError as error:
            outcomes.append((index, str(error)))
    return outcomes


class _Pace(NamedTuple):
    """How far threads read ahead.

    Attributes:
        chunk: Examples that a thread reads at once.
        most_waiting: Chunks that are begun and not stored.
    """

    chunk: int
    most_waiting: int


def _pace(outcomes: Sequence[Outcome], chunk: int, num_threads: int) -> _Pace:
    """Return the pace for examples as large as some that were read.

    Twice as many chunks as threads keep all of them busy; beyond, it is bytes that count.
    """
    nbytes = sum(len(one.value) for _, one in outcomes if isinstance(one, Example))
    mean_bytes = nbytes // len(outcomes) + 1
    chunk = max(1, min(chunk, _AHEAD_BYTES // (2 * num_threads * mean_bytes)))
    most = _AHEAD_BYTES // (chunk * mean_bytes)
    return _Pace(chunk, max(num_threads + 1, min(most, _CHUNKS_A_THREAD * num_threads)))


def _shown(shape: Shape) -> str:
    return " x ".join(map(str, shape))
