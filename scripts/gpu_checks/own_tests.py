"""The project's tests on the machine at hand, apart from what is measured: the last check.

A test that does not come to its end is no wrong byte: the check is ``not run``, and says which.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Final

from gpu_checks.bench import NotHereError, Outcome
from gpu_checks.packed import ROOT

if TYPE_CHECKING:
    from gpu_checks.bench import Bench


_NEEDED: Final = ("pytest", "pytest_asyncio", "pytest_timeout", "hypothesis")
_MOST_PROCESSES: Final = 8
_TEST_S: Final = 60  # more than any takes
_SUMMARY_S: Final = 10
_TIMED_OUT: Final = re.compile(r"Timeout \(>")


def check_tests(bench: Bench) -> Outcome:
    """Run the tests that run on any CUDA device."""
    if bench.on_fake and not bench.rehearse:
        raise NotHereError("make test and make test-fakecuda run them there")
    bench.need_cuda()
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise NotHereError(f"not installed: {', '.join(missing)} (dependency group dev)")
    with tempfile.TemporaryFile("w+") as output:
        status = _run(_command(bench), bench, output.fileno())
        output.seek(0)
        lines = output.read().strip().splitlines() or ["no output"]
    return verdict(status, lines)


def verdict(status: int | None, lines: list[str]) -> Outcome:
    """Say what pytest's exit status and its output mean.

    Args:
        status: None where it was not at its end in time.
        lines: Its output.
    """
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    # What has failed is wrong, however the rest ended; what has not ended is neither.
    wrong = [line for line in failed if not _TIMED_OUT.search(line)]
    text = "; ".join([lines[-1], *failed[:20]])
    if status is None:
        text = f"they did not end in time: {' | '.join(lines[-4:-1])} | {text}"
    if wrong or (status and not failed):
        return Outcome("tests", "wrong", text)
    return Outcome("tests", "right" if status == 0 else "not run", text)


def _command(bench: Bench) -> list[str]:
    chosen = ["tests/gpu", *(() if bench.quick else ("tests/memory",))]
    if not (bench.on_fake or bench.quick):
        chosen.append("tests/consumers")
        if importlib.util.find_spec("sklearn") is None:  # whose digits the guide's examples read
            chosen += ["-k", "not guides_example"]
        # What other versions of other libraries announce is no fault of ours.
        for kind in ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning"):
            chosen += ["-W", f"default::{kind}"]
    fake = ["-p", "fakecuda", "-m", "not fake_only"] if bench.on_fake else []
    processes = min(_MOST_PROCESSES, len(os.sched_getaffinity(0)))
    parallel = ["-n", str(processes)] if importlib.util.find_spec("xdist") else []
    # By a signal: a test that hangs fails, and its process goes on with the others.
    limits = ["--timeout", str(_TEST_S), "-o", "timeout_method=signal"]
    own = ["-v", "-p", "no:cacheprovider", *parallel, *limits, *fake]
    return [sys.executable, "-m", "pytest", *own, *chosen]


def _run(command: list[str], bench: Bench, output: int) -> int | None:
    """Return the exit status; None where the time was up."""
    own = {
        "RINGFEED_TEST_CUDA": "fake" if bench.on_fake else "gpu",
        # The tests with JAX are about the host's memory; on the GPU it has a check of its own.
        "JAX_PLATFORMS": "cpu",
    }
    child = subprocess.Popen(  # noqa: S603 - our own tests
        command,
        cwd=ROOT,
        env={**os.environ, **own},
        stdout=output,
        stderr=subprocess.STDOUT,
    )
    with contextlib.suppress(subprocess.TimeoutExpired):
        return child.wait(timeout=max(1.0, bench.until - _SUMMARY_S - time.monotonic()))
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.send_signal(signal.SIGINT)  # then it says what has failed so far
        child.wait(timeout=_SUMMARY_S)
    child.kill()  # whoever ends this check ends pytest's own processes too
    child.wait()
    return None
