"""Reading examples on all cores, ahead of the one writer, in their order."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

from prefetch._tools.convert.errors import UnreadableError
from prefetch._tools.convert.examples import Example
from prefetch._tools.step_thread import step_on_thread

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from concurrent.futures import Future
    from typing import TypeAlias

    from prefetch._tools.convert.examples import Examples

    Outcome: TypeAlias = tuple[int, Example | str]

# Records that wait for the writer: enough for it to wait for the disk meanwhile.
_AHEAD_BYTES: Final = 1 << 26
_CHUNKS_A_THREAD: Final = 64


def read_in_order(
    examples: Examples, todo: Sequence[int], num_threads: int
) -> Generator[list[Outcome]]:
    """Yield chunks of examples, or why one cannot be read, in order; threads read ahead."""
    ended = threading.Event()  # so that Ctrl-C waits for the images begun, not for their chunks
    return step_on_thread(
        lambda: _read_ahead(examples, todo, num_threads, ended), give_up=ended.set
    )


def _read_ahead(
    examples: Examples, todo: Sequence[int], num_threads: int, ended: threading.Event
) -> Generator[list[Outcome]]:
    """Read ahead, until all is read or no more is wanted."""
    waiting: deque[Future[list[Outcome]]] = deque()
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
    """Read some examples, on one of the threads; fewer once no more are wanted."""
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
