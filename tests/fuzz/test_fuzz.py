"""The kernels are fuzzed under sanitizers for a few seconds, from a kept corpus of records.

``RINGFEED_FUZZ_SECONDS`` sets for how long (default 4), ``RINGFEED_FUZZ_SEED`` from which seed
(default 1). With clang's libFuzzer inputs are led by coverage, else drawn.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefetch._kernels import _c, reference
from prefetch._transform.options import Transform

CHECKOUT = Path(__file__).resolve().parents[2]
NATIVE = CHECKOUT / "prefetch" / "_kernels" / "native"
CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())
_SECONDS = os.environ.get("RINGFEED_FUZZ_SECONDS", "4")
_SEED = os.environ.get("RINGFEED_FUZZ_SEED", "1")
_FLAGS = ["-std=c11", "-O1", "-g", "-ffp-contract=off", "-fno-sanitize-recover=undefined"]


def _build(compiler: str, sanitizers: str, target: Path, *flags: str) -> bool:
    """Build the fuzzer of the target's name; False where compiler or libraries are missing."""
    sources = [path for path in NATIVE.glob("*.c") if not path.name.startswith("py_")]
    assert sources
    if shutil.which(compiler) is None:
        return False
    command = [compiler, *_FLAGS, f"-fsanitize={sanitizers}", *flags, f"-I{NATIVE}"]
    files = [Path(__file__).with_name(f"{target.name}.c"), *sources]
    run = subprocess.run(
        [*command, *files, "-o", target], capture_output=True, text=True, check=False
    )
    return run.returncode == 0


@pytest.mark.timeout(300)  # besides fuzzing, two builds; the machine may be busy
def test_no_mutated_record_is_read_or_written_beyond_its_bounds(tmp_path: Path) -> None:
    binary = tmp_path / "fuzz_fill"
    command: list[Any] = [binary]
    if _build("clang", "fuzzer,address,undefined", binary, "-DWITH_LIBFUZZER"):
        found = tmp_path / "found"
        found.mkdir()
        options = [f"-max_total_time={_SECONDS}", f"-seed={_SEED}", "-max_len=8192"]
        command += [*options, "-print_final_stats=1", found, CORPUS[0].parent]
    else:
        assert _build("gcc", "address,undefined", binary), "gcc and its sanitizers are needed"
        command += [_SECONDS, _SEED, *CORPUS]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    crashes = {path.name: path.read_bytes().hex() for path in tmp_path.glob("crash*")}
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr[-8000:]}\n{crashes}"


@pytest.mark.timeout(300)
def test_no_drawn_box_is_resized_beyond_its_bounds_or_to_other_bytes(tmp_path: Path) -> None:
    binary = tmp_path / "fuzz_resize"
    if _build("clang", "fuzzer,address,undefined", binary, "-DWITH_LIBFUZZER"):
        arguments = [f"-max_total_time={_SECONDS}", f"-seed={_SEED}", "-max_len=40"]
    else:
        assert _build("gcc", "address,undefined", binary), "gcc and its sanitizers are needed"
        arguments = [_SECONDS, _SEED]
    command = [str(binary), *arguments]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    crashes = {path.name: path.read_bytes().hex() for path in tmp_path.glob("crash*")}
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr[-8000:]}\n{crashes}"


@pytest.mark.parametrize("path", CORPUS, ids=[path.name for path in CORPUS])
@pytest.mark.parametrize("dtype", ["f4", "f2", "u1"])
def test_both_kernels_take_each_record_of_the_corpus_alike(path: Path, dtype: str) -> None:
    record = path.read_bytes()
    transform = Transform(train=True, mirror=True, dtype=np.dtype(dtype))
    answers = []
    for kernels in (_c, reference):
        data = np.zeros((2, 3, 4, 5), dtype)
        labels = np.zeros(2, np.int64)
        views = [memoryview(record), memoryview(record[: len(record) // 2])]
        words = np.full((2, 3), 2**31, np.uint32)
        outcomes = kernels.fill(views, words, data, labels, transform.recipe)
        for position, _, _ in outcomes:
            data[position] = 0
        answers.append((outcomes, data.tobytes(), labels.tolist()))
    assert answers[0] == answers[1]
