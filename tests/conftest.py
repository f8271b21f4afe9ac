"""What every test is held to: it leaves no thread and no open file behind, and Ctrl-C works."""

from __future__ import annotations

import gc
import os
import threading
import time
import zlib
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from processes import heeding_ctrl_c

from prefetch._feed.ranks import RANK_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

settings.register_profile("ringfeed", deadline=None)  # a shared machine may stand still for a while
settings.load_profile("ringfeed")


# Taken out of the environment, since some tests run pytest themselves.
_SKIPPED = os.environ.pop("RINGFEED_SKIPPED", None)

# Every test is one process of one, whatever the run was started by.
for _variable in chain(*RANK_VARIABLES):
    os.environ.pop(_variable, None)

# Bytes of a record would make an id of hundreds of characters, one escape after another.
_MAX_BYTES_IN_ID = 24


def pytest_make_parametrize_id(val: object) -> str | None:
    if isinstance(val, bytes) and len(val) > _MAX_BYTES_IN_ID:
        return f"{len(val)}bytes-{zlib.crc32(val):08x}"
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """End with what was skipped and why; `make test` repeats it after both of its runs."""
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
    )
    lines = [f"skipped {num}: {reason}" for reason, num in sorted(reasons.items())]
    lines = lines or ["skipped none"]
    for line in lines:
        terminalreporter.write_line(line)
    if _SKIPPED:
        with Path(_SKIPPED).open("a", encoding="utf-8") as file:
            file.writelines(f"  {line}\n" for line in lines)


def _open_files() -> set[str]:
    """Return what the process's descriptors point to; sockets and pipes are the event loops'."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:
            continue
        if target.endswith((".mdb", ".mdb (deleted)")):
            found.add(target)
    return found


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c() -> Iterator[None]:
    with heeding_ctrl_c():
        yield


@pytest.fixture(autouse=True)
def _no_leaks() -> Iterator[None]:
    """Fail a test that leaves threads or database files open."""
    threads_before = set(threading.enumerate())
    files_before = _open_files()
    yield
    left = [thread for thread in threading.enumerate() if thread not in threads_before]
    if left or _open_files() != files_before:
        gc.collect()  # what a test dropped without closing may go now, but it must go by itself
        for thread in left:
            thread.join(timeout=5)
        left = [thread for thread in left if thread.is_alive()]
    assert not left, f"threads left running: {left}"
    assert _open_files() == files_before


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Return a function that waits until something is so, and fails the test where it never is."""

    def wait(is_so: Callable[[], bool], timeout_s: float = 20) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > deadline:
                pytest.fail(f"it was not so within {timeout_s:g} s")
            time.sleep(0.001)

    return wait
