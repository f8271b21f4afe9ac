"""Rehearse here what gpu_check.py does on the first machine with a GPU: on the fake CUDA device.

    make rehearse-gpu

An environment with Python 3.12 and CuPy and nothing else, a bare copy of the checkout, the folder
that scripts/pack_gpu_check.py packs, an empty home, and no network where the system lets us do
without. Every check has to come out as it must there; the exit status is 1 where one does not.
Where there is no Python 3.12 the newest that is there takes its place, and it says so.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
ENVIRONMENT: Final = ROOT / ".venv-rehearsal"
WORK: Final = ROOT / "build" / "rehearsal"
CHECKOUT: Final = WORK / "checkout"
FAKE: Final = Path("tests") / "fakecuda" / "py"

THERE: Final = ("cupy-cuda13x==14.2.0", "nvidia-cuda-nvrtc==13.5.37")
"""What a machine with a GPU has: CuPy, and the compiler that a toolkit would bring."""
FOR_THE_FAKE: Final = "Cython==3.2.4"
WANTED: Final = "3.12"

# As ``python -m fakecuda`` does, but without the kernels of the project: they need what is packed,
# which only the script finds. The processes that it starts have them.
_START: Final = """
import runpy, sys
import fakecuda
sys.argv[0] = "scripts/gpu_check.py"
sys.path.insert(0, "scripts")
runpy.run_path(sys.argv[0], run_name="__main__")
"""

EXPECTED: Final = {
    "bandwidth": "rehearsed",
    "step time": "not run: PyTorch is not installed",
    "transform speed": "rehearsed",
    "registered mapping": "rehearsed",
    "torn batches": "right",
    "held stream": "right",
    "device transform": "right",
    "memory": "right",
    "graph capture": "right",
    "torch graph": "not run: PyTorch is not installed",
    "JAX": "not run: JAX is not installed",
    "torch DataLoader": "not run: PyTorch is not installed",
    "DALI": "not run: DALI is not installed",
    "compute-sanitizer": "not run: compute-sanitizer is not installed",
    "tests": "right",
}


def main() -> int:
    """Rehearse; return the exit status."""
    version, python = _find_python()
    if version != WANTED:
        print(f"no Python {WANTED} is to be had here: rehearsed with {version}", flush=True)
    bare = _make_environment(python)
    _build_fake(bare)
    _copy_checkout()
    pack = CHECKOUT / "scripts" / "pack_gpu_check.py"
    _run(sys.executable, pack, "--python", version, "--machine", platform.machine())
    faults = unexpected(_check(bare))
    print(*faults, sep="\n")
    print(f"the rehearsal {'FAILED' if faults else 'went as it must'}")
    return int(bool(faults))


def unexpected(found: dict[str, Any]) -> list[str]:
    """Return what has come out otherwise than it must on a fake device, in words."""
    faults = []
    if found.get("device") != "fake device":
        faults.append(f"not a fake device: {found.get('device')!r}")
    verdicts = {check["check"]: check for check in found.get("checks", [])}
    if list(verdicts) != list(EXPECTED):
        faults.append(f"other checks: {', '.join(verdicts)}")
    for name, expected in EXPECTED.items():
        check = verdicts.get(name, {"verdict": "missing", "text": "", "numbers": {}})
        told = f"{check['verdict']}: {check['text']}"
        if not told.startswith(expected):
            faults.append(f"{name} should be {expected}, and is {told}")
        speeds = [number for number in check["numbers"] if re.search("_s$|ratio", number)]
        if speeds or re.search(r"\d (?:GB/s|images/s|ms)\b", told):
            faults.append(f"{name} tells a speed of a fake device: {told}")
    return faults


def _find_python() -> tuple[str, str]:
    """Return the version and the path of the interpreter to rehearse with."""
    homes = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    names = [f"python{WANTED}", *map(str, sorted(homes.glob(f"{WANTED}.*/bin/python{WANTED}")))]
    # Each is run, since a pyenv shim exists even for versions that it then cannot start.
    for name in (*names, "python3.14", "python3.13", "python3.11", sys.executable):
        code = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2])"
        try:
            done = subprocess.run(  # noqa: S603 - an interpreter
                [name, "-c", code], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return done.stdout.strip(), name
    raise AssertionError("this very interpreter does not run")


def _make_environment(python: str) -> Path:
    """Return the interpreter of an environment with CuPy in it; made where it is not there."""
    bare = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / ".made"
    content = f"{python} {' '.join(THERE)}"
    if not (stamp.exists() and stamp.read_text() == content):
        _run(python, "-m", "venv", "--clear", ENVIRONMENT)
        _pip(bare, *THERE)
        stamp.write_text(content)
    return bare


def _build_fake(bare: Path) -> None:
    # What only its building takes must not be there when the check runs.
    cython = WORK / "cython"
    if not cython.exists():
        _pip(bare, "--target", str(cython), FOR_THE_FAKE)
    path = os.pathsep.join([str(ROOT / FAKE), str(cython)])
    environment = {**os.environ, "PYTHONPATH": path}
    _run(bare, ROOT / FAKE / "fakecuda_build.py", environment=environment)


def _copy_checkout() -> None:
    """Copy what a checkout has, without anything built."""
    shutil.rmtree(CHECKOUT, ignore_errors=True)
    CHECKOUT.mkdir(parents=True)
    for name in ("configs", "docs", "memory", "prefetch", "proto", "scripts", "tests"):
        built = shutil.ignore_patterns("__pycache__", "*.so", "*.pyc")
        shutil.copytree(ROOT / name, CHECKOUT / name, ignore=built)
    for name in ("pyproject.toml", "setup.py", "ringfeed_cli.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, CHECKOUT / name)
    (CHECKOUT / "build").mkdir()
    (CHECKOUT / "build" / "fakecuda").symlink_to(ROOT / "build" / "fakecuda")


def _check(bare: Path) -> dict[str, Any]:
    """Run the check in the copy; return what it has written."""
    home = WORK / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    json_path = WORK / "gpu_check.json"
    json_path.unlink(missing_ok=True)
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "PYTHONPATH": str(CHECKOUT / FAKE),
        "PYTHONNOUSERSITE": "1",
    }
    options = ("--rehearse", "--side", "64", "--batches", "60", "--epochs", "3")
    # Limits are for a GPU, and this machine may be a slow one.
    limits = ("--budget-s", "900", "--json", str(json_path))
    command = [*_without_network(), str(bare), "-P", "-c", _START, *options, *limits]
    _run(*command, environment=environment, may_fail=True)
    if not json_path.exists():
        return {}
    found: dict[str, Any] = json.loads(json_path.read_text())
    return found


def _without_network() -> tuple[str, ...]:
    """Return the command that takes the network from another, where that is allowed."""
    command = ("unshare", "--map-root-user", "--net")
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)  # noqa: S603 - util-linux
    except (OSError, subprocess.CalledProcessError):
        print("the network cannot be taken away here", flush=True)
        return ()
    return command


def _pip(bare: Path, *what: str) -> None:
    _run(bare, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *what)


def _run(
    *command: str | Path, environment: dict[str, str] | None = None, may_fail: bool = False
) -> None:
    words = [str(word) for word in command]
    where = CHECKOUT if may_fail else ROOT
    subprocess.run(words, env=environment, cwd=where, check=not may_fail)  # noqa: S603 - ours


if __name__ == "__main__":
    sys.exit(main())
