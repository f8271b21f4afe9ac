"""The tests of the device's kernel, run again on one built with sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).resolve().parents[3]
TESTS = (
    "tests/properties/test_device_kernel_properties.py",
    "tests/properties/test_device_mixing_properties.py",
    "tests/properties/test_device_boxes_properties.py",
)

_RUN = """
import ctypes, sys
import pytest
ctypes.CDLL(None).__asan_init  # the sanitizer is in charge of this process

class FewerExamples:
    def pytest_sessionstart(self):
        from hypothesis import settings
        settings.register_profile("sanitized", max_examples=30, database=None)
        settings.load_profile("sanitized")

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[FewerExamples()]))
"""


@pytest.mark.timeout(300)  # seconds of CPU time; the machine may be busy
def test_the_kernels_tests_pass_under_sanitizers() -> None:
    asan = subprocess.run(
        ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    run = subprocess.run(
        [sys.executable, "-c", _RUN, *TESTS],
        cwd=CHECKOUT,
        env={
            **os.environ,
            "HOSTCUDA_FLAGS": "-fsanitize=address,undefined -fno-sanitize-recover=undefined",
            "LD_PRELOAD": asan.stdout.strip(),
            "PYTHONMALLOC": "malloc",  # else the interpreter's arenas hide what is out of bounds
            "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter itself frees not everything
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
