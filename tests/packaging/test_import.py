"""What ``import prefetch`` costs, brings along, and finds, where the wheel is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from processes import CHECKOUT, DEADLINE_S

if TYPE_CHECKING:
    from tests.packaging.conftest import Distribution

# CPU time: on a busy machine the wall time says more about its neighbours.
_IMPORT = """
import sys, time
sys.path.insert(0, sys.argv[1])
began = time.process_time()
import prefetch
print(time.process_time() - began)
print(*sys.modules)
"""


def _import_prefetch(distribution: Distribution) -> tuple[float, set[str]]:
    """Return the CPU seconds that it takes in a fresh interpreter, and what is loaded then."""
    run = subprocess.run(
        [sys.executable, "-I", "-c", _IMPORT, str(distribution.installed)],
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    )
    seconds, modules = run.stdout.splitlines()
    return float(seconds), set(modules.split())


def test_importing_takes_less_than_half_a_second(distribution: Distribution) -> None:
    assert min(_import_prefetch(distribution)[0] for _ in range(5)) < 0.5


@pytest.mark.parametrize(
    "module",
    ["cupy", "cv2", "jax", "matplotlib", "pydantic", "rich", "ruamel", "simplejpeg", "torch"],
)
def test_importing_does_not_bring_along_what_is_slow_and_not_always_needed(
    module: str, imported_modules: set[str]
) -> None:
    assert module not in imported_modules


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_loader_for_a_library_that_is_not_there_says_so(library: str) -> None:
    code = f"import sys; sys.modules[{library!r}] = None; import prefetch.{library}"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert run.returncode == 1
    assert f"ModuleNotFoundError: prefetch.{library} needs" in run.stderr
    assert f"pip install {library}" in run.stderr


@pytest.fixture(scope="module")
def imported_modules(distribution: Distribution) -> set[str]:
    return _import_prefetch(distribution)[1]


# --- a checkout in the working directory ---------------------------------------------------------


def _imported_in(folder: Path, installed: Path, *options: str) -> tuple[Path, str]:
    """Return where `prefetch` comes from, in a process started in a folder, and what is said."""
    run = subprocess.run(
        [sys.executable, *options, "-c", "import prefetch; print(prefetch.__file__)"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_S,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    return Path(run.stdout.strip()).parent.parent, run.stderr


def test_a_checkout_in_place_of_what_is_installed_is_said(
    distribution: Distribution, tmp_path: Path
) -> None:
    installed, checkout = distribution.installed, distribution.checkout
    came_from, said = _imported_in(checkout, installed)
    assert checkout == came_from
    assert (
        f"PrefetchWarning: prefetch is imported from {checkout}, where Python was started, in "
        f"place of the one that is installed in {installed}: for that one start elsewhere, or "
        f"with python -P; to work with this one, install it: python -m pip install --editable "
        f"{checkout}\n"
    ) in said
    assert "<string>:1: " in said
    assert (installed, "") == _imported_in(tmp_path, installed)
    assert (installed, "") == _imported_in(checkout, installed, "-P")


def test_a_checkout_that_hides_nothing_says_nothing(distribution: Distribution) -> None:
    checkout = distribution.checkout
    assert (CHECKOUT, "") == _imported_in(CHECKOUT, checkout.parent)  # by an editable install
    assert (checkout, "") == _imported_in(checkout.parent, checkout)  # by PYTHONPATH


def test_without_the_extension_the_cure_is_for_the_checkout_or_for_what_is_installed(
    distribution: Distribution, tmp_path: Path
) -> None:
    code = "from prefetch._kernels import selection as it; print(it.choose('c'))"
    bare = tmp_path / "installed"
    unbuilt = shutil.ignore_patterns("_c*.so")
    shutil.copytree(distribution.installed, bare, ignore=unbuilt)
    for folder, cure in (
        (distribution.checkout, f"--editable {distribution.checkout})"),
        (bare, "--force-reinstall --no-cache-dir /path/to/checkout)"),
    ):
        run = subprocess.run(
            [sys.executable, "-P", "-c", code],
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
            env={**os.environ, "PYTHONPATH": str(folder)},
        )
        assert "install one (gcc or clang), and then " in run.stderr
        assert run.stderr.endswith(f"{cure}\n")
