"""What ``import prefetch`` costs and brings along, where the wheel is installed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from processes import DEADLINE_S

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
    "module", ["cupy", "cv2", "matplotlib", "pydantic", "rich", "ruamel", "simplejpeg"]
)
def test_importing_does_not_bring_along_what_is_slow_and_not_always_needed(
    module: str, imported_modules: set[str]
) -> None:
    assert module not in imported_modules


@pytest.fixture(scope="module")
def imported_modules(distribution: Distribution) -> set[str]:
    return _import_prefetch(distribution)[1]
