"""NVIDIA's compute-sanitizer on the kernel that transforms, where it is installed.

This file is also what runs under it: ``sanitizer.py DATABASE DEVICE SIDE`` does the check
of the transformation's bytes, and ends as a program does that has nothing to hide from its tools.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpu_checks.batch_bytes import check_transform
from gpu_checks.bench import Bench, NotHereError, Outcome, is_fake, this_python
from memory import open_device

if TYPE_CHECKING:
    from collections.abc import Callable

TOOLS: Final = ("memcheck", "initcheck")
_SCRIPT: Final = Path(__file__).resolve()
_FOUND: Final = 86  # exit status where the tool has found something
_WRONG: Final = 1
_NOT_HERE: Final = 3
_SIDE: Final = 64  # every access costs many times what it does without the tool


def check_sanitizer(bench: Bench) -> Outcome:
    """Transform on the device under each tool, and see that it has nothing to report."""
    bench.on_gpu_only()
    program = _program()
    if program is None:
        raise NotHereError("compute-sanitizer is not installed")
    script = [str(_SCRIPT), str(bench.source), bench.device.name, str(_SIDE)]
    # Python looks for what a script imports in the script's own folder only.
    path = [str(_SCRIPT.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    found = []
    for tool in TOOLS:
        options = ["--tool", tool, "--error-exitcode", str(_FOUND)]
        try:
            done = subprocess.run(  # noqa: S603 - NVIDIA's, and this very file
                [program, *options, *this_python(), *script],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
                timeout=max(1.0, bench.until - time.monotonic()),
            )
        except subprocess.TimeoutExpired:
            found.append(Outcome(tool, "not run", f"{tool} did not end in time"))
            continue
        found.append(read_report(tool, done.returncode, done.stdout.strip().splitlines()))
    verdicts = {outcome.verdict for outcome in found}
    verdict = "wrong" if "wrong" in verdicts else "right" if verdicts == {"right"} else "not run"
    return Outcome("compute-sanitizer", verdict, "; ".join(outcome.text for outcome in found))


def read_report(tool: str, status: int, lines: list[str]) -> Outcome:
    """Say what a tool's exit status and its output mean."""
    told = [line.lstrip("= ") for line in lines if line.startswith("=========")]
    summary = next((line for line in reversed(told) if "SUMMARY" in line), "")
    if status == _FOUND:
        text = " | ".join([line for line in told if line][:12])
        return Outcome(tool, "wrong", f"{tool}: {summary}: {text}")
    if status == _WRONG and lines and lines[-1].startswith("DIFFERENT BYTES"):
        return Outcome(tool, "wrong", f"{tool}: {lines[-1]}")
    if status or not summary:  # the tool itself: it refuses some machines
        return Outcome(tool, "not run", f"{tool}: status {status}: {' | '.join(lines[-4:])}")
    return Outcome(tool, "right", f"{tool}: {summary}")


def _program() -> str | None:
    found = shutil.which("compute-sanitizer")
    if found is not None:
        return found
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    program = home / "bin" / "compute-sanitizer"
    return str(program) if program.exists() else None


def main() -> int:
    """Check the transformation; return the exit status."""
    source, spec, side = sys.argv[1:]
    with open_device(spec) as device:
        bench = Bench(
            device=device,
            source=Path(source),
            side=int(side),
            on_fake=is_fake(device),
            batches=1,
            epochs=1,
            quick=True,
            until=time.monotonic() + 60,
        )
        try:
            outcome = check_transform(bench)
        except NotHereError as reason:
            print(reason)
            return _NOT_HERE
    print(outcome.text)
    return _WRONG if outcome.verdict == "wrong" else 0


SANITIZER: Final[dict[str, Callable[[Bench], Outcome]]] = {"compute-sanitizer": check_sanitizer}

if __name__ == "__main__":
    sys.exit(main())
