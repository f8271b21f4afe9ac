"""Ranges for profilers: which there are where they are asked for, and that there are none else."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from databases import records_fixture

from prefetch._pipeline.consumer import Consumer
from prefetch._pipeline.part_filler import Filler
from prefetch._process import nvtx
from prefetch._record.wire import encode_datum

if TYPE_CHECKING:
    from pathlib import Path

NVTX = """
import threading
threads = {}

def push_range(name, domain):
    thread = threads.setdefault(threading.current_thread().name, ([], [], set()))
    thread[0].append(name)
    thread[2].add((*thread[0], domain))

def pop_range(domain):
    threads[threading.current_thread().name][0].pop()
"""

LOOP = """
import sys
import nvtx
import prefetch
config = {"source": sys.argv[1], "batch_size": 2, "threads": 1, "transform": {"crop_size": 2}}
with prefetch.open(config, device="simulated") as feed:
    for batch in feed:
        del batch
for name in ("MainThread", "ringfeed-reader-0"):
    pushed, _, seen = nvtx.threads[name]
    assert pushed == []
    print(name, *sorted(".".join(each[:-1]) for each in seen))
    assert {each[-1] for each in seen} == {"ringfeed"}
"""


def _images() -> list[tuple[bytes, bytes]]:
    image = cv2.imencode(".png", np.zeros((4, 4, 3), np.uint8))[1].tobytes()
    datum = encode_datum(data=image, label=0, encoded=True)
    return [(b"%08d" % number, datum) for number in range(4)]


source = records_fixture(_images)


def run(code: str, *arguments: object, path: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(path), *sys.path]), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_step_is_a_range_on_its_thread(source: Path, tmp_path: Path) -> None:
    (tmp_path / "nvtx.py").write_text(NVTX)
    main, reader = run(LOOP, source, path=tmp_path, RINGFEED_NVTX="1").splitlines()
    assert main.split() == ["MainThread", "decode", "next"]  # the first record, at opening
    assert {"plan", "read", "transform", "transform.decode", "push"} <= set(reader.split())


@pytest.mark.parametrize("value", ["", "0"])
def test_where_none_are_asked_for_no_function_is_wrapped(value: str) -> None:
    assert nvtx._choose(value) is None
    assert not hasattr(Filler._write, "__wrapped__")
    assert not hasattr(Consumer.take, "__wrapped__")


def test_a_value_that_is_neither_is_an_error() -> None:
    with pytest.raises(ValueError, match="RINGFEED_NVTX is 'yes', and must be 1 or 0"):
        nvtx._choose("yes")


def test_where_nothing_makes_them_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from memory._cuda import runtime  # noqa: PLC0415 - imports CuPy, where it is installed

    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setattr(runtime, "cupy", None)
    assert nvtx._choose("1") is None
    assert "RINGFEED_NVTX is 1, and neither nvtx nor CuPy is installed" in caplog.text
