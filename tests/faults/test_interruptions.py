"""Signal handlers and finalizers that call the feed, or raise, in the middle of its own calls.

A trace function raises a real signal at one line after the other of everything that a call runs on
its thread; a collector that comes at every allocation runs finalizers everywhere.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import itertools
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from databases import images_fixture

import prefetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType

DEADLINE_S = 50
SIGNAL = signal.SIGUSR1


class Stop(Exception):  # noqa: N818 - no error, as a time-out is none
    """What a handler raises."""


source = images_fixture(20)


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    """End the process with everybody's traceback: what hangs here, hangs for ever."""
    faulthandler.dump_traceback_later(2 * DEADLINE_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@contextmanager
def handler(call: Callable[[], object]) -> Iterator[None]:
    before = signal.signal(SIGNAL, lambda *_: call())
    try:
        yield
    finally:
        signal.signal(SIGNAL, before)


class Tracer:
    """Raises the signal at the n-th line that this thread runs in the packages.

    Args:
        line: Which line.
        packages: Where lines count. What raises is kept out of ``memory``: unlike a signal, a trace
            function comes between a ``with`` block's end and its lock's release.

    Attributes:
        has_fired: Whether there was such a line.
    """

    def __init__(self, line: int, packages: tuple[str, ...]) -> None:
        self.has_fired = False
        self._left = line
        self._packages = packages

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(self._packages):
            return None
        if event == "line" and not self.has_fired:
            self._left -= 1
            if not self._left:
                self.has_fired = True
                signal.raise_signal(SIGNAL)
        return self._trace

    def __enter__(self) -> None:
        gc.disable()  # what is raised in a finalizer of the feed before, nobody would see
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        gc.enable()


def lines(*packages: str) -> Iterator[Tracer]:
    """Yield tracers of every line there is."""
    for line in itertools.count(1):
        tracer = Tracer(line, packages or ("prefetch.",))
        yield tracer
        if not tracer.has_fired:
            assert line > 1
            return


def opened(source: Path, device: str = "cpu", **options: Any) -> prefetch.Feed:
    return prefetch.open(
        {"source": source, "batch_size": 2, "threads": 1}, device=device, **options
    )


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_what_a_handler_raises_at_any_line_of_next_leaves_the_feed_open(
    source: Path, device: str, *, first: bool
) -> None:
    """And the batch is the next one; what the handler has saved says so."""
    for tracer in lines():
        saved: list[dict[str, Any]] = []
        with opened(source, device) as feed:

            def stop(feed: prefetch.Feed = feed, saved: Any = saved) -> None:
                saved.append(feed.state_dict())
                feed.stats()
                repr(feed)
                raise Stop

            loop = iter(feed)
            numbers = [] if first else [next(loop).number]
            with handler(stop):
                try:
                    with tracer:
                        numbers.append(next(loop).number)
                except Stop:
                    assert saved[0]["served"] == 2 * len(numbers)
                else:
                    assert not saved
            assert not feed.closed
            assert feed.state_dict()["served"] == 2 * len(numbers)
            assert feed.stats().batches == len(numbers)
            numbers += [batch.number for batch in loop]
            assert numbers == list(range(10))
            assert [batch.number for batch in feed] == list(range(10))


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_what_a_handler_raises_as_a_batch_is_copied_into_an_array_loses_none(
    source: Path, device: str
) -> None:
    with opened(source, "cpu") as feed:
        batch = next(iter(feed))
        images = np.empty(batch.data.shape, batch.data.dtype)
        del batch
    for tracer in lines("prefetch._feed.into"):
        with opened(source, device) as feed, handler(_raise_stop):
            loop = iter(feed.into(images))
            numbers = [next(loop).number]
            try:
                with tracer:
                    numbers.append(next(loop).number)
            except Stop:
                assert not feed.closed
            assert feed.state_dict()["served"] == 2 * len(numbers)
            numbers += [filled.number for filled in loop]
            assert numbers == list(range(10))


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_what_a_handler_raises_at_any_line_of_async_for_leaves_the_feed_open(
    source: Path, device: str
) -> None:
    async def run(tracer: Tracer) -> None:
        with opened(source, device) as feed, handler(_raise_stop):
            loop = aiter(feed)
            numbers = [(await anext(loop)).number]
            while feed.stats().slots_ready < feed.stats().prefetch:
                time.sleep(0.0005)  # noqa: ASYNC251 - nothing else runs on the loop
            try:
                with tracer:
                    numbers.append((await anext(loop)).number)
            except Stop:
                assert not feed.closed
            assert feed.state_dict()["served"] == 2 * len(numbers)
            numbers += [batch.number async for batch in loop]
            assert numbers == list(range(10))

    for tracer in lines():
        asyncio.run(run(tracer))


def _raise_stop() -> None:
    raise Stop


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("error", [None, Stop, SystemExit])
def test_a_handler_that_saves_and_closes_at_any_line_of_next_hangs_nowhere(
    source: Path, device: str, error: type[BaseException] | None
) -> None:
    for tracer in lines("prefetch.", *(["memory."] if error is None else [])):
        feed = opened(source, device)
        loop = iter(feed)
        next(loop)
        saved: list[dict[str, Any]] = []

        def on_term(feed: prefetch.Feed = feed, saved: Any = saved) -> None:
            saved.append(feed.state_dict())
            feed.close()
            if error is not None:
                raise error

        numbers = [0]
        with handler(on_term):
            try:
                with tracer:
                    numbers.append(next(loop).number)
            except (Stop, SystemExit, prefetch.FeedClosedError):
                pass
        feed.close()
        assert not [thread for thread in threading.enumerate() if "ringfeed" in thread.name]
        for state in saved:
            assert state["served"] == 2
            with opened(source) as other:
                other.load_state_dict(state)
                assert next(iter(other)).number == 1


CALLS: dict[str, Callable[[prefetch.Feed, Path], object]] = {
    "stats": lambda feed, _: feed.stats(),
    "repr": lambda feed, _: repr(feed),
    "state_dict": lambda feed, _: feed.state_dict(),
    "load_state_dict": lambda feed, _: feed.load_state_dict(feed.state_dict()),
    "close": lambda feed, _: feed.close(),
    "iter": lambda feed, _: iter(feed),
    "new loop": lambda feed, _: next(iter(feed)),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of what is interrupted as it is returned
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_a_handler_may_come_at_any_line_of_any_call(
    source: Path, name: str, *, raises: bool
) -> None:
    call = CALLS[name]
    opens = name == "load_state_dict"  # a database: thousands of lines
    for tracer in lines("prefetch._feed.feed", "prefetch._pre") if opens else lines():
        feed = opened(source)
        next(iter(feed))

        def look(feed: prefetch.Feed = feed) -> None:
            feed.state_dict()
            feed.stats()
            repr(feed)
            if raises:
                raise Stop
            feed.close()

        with handler(look):
            try:
                with tracer:
                    call(feed, source)
            except (Stop, prefetch.FeedClosedError, prefetch.StaleIteratorError):
                pass
        if not feed.closed:
            list(feed)
        feed.close()
        assert not [thread for thread in threading.enumerate() if "ringfeed" in thread.name]


@pytest.mark.parametrize("call", ["close", "stats", "state_dict", "__repr__"])
@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_a_finalizer_may_call_the_feed_wherever_the_collector_comes(
    source: Path, device: str, call: str
) -> None:
    finalized = 0

    class Loader:
        def __init__(self, feed: prefetch.Feed) -> None:
            self.feed, self.me = feed, self

        def __del__(self) -> None:
            nonlocal finalized
            finalized += 1
            getattr(self.feed, call)()

    before = gc.get_threshold()
    gc.set_threshold(1, 2, 2)
    try:
        for _ in range(3):
            with opened(source, device) as feed:
                try:
                    for _ in range(2):
                        for _ in feed:
                            Loader(feed)
                except prefetch.FeedClosedError:
                    assert call == "close"
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert finalized > 0


def test_next_in_the_middle_of_another_call_of_the_thread_is_refused_and_harmless(
    source: Path,
) -> None:
    """Or it comes between two batches, where it may."""
    num_refused = 0
    for tracer in lines():
        numbers: list[int] = []
        with opened(source, prefetch=10) as feed:
            loop = iter(feed)
            next(loop)

            def take(loop: Any = loop, numbers: list[int] = numbers) -> None:
                nonlocal num_refused
                try:
                    numbers.append(next(loop).number)
                except prefetch.FeedBusyError:
                    num_refused += 1

            with handler(take), tracer:
                numbers.append(next(loop).number)
            numbers += [batch.number for batch in loop]
            assert sorted(numbers) == list(range(1, 10))
    assert num_refused > 0


def test_closing_while_next_hands_over_is_told_as_such(source: Path) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for turn in range(60):
            feed = opened(source, "simulated" if turn % 2 else "cpu", epochs=None)
            began = threading.Event()

            def close(feed: prefetch.Feed = feed, began: threading.Event = began) -> None:
                began.wait(DEADLINE_S)
                feed.close()

            closer = threading.Thread(target=close)
            closer.start()

            def loop(feed: prefetch.Feed = feed, began: threading.Event = began) -> None:
                while True:
                    for _ in feed:
                        began.set()

            with pytest.raises(prefetch.FeedClosedError):
                loop()
            closer.join(DEADLINE_S)
            assert not closer.is_alive()
    finally:
        sys.setswitchinterval(interval)
