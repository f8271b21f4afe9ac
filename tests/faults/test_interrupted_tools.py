"""Ctrl-C at any moment of convert, mean and inspect: it comes out as itself, and nothing hangs."""

from __future__ import annotations

import ast
import threading
from typing import TYPE_CHECKING

import pytest
from image_folders import write_grey_images
from processes import run_code

from prefetch._tools.step_thread import run_steps, step_on_thread
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

# Begins with what it needs of a folder, and calls each() again and again, interrupted at random.
_HAMMER = """
    import collections, os, random, shutil, signal, sys, threading
    from pathlib import Path

    folder, what = Path(sys.argv[1]), sys.argv[2]
    sys.unraisablehook = lambda _: None  # of a finalizer, it is printed and no more

    def convert():
        from prefetch._tools.convert import InputOptions, convert, open_input
        convert(open_input([folder / "images"], InputOptions()).examples, folder / "new", threads=4)

    def mean():
        from prefetch._tools.mean import compute_mean
        from prefetch._source.source import RecordSource
        with RecordSource.open(folder / "db") as source:
            compute_mean(source, threads=4)

    def inspect():
        from prefetch._tools.survey import survey_database
        survey_database(folder / "db", full=True)

    def begin():
        shutil.rmtree(folder / "new", ignore_errors=True)
        shutil.rmtree(folder / "new.partial", ignore_errors=True)

    each = globals()[what]
    each()  # everything is imported
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    draw = random.Random(7)
    came_out = collections.Counter()
    for _ in range(int(sys.argv[3])):
        begin()
        try:
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 12e-3))
            each()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException as error:
            signal.setitimer(signal.ITIMER_REAL, 0)
            came_out[type(error).__name__] += 1
    left = sorted(thread.name for thread in threading.enumerate())
    os.write(1, f"{left} {dict(came_out)}".encode())
    os._exit(0)
"""


@pytest.mark.parametrize("what", ["convert", "mean", "inspect"])
def test_ctrl_c_at_any_moment_comes_out_and_hangs_nothing(tmp_path: Path, what: str) -> None:
    (tmp_path / "images").mkdir()
    write_grey_images(tmp_path / "images" / "of one class", 40, step=5)
    write_database(tmp_path / "db", fingerprinted_images(4000, (3, 16, 16)))
    ended = run_code(_HAMMER, tmp_path, what, 400)
    assert ended.returncode == 0, ended.stderr
    left, _, came_out = ended.stdout.partition("] ")
    assert ast.literal_eval(left + "]") == ["MainThread"]
    counts = ast.literal_eval(came_out)
    assert list(counts) == ["KeyboardInterrupt"]
    assert counts["KeyboardInterrupt"] > 40


def test_steps_are_taken_on_a_thread_that_ends_with_them() -> None:
    seen: list[str] = []

    def count() -> Generator[int, None, str]:
        seen.append(threading.current_thread().name)
        try:
            yield from range(3)
        finally:
            seen.append(threading.current_thread().name)
        return "counted"

    steps: list[int] = []
    assert run_steps(step_on_thread(count), steps.append) == "counted"
    assert steps == [0, 1, 2]
    given_up: list[bool] = []
    left = step_on_thread(count, give_up=lambda: given_up.append(True))
    assert next(left) == 0
    left.close()
    assert given_up == [True]
    assert set(seen) == {"ringfeed-steps"}
    assert len(seen) == 4


def test_an_error_in_a_step_is_raised_where_the_step_is_asked_for() -> None:
    def fail() -> Generator[int, None, None]:
        yield 1
        raise ValueError("at the second step")

    steps = step_on_thread(fail)
    assert next(steps) == 1
    with pytest.raises(ValueError, match="second step"):
        next(steps)
