"""The tests of the kernels, run again on kernels built with address and undefined sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # builds the kernels three times

CHECKOUT = Path(__file__).resolve().parents[3]
TESTS = (
    "tests/prefetch/kernels/test_kernels.py",
    "tests/prefetch/kernels/test_jpeg_restarts.py",
    "tests/prefetch/source/test_page_bounds.py",
    "tests/prefetch/kernels/test_reference.py",
    "tests/prefetch/kernels/test_resize.py",
    "tests/prefetch/kernels/test_sums.py",
    "tests/prefetch/kernels/test_mixing.py",
    "tests/prefetch/kernels/test_digest.py",
    "tests/properties/test_kernels_properties.py",
    "tests/properties/test_resize_properties.py",
)

_FLAGS = ["-std=c11", "-O1", "-g", "-fPIC", "-shared", "-ffp-contract=off"]
_LOOPS = {  # without vectors, as on a chip that the kernels know none of; with SSE2; with AVX2
    "plain": ["-DRINGFEED_BASELINE", "-U__SSE2__"],
    "baseline": ["-DRINGFEED_BASELINE"],
    "chip": [],
}
_SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]

# The instrumented extension takes the place of the installed one before anything imports that.
_RUN = """
import ctypes, importlib.util, sys
import pytest
ctypes.CDLL(None).__asan_init  # the sanitizer is in charge of this process
spec = importlib.util.spec_from_file_location("prefetch._kernels._c", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["prefetch._kernels._c"] = module
spec.loader.exec_module(module)

class FewerExamples:
    def pytest_sessionstart(self):
        from hypothesis import settings
        settings.register_profile("sanitized", max_examples=30, database=None)
        settings.load_profile("sanitized")

# Under a limit on memory the sanitizer finds no room for itself.
chosen = "not every_checkout and not numpy and not find_no_memory and not hundred_thousand"
options = ["-q", "-p", "no:cacheprovider", "-k", chosen]
sys.exit(pytest.main([*options, *sys.argv[2:]], plugins=[FewerExamples()]))
"""


def _path_of(library: str) -> str:
    command = ["gcc", f"-print-file-name={library}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.timeout(300)  # 10 s of CPU time; the machine may be busy
@pytest.mark.parametrize("loops", _LOOPS)
def test_the_kernels_tests_pass_under_sanitizers(loops: str, tmp_path: Path) -> None:
    extension = tmp_path / "_kernels.abi3.so"
    sources = sorted((CHECKOUT / "prefetch" / "_kernels" / "native").glob("*.c"))
    includes = sysconfig.get_path("include")
    define = _LOOPS[loops]
    command = ["gcc", *_FLAGS, *define, *_SANITIZERS, f"-I{includes}"]
    subprocess.run([*command, *sources, "-o", extension], check=True)
    environment = {
        **os.environ,
        "LD_PRELOAD": _path_of("libasan.so"),
        "PYTHONMALLOC": "malloc",  # else the interpreter's arenas hide what is out of bounds
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter itself frees not everything
    }
    run = subprocess.run(
        [sys.executable, "-c", _RUN, extension, *TESTS],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
