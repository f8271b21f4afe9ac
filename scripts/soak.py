"""Run feeds for some minutes as no test does: random options, faults, breaks and resumes.

    soak.py [DATABASE ...] [--seconds 180] [--seed 0] [--json FILE]

Each round opens a feed on a database made here, or on one of those given, with random options, and
leaves it in a random way: at an epoch's end, by a break, an exception, a close from another thread,
a failing device, or dropped without a close. Half of them are saved, by way of JSON, and resumed
with other threads, depth and batch size. Every sample is compared with its record, read without
ringfeed, and with what was served for the same seed, epoch and place before. After each round no
thread, file or buffer may be left, and over all rounds memory must be flat.

Ctrl-C ends it after the round at hand, with its summary. With --json the summary is one object:

    format     1
    seed       the seed; with it, the same rounds are run again
    elapsed_s  how long it ran
    rounds     how many rounds
    batches, samples   how many were checked
    resumes    how many rounds went on where an earlier one had been saved
    endings    how often each way of leaving a feed was taken
    faults     how often an injected fault was met
    memory     {samples, early_bytes, late_bytes: anonymous memory, as medians of the second and the
               last quarter of the rounds; flat: whether it grew by less than the limit, null where
               there were too few rounds; limit_bytes}
    problems   what was wrong, in words; empty if nothing was

Exit status: 0 if there were no problems and memory was flat, else 1; a round that hangs for two
minutes ends the process with the stacks of all threads.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import dataclasses
import faulthandler
import gc
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import memory
import prefetch
from memory.testing import FailingDevice, live_buffers
from soak_model import Database, MismatchError, Model, make_databases, read_database

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory import Device

_HANG_S = 120.0
_GROWTH_LIMIT_BYTES = 8 << 20
_ROUNDS_FOR_MEMORY = 40
_MOST_BATCHES = 100
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # of glibc's malloc.h
_ENDINGS = ("epochs", "break", "exception", "close", "close elsewhere", "drop", "async")
_FAULTS = ("alloc_host", "alloc_device", "make_stream", "copy_to_device", "record", "wait")


@dataclasses.dataclass
class Summary:
    """What there is to tell; see the module."""

    seed: int
    format: int = 1
    elapsed_s: float = 0.0
    rounds: int = 0
    batches: int = 0
    samples: int = 0
    resumes: int = 0
    endings: Counter[str] = dataclasses.field(default_factory=Counter)
    faults: Counter[str] = dataclasses.field(default_factory=Counter)
    memory: dict[str, Any] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing was wrong."""
        return not self.problems and self.memory.get("flat") is not False


class _BodyError(Exception):
    """What the loop's body raises on purpose."""


@dataclasses.dataclass
class Cursor:
    """Where the consumer is by the soak's own count.

    Attributes:
        num_records: Records of an epoch.
        wrap: Whether batches go on into the next epoch.
        epoch: The epoch.
        served: Samples of it that were taken.
    """

    num_records: int
    wrap: bool
    epoch: int = 0
    served: int = 0

    def advance(self, count: int) -> list[tuple[int, int]]:
        """Return the places of the next samples, and go on behind them."""
        places = []
        for _ in range(count):
            places.append((self.epoch, self.served))
            self.served += 1
            if self.wrap and self.served == self.num_records:
                self.end_epoch()
        return places

    def end_epoch(self) -> None:
        """Go on at the start of the next epoch."""
        self.epoch, self.served = self.epoch + 1, 0


class Soak:
    """Runs rounds; keeps the model and the summary.

    Args:
        databases: What is read.
        seed: Decides about everything that is drawn.
    """

    def __init__(self, databases: Sequence[Database], *, seed: int) -> None:
        self.summary = Summary(seed)
        self._databases = databases
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._model = Model()

    def run_round(self) -> None:
        """Run one feed, and half of the time a second one that goes on where it was left."""
        database = self._random.choice(self._databases)
        options = self._draw_options(database)
        cursor = Cursor(len(database.images), wrap=options["last_batch"] == "wrap")
        try:
            state = self._run_feed(database, options, cursor, None)
            if self._random.random() < 0.5:
                state = json.loads(json.dumps(state))
                self.summary.resumes += 1
                self._run_feed(database, {**options, **self._draw_free_options()}, cursor, state)
        except Exception as error:  # noqa: BLE001 - the soak goes on, and fails at its end
            self.summary.problems.append(
                f"round {self.summary.rounds}: {type(error).__name__}: {error}; {options}"
            )
        self.summary.rounds += 1
        self.summary.samples = self._model.checked

    def _draw_options(self, database: Database) -> dict[str, Any]:
        draw = self._random
        crops = [database.least_side - 3, database.least_side]
        if len(database.shapes) == 1:
            crops.append(0)
        return {
            "source": database.path,
            "subset": {"start": 0, "stop": len(database.images)},
            "last_batch": draw.choice(["partial", "wrap"]),
            "phase": draw.choice(["train", "test"]),
            "shuffle": draw.random() < 0.5,
            "seed": draw.choice([1, 2]),
            "rng": draw.choice(["counter", "counter", "caffe"])
            if not database.has_bad
            else "counter",
            "on_bad_record": "skip",
            "transform": {
                "crop_size": draw.choice(crops),
                "mirror": draw.random() < 0.5,
                "mean_value": [draw.choice([0.0, 100.5])],
                "scale": draw.choice([1.0, 0.017]),
            },
            **self._draw_free_options(),
        }

    def _draw_free_options(self) -> dict[str, Any]:
        """Draw options that change no sample, and may change at a resume."""
        draw = self._random
        return {
            "batch_size": draw.choice([1, 3, 8, 20, 150]),
            "prefetch": draw.choice([1, 2, 4]),
            "threads": draw.choice([1, 2, 3, 8]),
            "max_batches_held": 6,
        }

    @contextlib.contextmanager
    def _draw_device(self) -> Iterator[Device]:
        """Give a device: none of its own, or a simulated one, which may fail at some call."""
        draw = self._random
        if draw.random() < 0.5:
            yield memory.open_device("cpu")
            return
        latency_s = draw.choice([0.0, 0.0005])
        device = memory.open_device("simulated", latency_s=latency_s)
        fail = {draw.choice(_FAULTS): draw.randint(1, 40)} if draw.random() < 0.4 else {}
        with FailingDevice(device, fail=fail) as failing:
            yield failing
            if failing.num_failures:
                self.summary.faults.update(fail.keys())

    def _run_feed(
        self,
        database: Database,
        options: dict[str, Any],
        cursor: Cursor,
        state: dict[str, Any] | None,
    ) -> dict[str, Any]:
        """Open, use and leave a feed; return its last state."""
        ending = self._random.choice(_ENDINGS)
        self.summary.endings[ending] += 1
        gc.collect()
        before = _left_over()
        with self._draw_device() as device:
            feed = prefetch.open(options, device=device)
            try:
                if state is not None:
                    feed.load_state_dict(state)
                self._consume(feed, database, options, cursor, ending)
            except memory.SyncedMemoryError:
                if not (isinstance(device, FailingDevice) and device.num_failures):
                    raise
            except _BodyError:
                pass
            except BaseException:
                feed.close()
                raise
            state = feed.state_dict()
            if ending == "drop":
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ResourceWarning)
                    del feed
                    gc.collect()
            else:
                feed.close()
                del feed
        self._check_state(state, cursor)
        self._check_left_over(before)
        return state

    def _consume(
        self,
        feed: prefetch.Feed,
        database: Database,
        options: dict[str, Any],
        cursor: Cursor,
        ending: str,
    ) -> None:
        """Take batches, hold some of them for a while, and stop as the ending says."""
        per_epoch = max(1, cursor.num_records // options["batch_size"])
        num_left = self._random.randint(1, min(2 * per_epoch, _MOST_BATCHES))
        held: list[tuple[Any, bytes]] = []
        for batch in _batches(feed, cursor, use_async=ending == "async"):
            self._model.check(database, options, cursor.advance(len(batch)), batch)
            self.summary.batches += 1
            if self._random.random() < 0.3:
                array = batch.data.numpy(writable=False)
                held.append((array, array.tobytes()))
                if len(held) > 3:
                    _check_unchanged(held.pop(0))
                del array
            del batch
            num_left -= 1
            if num_left <= 0:
                break
        if ending == "exception":
            raise _BodyError
        if ending == "close elsewhere":
            closer = threading.Thread(target=feed.close)
            closer.start()
            closer.join()
        elif ending == "close":
            feed.close()
        for one in held:
            _check_unchanged(one)

    @staticmethod
    def _check_state(state: dict[str, Any], cursor: Cursor) -> None:
        expected = (cursor.epoch, cursor.served)
        if cursor.served == cursor.num_records:
            expected = (cursor.epoch + 1, 0)
        if (state["epoch"], state["served"]) != expected:
            raise MismatchError(
                f"the state says epoch {state['epoch']}, {state['served']} served; taken were "
                f"{expected}"
            )
        cursor.epoch, cursor.served = expected

    @staticmethod
    def _check_left_over(before: tuple[object, ...]) -> None:
        gc.collect()
        deadline_s = time.monotonic() + 20
        while (after := _left_over()) != before and time.monotonic() < deadline_s:
            time.sleep(0.01)  # threads of a dropped feed end by themselves
            gc.collect()
        if after != before:
            raise MismatchError(f"left over: before {before}, after {after}")


def _batches(feed: prefetch.Feed, cursor: Cursor, *, use_async: bool) -> Iterator[prefetch.Batch]:
    """Yield batches without end; the cursor is told of each epoch's end."""
    while True:
        if use_async:
            yield from _async_batches(feed)
        else:
            yield from feed
        cursor.end_epoch()


def _async_batches(feed: prefetch.Feed) -> Iterator[prefetch.Batch]:
    """Take the batches of an epoch through an event loop."""
    with asyncio.Runner() as runner:
        batches = aiter(feed)

        async def take() -> prefetch.Batch | None:
            return await anext(batches, None)

        while (batch := runner.run(take())) is not None:
            yield batch
            del batch


def _check_unchanged(held: tuple[Any, bytes]) -> None:
    array, content = held
    if array.tobytes() != content:
        raise MismatchError("a batch changed while it was held")


def _left_over() -> tuple[object, ...]:
    """Return the threads, open files and buffers that there are."""
    names = sorted(thread.name for thread in threading.enumerate())
    return names, len(os.listdir("/proc/self/fd")), live_buffers()  # noqa: PTH208 - a count


def _anonymous_bytes() -> int:
    """Return the process's own memory in bytes: no mapped files, none of malloc's reserve."""
    ctypes.CDLL(None).malloc_trim(0)
    text = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    line = next(line for line in text.splitlines() if line.startswith("Anonymous:"))
    return int(line.split()[1]) * 1024


def _give_memory_back_at_once() -> None:
    """Have malloc keep little: what it holds of past rounds would look like a leak."""
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, 1 << 16)
    libc.mallopt(_M_ARENA_MAX, 2)


def _judge_memory(samples: Sequence[int]) -> dict[str, Any]:
    """Compare the second quarter of the rounds with the last: the first is for warming up."""
    quarter = len(samples) // 4
    judged = len(samples) >= _ROUNDS_FOR_MEMORY
    early = int(statistics.median(samples[quarter : 2 * quarter])) if judged else None
    late = int(statistics.median(samples[-quarter:])) if judged else None
    return {
        "samples": len(samples),
        "early_bytes": early,
        "late_bytes": late,
        "flat": None if early is None or late is None else late - early < _GROWTH_LIMIT_BYTES,
        "limit_bytes": _GROWTH_LIMIT_BYTES,
    }


def soak(databases: Sequence[Database], *, seconds: float, seed: int) -> Summary:
    """Run rounds until the time is over, or Ctrl-C.

    Args:
        databases: What is read.
        seconds: How long, in seconds.
        seed: Decides about everything that is drawn.
    """
    _give_memory_back_at_once()
    run = Soak(databases, seed=seed)
    began_s = time.monotonic()
    samples: list[int] = []
    stopped = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: stopped.set())
    print("soaking; Ctrl-C ends it", file=sys.stderr, flush=True)
    try:
        while time.monotonic() - began_s < seconds and not stopped.is_set():
            faulthandler.dump_traceback_later(_HANG_S, exit=True, file=sys.__stderr__ or 2)
            run.run_round()
            samples.append(_anonymous_bytes())
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGINT, before)
    run.summary.elapsed_s = time.monotonic() - began_s
    run.summary.memory = _judge_memory(samples)
    return run.summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("databases", nargs="*", type=Path, metavar="DATABASE")
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="write the summary there; - for stdout")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ringfeed-soak-") as folder:
        databases = make_databases(Path(folder))
        databases += [read_database(path) for path in options.databases]
        summary = soak(databases, seconds=options.seconds, seed=options.seed)
    report = json.dumps(vars(summary), indent=2)
    if options.json == "-":
        print(report)
    else:
        if options.json:
            Path(options.json).write_text(report + "\n", encoding="utf-8")
        print(
            f"{summary.rounds} rounds, {summary.samples} samples checked in "
            f"{summary.elapsed_s:.0f} s: {'passed' if summary.passed else 'FAILED'}"
        )
        for problem in summary.problems:
            print(problem)
    return 0 if summary.passed else 1


if __name__ == "__main__":
    sys.exit(main())
