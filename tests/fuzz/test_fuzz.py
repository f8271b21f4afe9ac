"""The kernels are fuzzed under sanitizers for a few seconds, from a kept corpus of records.

``RINGFEED_FUZZ_SECONDS`` sets for how long (default 4), ``RINGFEED_FUZZ_SEED`` from which seed
(default 1). With clang's libFuzzer inputs are led by coverage, else drawn.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

from prefetch._kernels import _c, reference
from prefetch._transform.options import Transform

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).resolve().parents[2]
NATIVE = CHECKOUT / "prefetch" / "_kernels" / "native"
CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())
_SECONDS = os.environ.get("RINGFEED_FUZZ_SECONDS", "4")
_SEED = os.environ.get("RINGFEED_FUZZ_SEED", "1")
_SAMPLINGS = (
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
)
_FLAGS = ["-std=c11", "-O1", "-g", "-ffp-contract=off", "-fno-sanitize-recover=undefined"]


def jpeg_seeds() -> Iterator[bytes]:
    """Yield small JPEGs of each kind, with restart markers, with a stamp too, and without."""
    rng = np.random.default_rng(1701)
    for channels, sampling in ((1, _SAMPLINGS[-1]), *((3, one) for one in _SAMPLINGS)):
        coarse = rng.integers(0, 256, (5, 7, channels), dtype=np.uint8)
        image = cv2.resize(coarse, (45, 37))
        for is_progressive, interval in ((0, 0), (0, 1), (0, 3), (1, 0), (1, 2)):
            options = [
                *(cv2.IMWRITE_JPEG_QUALITY, 60),
                *(cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling),
                *(cv2.IMWRITE_JPEG_PROGRESSIVE, is_progressive),
                *(cv2.IMWRITE_JPEG_RST_INTERVAL, interval),
            ]
            file = cv2.imencode(".jpg", image, options)[1].tobytes()
            yield file
            if interval == 0:
                marked = _c.add_restarts(file, 4)
                assert isinstance(marked, bytes)
                yield marked


def _build(compiler: str, sanitizers: str, target: Path, *flags: str) -> bool:
    """Build the fuzzer of the target's name; False where compiler or libraries are missing."""
    sources = [path for path in NATIVE.glob("*.c") if not path.name.startswith("py_")]
    assert sources
    if shutil.which(compiler) is None:
        return False
    command = [compiler, *_FLAGS, f"-fsanitize={sanitizers}", *flags, f"-I{NATIVE}"]
    files = [Path(__file__).with_name(f"{target.name}.c"), *sources]
    run = subprocess.run(
        [*command, *files, "-lm", "-o", target], capture_output=True, text=True, check=False
    )
    return run.returncode == 0


def _fuzz(name: str, folder: Path, corpus: list[Path], *, most_bytes: int = 8192) -> None:
    """Build a fuzzer in an empty folder and run it on the files of a folder, if there are any."""
    binary = folder / name
    command: list[Any] = [binary]
    if _build("clang", "fuzzer,address,undefined", binary, "-DWITH_LIBFUZZER"):
        found = folder / "found"
        found.mkdir()
        options = [f"-max_total_time={_SECONDS}", f"-seed={_SEED}", f"-max_len={most_bytes}"]
        folders = [found, *{path.parent for path in corpus}]
        command += [*options, "-print_final_stats=1", *folders]
    else:
        assert _build("gcc", "address,undefined", binary), "gcc and its sanitizers are needed"
        command += [_SECONDS, _SEED, *corpus]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    crashes = {path.name: path.read_bytes().hex() for path in folder.glob("crash*")}
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr[-8000:]}\n{crashes}"


@pytest.mark.timeout(300)
def test_no_drawn_box_is_resized_beyond_its_bounds_or_to_other_bytes(tmp_path: Path) -> None:
    _fuzz("fuzz_resize", tmp_path, [], most_bytes=40)


@pytest.mark.timeout(300)  # besides fuzzing, two builds; the machine may be busy
def test_no_mutated_record_is_read_or_written_beyond_its_bounds(tmp_path: Path) -> None:
    _fuzz("fuzz_fill", tmp_path, CORPUS)


@pytest.mark.timeout(300)  # as above
def test_no_mutated_jpeg_is_read_or_written_beyond_its_bounds(tmp_path: Path) -> None:
    seeds = tmp_path / "seeds"
    seeds.mkdir()
    for number, file in enumerate(jpeg_seeds()):
        (seeds / str(number)).write_bytes(file)
    _fuzz("fuzz_jpeg", tmp_path, sorted(seeds.iterdir()))


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
