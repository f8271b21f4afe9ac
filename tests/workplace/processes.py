"""The command and pieces of code in processes of their own, none of which runs for ever.

The deadline is far beyond what any of them takes, so that a machine that stands still for a while
fails no test.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_S = 110.0
"""Just below the deadline of a whole test."""

Ended: TypeAlias = subprocess.CompletedProcess[str]

CHECKOUT = Path(__file__).resolve().parents[2]

_LIMITED = """
    import resource, signal, sys
    from prefetch.cli import main

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing past the limit fails, as a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
    sys.exit(main(sys.argv[2:]))
"""


@contextmanager
def heeding_ctrl_c() -> Iterator[None]:
    """Have SIGINT interrupt this process and the processes it starts.

    What a shell starts in the background ignores it, and so do its children, unless it is caught
    before them: what is caught has its default again in another program.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def environment() -> dict[str, str]:
    """Return the environment in which a process finds the checkout, whatever its folder."""
    return {**os.environ, "PYTHONPATH": str(CHECKOUT)}


def run_code(code: str, *arguments: object) -> Ended:
    """Run Python code."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
        env=environment(),
    )


def run_in_shell(command: str, redirection: str = "", *, stdout: int = subprocess.PIPE) -> Ended:
    """Run the command ``ringfeed`` with its streams redirected by a shell."""
    ringfeed = f"exec {shlex.quote(sys.executable)} -m prefetch.cli {command}"
    return subprocess.run(
        ["bash", "-c", f"{ringfeed} {redirection}"],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=DEADLINE_S,
        env=environment(),
    )


def run_on_a_full_disk(limit: int, *arguments: str) -> Ended:
    """Run the command ``ringfeed`` where no file can be longer than so many bytes."""
    return run_code(_LIMITED, limit, *arguments)
