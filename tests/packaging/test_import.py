"""What ``import prefetch`` costs and brings along."""

from __future__ import annotations

import subprocess
import sys

import pytest

_IMPORT = """
import sys, time
began = time.perf_counter()
import prefetch
print(time.perf_counter() - began)
print(*sys.modules)
"""


def _import_prefetch() -> tuple[float, set[str]]:
    """Return the seconds that it takes in a fresh interpreter, and what is loaded then."""
    run = subprocess.run(
        [sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True
    )
    seconds, modules = run.stdout.splitlines()
    return float(seconds), set(modules.split())


def test_importing_takes_less_than_half_a_second() -> None:
    assert min(_import_prefetch()[0] for _ in range(5)) < 0.5


@pytest.mark.parametrize(
    "module", ["cupy", "cv2", "matplotlib", "pydantic", "rich", "ruamel", "simplejpeg"]
)
def test_importing_does_not_bring_along_what_is_slow_and_not_always_needed(
    module: str, imported_modules: set[str]
) -> None:
    assert module not in imported_modules


@pytest.fixture(scope="module")
def imported_modules() -> set[str]:
    return _import_prefetch()[1]
