"""Check the CUDA device on the machine at hand: what it costs, and whether the bytes are right.

One command for a machine with a GPU and CuPy, from a checkout; no network. What else it needs comes
in the folder that scripts/pack_gpu_check.py makes, unless the library is installed there:

    python3 scripts/gpu_check.py --json gpu_check.json

It takes nine minutes at most, with ``--quick`` two. What measures comes first and the project's own
tests last. Every check prints a line, and is a process of its own with a limit of its own: one that
crashes, hangs or loses the CUDA context costs itself and no other. The JSON file is written anew
after each. A wrong byte, a failed test or a crash makes the exit status 1; a check that cannot run
here, or does not come to its end in its time, is ``not run`` and says why.

On the fake device of tests/fakecuda (``python -m fakecuda scripts/gpu_check.py``), and with
``--device simulated``, the checks of bytes run, and no number of any speed is printed: it would
mean nothing there. With ``--rehearse`` all else runs there too, as little of it as there is, to see
that it does (``make rehearse-gpu``).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpu_checks.packed import NotPackedError, use_packed

try:
    use_packed()  # before the first import of anything that may be in there
except NotPackedError as missing:
    sys.exit(str(missing))

from gpu_checks.batch_bytes import BYTES
from gpu_checks.bench import RECORDS, Bench, NotHereError, Outcome, describe, is_fake, this_python
from gpu_checks.graph_capture import CAPTURES
from gpu_checks.jax_arrays import JAX
from gpu_checks.own_tests import check_tests
from gpu_checks.peer_loaders import PEERS
from gpu_checks.registered_mapping import MAPPING
from gpu_checks.sanitizer import SANITIZER
from gpu_checks.speed import SPEED
from memory import DeviceUnavailableError, open_device
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKS: Final[dict[str, Callable[[Bench], Outcome]]] = {
    **SPEED,
    **MAPPING,
    **BYTES,
    **CAPTURES,
    **JAX,
    **PEERS,
    **SANITIZER,
    "tests": check_tests,
}
LIMITS_S: Final = {"torn batches": 100.0, "compute-sanitizer": 120.0, "tests": 300.0}
"""Seconds after which a check is given up; 60 for the others."""

_NO_DEVICE: Final = 2  # exit status
_WORDS_S: Final = 2.0  # left to a check that hangs, to say where


def main() -> int:
    """Run the checks; return the exit status."""
    arguments = _parser().parse_args()
    if arguments.child is not None:
        return _be_child(arguments)
    began = time.monotonic()
    budget_s = arguments.budget_s or (120.0 if arguments.quick else 540.0)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        shape = 3, arguments.side, arguments.side
        source = write_database(Path(folder) / "lmdb", fingerprinted_images(RECORDS, shape))
        found: dict[str, Any] = {"device": "", "description": "", "checks": []}
        for name in arguments.only or CHECKS:
            started = time.monotonic()
            limit_s = min(LIMITS_S.get(name, 60.0), budget_s - (started - began))
            if limit_s < 3:
                told = _not_run(name, "the time was up")
            else:
                command = _command(name, arguments, source)
                told = _run_child(name, command, folder, limit_s)
            if told.get("unavailable"):
                print(told["unavailable"], file=sys.stderr)
                return _NO_DEVICE
            if not found["device"] and "device" in told:
                found |= {"device": told["device"], "description": told["description"]}
                print(f"{found['device']}: {found['description']}", flush=True)
            outcome = told["outcome"]
            outcome["seconds"] = round(time.monotonic() - started, 1)
            found["checks"].append(outcome)
            print(f"{outcome['check']:<18} {outcome['verdict']:<9} {outcome['text']}", flush=True)
            found["seconds"] = round(time.monotonic() - began, 1)
            if arguments.json is not None:
                _write(arguments.json, found)
    return int(any(outcome["verdict"] == "wrong" for outcome in found["checks"]))


def check(name: str, arguments: argparse.Namespace, source: Path) -> dict[str, Any]:
    """Run one check in this process; return what it has found, and on what.

    Args:
        name: Which.
        arguments: Of the command line.
        source: The database of fingerprinted images.

    Raises:
        DeviceUnavailableError: There is no such device.
    """
    with open_device(arguments.device) as device:
        on_fake = is_fake(device)
        small = on_fake or arguments.quick
        bench = Bench(
            device=device,
            source=source,
            side=arguments.side,
            on_fake=on_fake,
            batches=arguments.batches or (200 if on_fake else 1000 if small else 5000),
            epochs=arguments.epochs or (3 if on_fake else 10 if small else 50),
            quick=arguments.quick,
            until=time.monotonic() + 0.8 * arguments.limit_s,
            rehearse=on_fake and arguments.rehearse,
        )
        try:
            outcome = CHECKS[name](bench)
            if on_fake and outcome.verdict == "measured":
                outcome = Outcome(name, "rehearsed", "ran to its end; a fake device has no speed")
        except NotHereError as reason:
            outcome = Outcome(name, "not run", str(reason))
        except Exception as error:  # noqa: BLE001 - what it is, is what has been found
            outcome = Outcome(name, "wrong", f"{type(error).__name__}: {error}")
        return {
            "device": "fake device" if on_fake else "GPU",
            "description": describe(device),
            "outcome": _as_dict(outcome),
        }


def _be_child(arguments: argparse.Namespace) -> int:
    # Where it hangs is worth more than that it does.
    faulthandler.dump_traceback_later(max(1.0, arguments.limit_s - _WORDS_S), exit=True)
    try:
        told = check(arguments.child, arguments, arguments.source)
    except DeviceUnavailableError as error:
        told = {"unavailable": str(error)}
    _write(arguments.told, told)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # what it has found must not wait for a driver that no longer answers


def _command(name: str, arguments: argparse.Namespace, source: Path) -> list[str]:
    """Return the command that runs one check, less what ``_run_child`` adds."""
    options = ["--device", arguments.device, "--side", str(arguments.side)]
    for option in ("batches", "epochs"):
        if (value := getattr(arguments, option)) is not None:
            options += [f"--{option}", str(value)]
    options += [f"--{option}" for option in ("quick", "rehearse") if getattr(arguments, option)]
    here = [*this_python(), str(Path(__file__).resolve())]
    return [*here, "--child", name, "--source", str(source), *options]


def _not_run(name: str, why: str) -> dict[str, Any]:
    return {"outcome": _as_dict(Outcome(name, "not run", why))}


def _run_child(name: str, command: list[str], folder: str, limit_s: float) -> dict[str, Any]:
    """Run a check in a process of its own; never longer than the limit.

    Returns:
        What it has told. Where it did not come to tell anything: how it ended, as its outcome.
    """
    told = Path(folder) / "told.json"
    told.unlink(missing_ok=True)
    is_over = True
    with (Path(folder) / "errors").open("w+") as errors:
        child = subprocess.Popen(  # noqa: S603 - this very script
            [*command, "--told", str(told), "--limit-s", str(limit_s)],
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
        try:
            child.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            is_over = False
        finally:
            with contextlib.suppress(ProcessLookupError):  # its own children too
                os.killpg(child.pid, signal.SIGKILL)
            status = child.wait()
        errors.seek(0)
        lines = errors.read().strip().splitlines()
    with contextlib.suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(told.read_text())
        return found
    last = " | ".join(lines[-12:])
    # It ends itself a little before, to say where it hangs.
    if not is_over or any(line.startswith("Timeout (") for line in lines):
        return _not_run(name, f"did not get to its end in {limit_s:.0f} s: {last}")
    lost = Outcome(name, "wrong", f"ended early, with status {status}: {last}")
    return {"outcome": _as_dict(lost)}


def _as_dict(outcome: Outcome) -> dict[str, Any]:
    return dataclasses.asdict(outcome)


def _write(path: Path, found: dict[str, Any]) -> None:
    """Write a JSON file so that it is never half there."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(found, indent=2) + "\n")
    partial.replace(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda:0", help="which GPU (default: cuda:0)")
    parser.add_argument("--json", type=Path, help="write what was found there as well")
    parser.add_argument("--only", action="append", choices=list(CHECKS), help="this check alone")
    parser.add_argument("--quick", action="store_true", help="two minutes instead of nine")
    parser.add_argument(
        "--rehearse", action="store_true", help="on a fake device: all that there is"
    )
    parser.add_argument("--budget-s", type=float, help="seconds for all checks (540; quick: 120)")
    parser.add_argument("--batches", type=int, help="batches of the hunt for torn ones")
    parser.add_argument("--epochs", type=int, help="epochs of the check of memory")
    parser.add_argument("--side", type=int, default=256, help="of the images, a multiple of 8")
    # What the command tells its own child processes.
    for option, kind in (("child", str), ("source", Path), ("told", Path), ("limit-s", float)):
        parser.add_argument(f"--{option}", type=kind, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
