"""Pack what a bare machine with a GPU lacks to run gpu_check.py: needs a network, and no GPU.

    python scripts/pack_gpu_check.py

makes ``build/gpu-check``, for Python 3.12 on x86-64 unless told otherwise: the library's and the
tests' needs, unpacked from their wheels, and the library's C extension. NumPy stays behind, which
comes with CuPy, and so do OpenCV, which is large and which nothing there decodes with, and what
only the command line needs. Bring the folder along in the checkout, and run there

    python3 scripts/gpu_check.py --json gpu_check.json
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Final

from gpu_checks.packed import EXTENSION, ROOT, site_of

if TYPE_CHECKING:
    from pathlib import Path

LEFT_BEHIND: Final = frozenset({"numpy", "opencv-python-headless", "rich", "typer"})
FOR_TESTS: Final = frozenset(
    {"pytest", "pytest-asyncio", "pytest-timeout", "hypothesis", "ml_dtypes"}
)
ALSO: Final = ("pytest-xdist>=3.6",)
WITHOUT_THEIR_NEEDS: Final = frozenset({"simplejpeg", "ml_dtypes"})  # they ask for NumPy
MOST_BYTES: Final = 48 << 20
"""More than this is a mistake: a checkout and the folder should travel in 64 MiB."""

_PLATFORMS: Final = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux_2_27")


def main() -> int:
    """Pack; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", default="3.12", help="version there (default: 3.12)")
    parser.add_argument("--machine", default="x86_64", help="as uname -m says there")
    arguments = parser.parse_args()
    major, minor = map(int, arguments.python.split("."))
    site = site_of((major, minor))
    shutil.rmtree(site, ignore_errors=True)
    needs = requirements()
    alone = [need for need in needs if name_of(need) in WITHOUT_THEIR_NEEDS]
    _install(site, arguments, *(need for need in needs if need not in alone))
    _install(site, arguments, "--no-deps", *alone)
    shutil.rmtree(site / "bin", ignore_errors=True)  # commands with this machine's paths
    if arguments.machine == platform.machine():
        _build_extension(site)
    else:
        print(f"no C extension for {arguments.machine} can be built here: NumPy takes its place")
    nbytes = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    print(f"{site.relative_to(ROOT)}: {nbytes / 2**20:.1f} MiB for Python {arguments.python}")
    if nbytes > MOST_BYTES:
        print(f"that is more than {MOST_BYTES >> 20} MiB", file=sys.stderr)
        return 1
    return 0


def requirements() -> list[str]:
    """Return what is packed, as pyproject.toml asks for it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    own = [n for n in project["project"]["dependencies"] if name_of(n) not in LEFT_BEHIND]
    tests = [n for n in project["dependency-groups"]["dev"] if name_of(n) in FOR_TESTS]
    return [*own, *tests, *ALSO]


def name_of(requirement: str) -> str:
    """Return the name of the package that a requirement is about."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return found[0]


def _install(site: Path, arguments: argparse.Namespace, *what: str) -> None:
    platforms = [f"--platform={name}_{arguments.machine}" for name in _PLATFORMS]
    _run(
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
        *("--target", str(site), "--upgrade", "--no-compile", "--only-binary=:all:"),
        *(f"--python-version={arguments.python}", "--implementation=cp", *platforms, *what),
    )


def _build_extension(site: Path) -> None:
    # Away from the checkout, whose own extension is for whoever works there.
    build = site.parent / "build"
    options = (f"--build-lib={build / 'lib'}", f"--build-temp={build / 'temp'}")
    _run(sys.executable, "setup.py", "--quiet", "build_ext", *options)
    shutil.copyfile(build / "lib" / "prefetch" / "_kernels" / EXTENSION, site / EXTENSION)
    shutil.rmtree(build)


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 - pip, and our own setup


if __name__ == "__main__":
    sys.exit(main())
