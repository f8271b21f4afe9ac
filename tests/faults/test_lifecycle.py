"""However a feed is left, no thread stays and nothing hangs.

What can only be seen from outside runs in a process of its own, with a deadline.
"""

from __future__ import annotations

import ast
import asyncio
import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import DeviceError, open_device
from memory.threads import ThreadStart
from prefetch._pipeline.part_filler import Filler
from prefetch._record.decode import ImageDecoder
from prefetch._ring.filling import Filling
from prefetch._ring.slot import Slot
from prefetch.caffe import Datum
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from prefetch._pipeline.prefetcher import Prefetcher

DEADLINE_S = 60


source = images_fixture(200)


def _run(body: str, source: Path, *, expect: int = 0, before: str = "") -> str:
    """Run Python code in a new process, some before all imports; SOURCE is the database."""
    imports = f"\nimport prefetch, sys, os, threading\nSOURCE = {str(source)!r}\n"
    code = textwrap.dedent(before) + imports + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == expect, done.stderr
    return done.stdout + done.stderr


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "ringfeed" in thread.name]


def test_two_hundred_early_breaks_leave_no_thread(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 8}) as feed:
        for epoch in range(200):
            for batch in feed:
                assert (batch.epoch, batch.number) == (epoch, 0)
                break
    assert _threads() == []


def test_opening_and_closing_two_hundred_feeds_leaves_no_thread(source: Path) -> None:
    for _ in range(200):
        with prefetch.open({"source": source, "batch_size": 8, "device": "simulated"}) as feed:
            next(iter(feed))
    assert _threads() == []


def test_a_collected_feed_stops_its_threads_and_warns(source: Path) -> None:
    feed = prefetch.open({"source": source})
    iterator = iter(feed)
    batch = next(iterator)
    readers = [thread for thread in threading.enumerate() if "ringfeed" in thread.name]
    assert readers
    with pytest.warns(ResourceWarning, match="collected while it was open"):  # noqa: PT031
        del feed, iterator
        gc.collect()
    for reader in readers:
        reader.join(timeout=DEADLINE_S)
    assert _threads() == []
    assert batch.label.numpy()[:2].tolist() == [0, 1]


def test_a_feed_that_was_never_asked_is_collected_too(source: Path) -> None:
    feed = prefetch.open({"source": source})
    with pytest.warns(ResourceWarning, match="collected while it was open"):  # noqa: PT031
        del feed
        gc.collect()


def test_the_loop_may_hold_the_only_reference(source: Path) -> None:
    loop = iter(prefetch.open({"source": source, "batch_size": 50}))
    assert [batch.number for batch in loop] == [0, 1, 2, 3]
    with pytest.warns(ResourceWarning, match="collected while it was open"):  # noqa: PT031
        del loop
        gc.collect()


def test_an_exception_in_the_loops_body_comes_out_and_the_feed_closes(source: Path) -> None:
    with (  # noqa: PT012
        pytest.raises(ZeroDivisionError),
        prefetch.open({"source": source, "batch_size": 8}) as feed,
    ):
        for _ in feed:
            1 / 0  # noqa: B018
    assert _threads() == []


def test_closing_from_another_thread_wakes_a_waiting_consumer(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 8, "max_batches_held": 400}) as feed:
        seen: list[prefetch.Batch] = []
        outcome: list[BaseException] = []

        def consume() -> None:
            try:
                while True:
                    seen.extend(feed)
                    seen.clear()
            except prefetch.FeedClosedError as error:
                outcome.append(error)

        consumer = threading.Thread(target=consume)
        consumer.start()
        while not feed.stats().batches:
            threading.Event().wait(0.001)
        feed.close()
        consumer.join(timeout=DEADLINE_S)
        assert not consumer.is_alive()
        assert len(outcome) == 1


def _num_waiting(prefetcher: Prefetcher) -> int:
    """Return how many readers have nothing to do, or sleep as spare ones."""
    schedule = prefetcher.coordinator.schedule
    return schedule.num_idle + schedule.spare.num


def test_wake_ups_to_stop_that_somebody_else_takes_in_reach_every_reader(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = prefetch.open({"source": source, "threads": 4})
    next(iter(feed)).release()
    prefetcher = feed._prefetcher
    while _num_waiting(prefetcher) < 4:
        threading.Event().wait(0.001)
    real = prefetcher.request_stop

    def stop_and_lose_the_wake_ups() -> None:
        real()
        feed.stats()  # takes in whatever is in the readers' queue

    monkeypatch.setattr(prefetcher, "request_stop", stop_and_lose_the_wake_ups)
    closer = threading.Thread(target=feed.close, daemon=True)
    closer.start()
    closer.join(timeout=DEADLINE_S / 4)
    assert not closer.is_alive()


def test_a_failed_open_leaves_nothing_and_a_good_one_follows(source: Path, tmp_path: Path) -> None:
    for _ in range(20):
        with pytest.raises(prefetch.DatabaseNotFoundError, match=str(tmp_path)):
            prefetch.open({"source": tmp_path / "nowhere"})
        with pytest.raises(prefetch.ConfigError):
            prefetch.open({"source": source, "transform": {"mean_file": tmp_path / "none"}})
    with prefetch.open({"source": source}) as feed:
        assert len(next(iter(feed))) == 64


def test_a_thread_that_cannot_start_is_an_error_and_not_a_hang(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = threading.Thread.start
    started = 0

    def start(thread: threading.Thread) -> None:
        nonlocal started
        started += 1
        if started == 3:
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    feed = prefetch.open({"source": source, "threads": 4})
    with pytest.raises(
        RuntimeError, match=r"can't start.*; set threads to 2, or allow the process"
    ):
        next(iter(feed))
    assert feed.closed
    assert _threads() == []


@pytest.mark.parametrize("threads", [1, 4])
def test_where_not_even_one_thread_starts_fewer_are_not_advised(
    source: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    feed = prefetch.open({"source": source, "threads": threads})
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(prefetch.ThreadStartError, match="new thread; allow the process more"):
        next(iter(feed))


def test_a_limit_of_address_space_that_allows_no_more_threads_is_told_with_the_cure(
    source: Path,
) -> None:
    printed = _run(
        """
        import resource, time
        prefetch.open({"source": SOURCE}).close()  # whatever is imported at its first use
        feed = prefetch.open({"source": SOURCE, "threads": 64})
        with open("/proc/self/statm") as statm:
            used_bytes = int(statm.read().split()[0]) * resource.getpagesize()
        limits = resource.getrlimit(resource.RLIMIT_AS)
        stack_bytes = resource.getrlimit(resource.RLIMIT_STACK)[0]
        assert 0 < stack_bytes < 1 << 30
        resource.setrlimit(resource.RLIMIT_AS, (used_bytes + 20 * stack_bytes, limits[1]))
        try:
            next(iter(feed))
        except prefetch.ThreadStartError as error:
            print(error)
            print(feed.closed, error.threads, 0 < error.number < 64)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        assert not [t for t in threading.enumerate() if "ringfeed" in t.name]
        with prefetch.open({"source": SOURCE, "threads": 2}) as feed:
            print(sum(len(batch) for batch in feed))
        """,
        source,
    )
    error, facts, total = printed.splitlines()
    assert "cannot be started" in error
    number = int(error.partition("ringfeed-reader-")[2].split()[0])
    assert f"set threads to {number}, or allow the process more threads (ulimit -u)" in error
    assert (facts, total) == ("True 64 True", "200")


def test_exit_without_close_neither_hangs_nor_complains(source: Path) -> None:
    _run(
        """
        feed = prefetch.open({"source": SOURCE, "device": "simulated", "threads": 4})
        batch = next(iter(feed))
        kept = batch.data.numpy()
        print("last line")
        """,
        source,
    )


def test_exit_in_the_middle_of_async_for_does_not_hang(source: Path) -> None:
    _run(
        """
        import asyncio
        async def main():
            feed = prefetch.open({"source": SOURCE, "batch_size": 4})
            async for batch in feed:
                break
            feed.close()
        asyncio.run(main())
        """,
        source,
    )


def test_sys_exit_in_the_loop_keeps_its_status(source: Path) -> None:
    _run(
        """
        for batch in prefetch.open({"source": SOURCE, "threads": 2}):
            sys.exit(7)
        """,
        source,
        expect=7,
    )


def _ends_by_ctrl_c(code: str, *, when: str, after_s: float = 0.0) -> str:
    """Interrupt a program some time after it has said a word; return its errors."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{when}\n"
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGINT, errors
    assert errors.rstrip().endswith("KeyboardInterrupt")
    return errors


@pytest.mark.parametrize("where", ["waiting", "computing"])
def test_ctrl_c_ends_the_program_as_it_ends_any_other(source: Path, where: str) -> None:
    waits = "held.append(batch)" if where == "waiting" else "sum(range(1000))"
    code = f"""
import prefetch, time
held = []
feed = prefetch.open({{"source": {str(source)!r}, "batch_size": 8, "max_batches_held": 10**6}})
print("ready", flush=True)
while True:
    for batch in feed:
        {waits}
        del held[5:]
"""
    _ends_by_ctrl_c(code, when="ready", after_s=0.3)


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_ctrl_c_in_next_ends_the_program_while_every_reader_is_in_the_middle_of_a_read(
    source: Path, device: str
) -> None:
    code = f"""
import os, prefetch, threading
from prefetch._transform.host import RecordTransformer
fill, is_slow = RecordTransformer.fill, threading.Event()
def slowly(*arguments):
    if is_slow.is_set():
        os.write(1, b"reading\\n")  # in one piece, whichever reader it is
        threading.Event().wait(1)  # close() waits for the read in progress
    return fill(*arguments)
RecordTransformer.fill = slowly
options = {{"source": {str(source)!r}, "batch_size": 8, "threads": 2, "device": {device!r}}}
with prefetch.open(options) as feed:
    iterator = iter(feed)
    next(iterator).release()
    is_slow.set()
    while True:
        next(iterator).release()
"""
    assert _ends_by_ctrl_c(code, when="reading").count("Traceback") == 1


class HeldDecoder:
    """Holds the first image that is decoded until it is told to go on, and notes all of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.decoded: list[bytes] = []
        self.begun, self.let_go = threading.Event(), threading.Event()
        real = ImageDecoder.decode

        def decode(decoder: ImageDecoder, data: memoryview) -> Any:
            self.decoded.append(bytes(data))
            self.begun.set()
            assert self.let_go.wait(DEADLINE_S)
            return real(decoder, data)

        monkeypatch.setattr(ImageDecoder, "decode", decode)


def _jpeg(number: int) -> bytes:
    """Return a picture whose header says its size: none is decoded before it is filled."""
    _, jpeg = cv2.imencode(".jpg", np.full((8, 8, 3), 5 * number, np.uint8))
    return jpeg.tobytes()


@pytest.fixture
def encoded(tmp_path: Path) -> Path:
    """Forty pictures."""
    records = [
        (b"%08d" % number, Datum(encoded=True, data=_jpeg(number), label=number))
        for number in range(40)
    ]
    return write_database(
        tmp_path / "encoded", [(key, datum.SerializeToString()) for key, datum in records]
    )


def _when_stopping(feed: prefetch.Feed) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not feed.closed:
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize(
    "options",
    [{}, {"device": "simulated", "transform": {"where": "device"}}],
    ids=["host", "device"],
)
def test_closing_waits_for_one_picture_and_not_for_the_batch(
    encoded: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    feed = prefetch.open({"source": encoded, "batch_size": 40, "threads": 1}, **options)
    held = HeldDecoder(monkeypatch)
    told: list[BaseException] = []

    def loop() -> None:
        try:
            next(iter(feed))
        except prefetch.PrefetchError as error:
            told.append(error)

    consumer = threading.Thread(target=loop)
    consumer.start()
    assert held.begun.wait(DEADLINE_S)
    closer = threading.Thread(target=feed.close)
    closer.start()
    _when_stopping(feed)
    held.let_go.set()
    closer.join(DEADLINE_S)
    consumer.join(DEADLINE_S)
    assert held.decoded == [_jpeg(0)]
    assert [type(error) for error in told] == [prefetch.FeedClosedError]
    assert feed.stats().batches == 0


def test_an_epoch_left_early_is_not_decoded_any_further(
    encoded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is anything of what was cut short ever served."""
    options = {"source": encoded, "batch_size": 10, "threads": 1, "prefetch": 1}
    with prefetch.open(options) as feed:
        first = iter(feed)
        labels = [next(first).label.numpy().tolist()]
        held = HeldDecoder(monkeypatch)
        first_of_next = iter(feed)
        waiter = threading.Thread(
            target=lambda: labels.append(next(first_of_next).label.numpy().tolist())
        )
        labels.append(labels[0])
        filling = None
        while filling is None:  # the batch that is being read ahead of the loop
            assert held.begun.wait(DEADLINE_S)
            fillings = feed._prefetcher.coordinator.schedule._filling
            filling = next((one for one in fillings if one.parts), None)
        waiter.start()
        deadline = time.monotonic() + DEADLINE_S
        while not filling.is_discarded:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        held.let_go.set()
        waiter.join(DEADLINE_S)
        assert labels == [list(range(10))] * 3
        # Of the batch that nobody wanted one, then those of the next epoch's first.
        assert held.decoded[:11] == [_jpeg(number) for number in (10, *range(10))]


def test_closing_does_not_wait_for_the_search_for_a_substitute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = list(fingerprinted_images(40))
    bad = [(key, b"\xff" * 9) for key, _ in records[1:39]]
    source = write_database(tmp_path / "bad", [records[0], *bad, records[39]])
    feed = prefetch.open({"source": source, "batch_size": 2, "threads": 1, "on_bad_record": "skip"})
    real, looks = Filler._refuse, 0

    def refuse(*arguments: Any) -> None:
        nonlocal looks
        looks += 1
        feed._prefetcher.request_stop()
        real(*arguments)

    monkeypatch.setattr(Filler, "_refuse", refuse)
    with pytest.raises(prefetch.FeedClosedError):
        next(iter(feed))
    feed.close()
    assert looks == 1


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize(
    ("owner", "name"), [(Slot, "take"), (Filling, "forget")], ids=["taken", "made"]
)
def test_ctrl_c_in_next_behind_the_taking_of_a_batch_does_not_lose_it(
    source: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, device: str
) -> None:
    """What is saved then, says what the loop has got; and the loop may go on."""
    with prefetch.open({"source": source, "batch_size": 8, "threads": 1}, device=device) as feed:
        iterator = iter(feed)
        assert next(iterator).number == 0
        interrupted = False
        real = getattr(owner, name)

        def interrupt(self: object) -> object:
            nonlocal interrupted
            is_mine = threading.get_ident() == threading.main_thread().ident
            if (
                is_mine
                and not interrupted
                and feed._prefetcher.coordinator.delivery.served.next == 2
            ):
                interrupted = True
                raise KeyboardInterrupt
            return real(self)

        monkeypatch.setattr(owner, name, interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        assert interrupted
        assert feed.state_dict()["served"] == 8
        assert (feed.stats().batches, feed.stats().samples) == (1, 8)
        assert next(iterator).number == 1
        assert feed.state_dict()["served"] == 16


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_closing_from_another_thread_while_readers_read_and_the_loop_runs(
    source: Path, device: str
) -> None:
    """Again and again, at any moment; the loop is told, and nothing of it is left."""

    def loop(feed: prefetch.Feed) -> None:
        while True:
            for batch in feed:
                assert len(batch) == 8
                batch.release()

    for wait_s in (0, 0.0005, 0.001, 0.002, 0.004):
        for _ in range(8):
            feed = prefetch.open({"source": source, "batch_size": 8, "threads": 3}, device=device)
            closer = threading.Timer(wait_s, feed.close)
            closer.start()
            with pytest.raises(prefetch.FeedClosedError):
                loop(feed)
            closer.join(timeout=DEADLINE_S)
            assert not closer.is_alive()
            assert _threads() == []


def test_a_task_cancelled_in_the_middle_of_async_for_leaves_nothing(source: Path) -> None:
    output = _run(
        """
        import asyncio
        async def loop(feed):
            while True:
                async for batch in feed:
                    batch.release()
        async def main():
            files = len(os.listdir("/proc/self/fd"))
            for wait_s in (0, 0.001, 0.003, 0.01):
                with prefetch.open({"source": SOURCE, "batch_size": 8, "threads": 2}) as feed:
                    task = asyncio.create_task(loop(feed))
                    await asyncio.sleep(wait_s)
                    task.cancel()
                    try:
                        await task
                    except asyncio.CancelledError:
                        pass
                    taken = feed.stats().batches
                    batch = await anext(aiter(feed))  # the feed is as good as before
                    assert feed.stats().batches == taken + 1
            print(len(os.listdir("/proc/self/fd")) - files)
            print([t.name for t in threading.enumerate() if "ringfeed" in t.name])
        asyncio.run(main())
        """,
        source,
    )
    assert output == "0\n[]\n"


def test_a_fork_with_an_open_feed_is_an_error_in_the_child_and_harmless_in_the_parent(
    source: Path,
) -> None:
    output = _run(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads, as users do
        feed = prefetch.open({"source": SOURCE, "batch_size": 8})
        iterator = iter(feed)
        next(iterator)
        child = os.fork()
        if child == 0:
            try:
                next(iterator)
            except prefetch.FeedClosedError as error:
                print("child:", error, flush=True)
            feed.close()
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert next(iterator).number == 1
        feed.close()
        """,
        source,
    )
    assert "open the feed in the child" in output


def test_a_fork_while_a_reader_is_at_the_lock_lets_the_child_close(source: Path) -> None:
    """The lock that it inherits is never let go of: the thread that holds it is the parent's."""
    _run(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        feed = prefetch.open({"source": SOURCE, "batch_size": 8})
        next(iter(feed))
        with feed._prefetcher.coordinator.lock:
            child = os.fork()
            if child == 0:
                feed.close()
                os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        feed.close()
        """,
        source,
    )


async def test_closing_a_loop_with_waiting_tasks_leaves_the_feed_as_it_was(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 8}) as feed:
        loop = asyncio.new_event_loop()
        future = feed._prefetcher.coordinator.gates.future(loop)
        loop.close()
        feed._prefetcher.coordinator.gates.notify_all()
        assert not future.done()
        assert (await _anext(feed)).number == 0  # type: ignore[attr-defined]


def test_ctrl_c_in_a_feeds_finalizer_leaves_no_reader(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: prefetch.Feed) -> None:
        raise KeyboardInterrupt

    # As Python's own, it keeps nothing; pytest's would keep the feed with the traceback.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    monkeypatch.setattr(prefetch.Feed, "__del__", interrupted)
    feed = prefetch.open({"source": source, "batch_size": 8, "threads": 2})
    next(iter(feed))
    readers = [thread for thread in threading.enumerate() if "ringfeed" in thread.name]
    assert readers
    del feed
    gc.collect()
    for reader in readers:
        reader.join(DEADLINE_S)
    assert _threads() == []


def test_readers_have_ended_before_the_interpreter_does(source: Path) -> None:
    """Daemons are no more waited for by Python, and LMDB's memory goes with it."""
    printed = _run(
        """
        feed = prefetch.open({"source": SOURCE, "batch_size": 4, "threads": 3})
        iterator = iter(feed)
        next(iterator)
        print(len([t for t in threading.enumerate() if "ringfeed" in t.name]))
        """,
        source,
        before="""
        import atexit, threading
        atexit.register(  # hooks run in the reverse of their order
            lambda: print([t.name for t in threading.enumerate() if "ringfeed" in t.name])
        )
        """,
    )
    assert printed == "3\n[]\n"


@pytest.mark.parametrize("option", ["per_record", "per_batch"])
def test_a_function_that_never_returns_does_not_keep_the_interpreter(
    source: Path, option: str
) -> None:
    printed = _run(
        f"""
        import logging
        from prefetch._pipeline import prefetcher
        logging.basicConfig()
        prefetcher._AT_EXIT_S = 0.1
        began = threading.Event()
        def forever(images, labels, rng):
            began.set()
            threading.Event().wait()
        options = {{"source": SOURCE, "batch_size": 4, "threads": 1, "{option}": forever}}
        feed = prefetch.open(options)
        other = prefetch.open({{"source": SOURCE, "batch_size": 4}})
        next(iter(other))
        threading.Thread(target=next, args=(iter(feed),), daemon=True).start()
        assert began.wait(60)
        """,
        source,
        before="""
        import atexit, threading
        atexit.register(  # hooks run in the reverse of their order
            lambda: print([t.name for t in threading.enumerate() if "ringfeed" in t.name])
        )
        """,
    )
    assert "['ringfeed-reader-0']\n" in printed
    assert f"close() waits for {option} `__main__:forever` on 1 thread;" in printed


def test_a_consumer_that_is_slow_for_a_while_loses_nothing(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 20, "prefetch": 2}) as feed:
        seen: list[int] = []
        for batch in feed:
            if batch.number == 3:
                time.sleep(0.5)
            seen += batch.label.numpy().tolist()
        assert seen == list(range(200))


def test_file_descriptors_are_back_where_they_were(source: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    with prefetch.open({"source": source}) as feed:
        next(iter(feed))
    before = count()
    for _ in range(50):
        with prefetch.open({"source": source, "device": "simulated", "shuffle": True}) as feed:
            next(iter(feed))
    assert count() == before


FINDERS: dict[str, Callable[[prefetch.Feed], object]] = {
    "repr": repr,
    "stats": lambda feed: feed.stats(),
    "len": len,
    "epoch": lambda feed: feed.epoch,
}


@pytest.mark.parametrize("finder", FINDERS)
def test_a_closed_feed_still_answers_questions(source: Path, finder: str) -> None:
    feed = prefetch.open({"source": source})
    next(iter(feed))
    feed.close()
    assert FINDERS[finder](feed) is not None


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_batch_refuses_to_be_copied_and_says_what_to_keep(
    source: Path, duplicate: Callable[[object], object]
) -> None:
    with prefetch.open({"source": source, "batch_size": 8}) as feed:
        batch = next(iter(feed))
        with pytest.raises(TypeError, match=r"numpy\(\).copy\(\)"):
            duplicate(batch)
        assert batch.label.numpy()[0] == 0


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_feed_refuses_to_be_copied_and_lives_on(
    source: Path, duplicate: Callable[[object], object]
) -> None:
    with prefetch.open({"source": source, "batch_size": 8}) as feed:
        iterator = iter(feed)
        next(iterator)
        with pytest.raises(TypeError, match="open another one"):
            duplicate(feed)
        assert next(iterator).number == 1


@pytest.mark.parametrize("kind", ["for", "async for"])
def test_what_has_closed_a_feed_is_said_to_whoever_asks_it_later(tmp_path: Path, kind: str) -> None:
    bad = write_database(tmp_path / "bad", [(b"key", b"\xff" * 9)])
    with prefetch.open({"source": bad}) as feed:
        with pytest.raises(prefetch.RecordError):
            next(iter(feed)) if kind == "for" else asyncio.run(_anext(feed))
        why = "the feed is closed since next\\(\\) raised RecordError; open another"
        with pytest.raises(prefetch.FeedClosedError, match=why):
            next(iter(feed))
        with pytest.raises(prefetch.FeedClosedError, match=why):
            feed.load_state_dict(feed.state_dict())
    feed = prefetch.open({"source": bad})
    feed.close()
    with pytest.raises(prefetch.FeedClosedError, match="the feed is closed; open another one"):
        next(iter(feed))


async def _anext(feed: prefetch.Feed) -> object:
    return await anext(aiter(feed))


@pytest.mark.parametrize("starts_before", [True, False])
@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_ctrl_c_while_the_readers_start_leaves_the_feed_open(
    source: Path, monkeypatch: pytest.MonkeyPatch, device: str, *, starts_before: bool
) -> None:
    """It may come before there are any, or when they wait for work already."""
    settle = ThreadStart.settle

    def interrupted(start: ThreadStart) -> None:
        if threading.current_thread() is not threading.main_thread():
            settle(start)  # a reader starts its stream's
            return
        if starts_before:
            settle(start)
            while _num_waiting(feed._prefetcher) < 3:
                time.sleep(0.001)  # until the ring is full
        raise KeyboardInterrupt

    with prefetch.open({"source": source, "batch_size": 8, "threads": 3}, device=device) as feed:
        loop = iter(feed)
        with monkeypatch.context() as patch:
            patch.setattr(ThreadStart, "settle", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(loop)
        assert not feed.closed
        assert [batch.number for batch in loop] == list(range(25))
    assert _threads() == []


def test_closing_waits_for_a_start_that_ctrl_c_has_interrupted(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise readers would begin behind the back of a feed that is closed."""
    may_start, starts = threading.Event(), threading.Thread.start
    settles, calls = ThreadStart.settle, 0

    def late(thread: threading.Thread) -> None:
        if thread.name.startswith("ringfeed"):
            assert may_start.wait(60)
        starts(thread)

    def interrupted(start: ThreadStart) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyboardInterrupt
        settles(start)

    feed = prefetch.open({"source": source, "threads": 3})
    monkeypatch.setattr(threading.Thread, "start", late)
    monkeypatch.setattr(ThreadStart, "settle", interrupted)
    timer = threading.Timer(0.2, may_start.set)
    starts(timer)
    with pytest.raises(KeyboardInterrupt):
        next(iter(feed))
    feed.close()
    assert may_start.is_set()
    timer.join()
    assert _threads() == []


# Python 3.13 has another name for it.
_STARTER = next(
    name for name in ("_start_joinable_thread", "_start_new_thread") if hasattr(threading, name)
)


@pytest.mark.parametrize("step", [_STARTER, "_active_limbo_lock", "Event"])
@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_no_signal_comes_in_between_the_steps_of_a_threads_start(
    source: Path, monkeypatch: pytest.MonkeyPatch, device: str, step: str
) -> None:
    """Each of them raises in the main thread, as Ctrl-C there would."""
    real = getattr(threading, step)

    class Interrupted:
        def __getattr__(self, name: str) -> object:
            _interrupt_main_thread()
            return getattr(real, name)

        def __call__(self, *args: object, **options: object) -> object:
            if step != "Event":  # each thread makes one, and waits for it as it starts
                _interrupt_main_thread()
                return real(*args, **options)
            return _Event()

        def __enter__(self) -> object:
            _interrupt_main_thread()
            return real.__enter__()

        def __exit__(self, *args: object) -> None:
            real.__exit__(*args)

    class _Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            _interrupt_main_thread()
            return super().wait(timeout)

    with prefetch.open({"source": source, "threads": 2}, device=device) as feed:
        with monkeypatch.context() as patch:
            patch.setattr(threading, step, Interrupted())
            batch = next(iter(feed))
        assert len(batch) == 64


def _interrupt_main_thread() -> None:
    if threading.get_ident() == threading.main_thread().ident:
        raise KeyboardInterrupt


@pytest.mark.parametrize("given", ["mapping", "file"])
def test_ctrl_c_at_any_moment_of_opening_comes_out_and_hangs_nothing(
    source: Path, given: str
) -> None:
    """As itself: a library that calls Python may turn it into an error of its own."""
    (source / "feed.yaml").write_text("source: .\ntransform:\n  scale: 0.5\n")
    printed = _run(
        f"""
        import collections, random, signal
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        sys.unraisablehook = lambda _: None  # of a finalizer, it is printed and no more
        draw = random.Random(5)
        came_out = collections.Counter()
        config = {{"source": SOURCE}} if {given == "mapping"} else SOURCE + "/feed.yaml"
        for _ in range(1500):
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 2e-3))
                prefetch.open(config).close()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except BaseException as error:
                signal.setitimer(signal.ITIMER_REAL, 0)
                came_out[type(error).__name__] += 1
        os.write(1, f"{{len(os.listdir('/proc/self/fd'))}} {{dict(came_out)}}".encode())
        os._exit(0)
        """,
        source,
    )
    num_files, _, came_out = printed.partition(" ")
    counts = ast.literal_eval(came_out)
    assert list(counts) == ["KeyboardInterrupt"]
    assert counts["KeyboardInterrupt"] > 100
    assert int(num_files) < 20


def test_a_batch_held_over_a_fork_whose_push_is_in_flight_is_an_error_in_the_child(
    source: Path,
) -> None:
    gate = threading.Event()
    device = open_device("simulated", latency_s=1.0, sleep=lambda _: gate.wait())
    with device, prefetch.open({"source": source, "batch_size": 2}, device=device) as feed:
        batch = next(iter(feed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads, and a fork
            child = os.fork()
        if child == 0:
            signal.alarm(20)  # ends a child that waits
            try:
                batch.data.numpy()
            except DeviceError as error:
                os._exit(7 if "when the process was forked" in str(error) else 8)
            os._exit(9)
        gate.set()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert (batch.data.numpy()[:, 0, 0, 0] == batch.indices).all()
