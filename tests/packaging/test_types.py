"""What a type checker says of programs that use the library."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from processes import CHECKOUT

if TYPE_CHECKING:
    from pathlib import Path

_DEADLINE_S = 400  # of a checker that has read nothing yet, on a busy machine

_PROGRAM = """
from pathlib import Path
import prefetch
import ringfeed

prefetch.open("db", batch_size=64, shuffle=True, transform={"crop_size": 24}, device="cuda:1")
prefetch.open(source=[Path("a"), "b"], shard={"rank": 0, "world_size": 2}, seed=None)
prefetch.open("net.prototxt", phase="TRAIN", layer="data", label_dtype="int64")
prefetch.open({"source": "db"}, stall_warning_s=1)
prefetch.FeedConfig(source="db", transform=prefetch.FeedConfig(source="db").transform)
feed: prefetch.Feed = ringfeed.open("db")
images = next(iter(feed)).data.numpy()
"""
_WRONG = {
    'prefetch.open("db", batch_sise=64)': 'Unexpected keyword argument "batch_sise" for "open"',
    'ringfeed.open("db", batch_sise=64)': 'Unexpected keyword argument "batch_sise" for "open"',
    'prefetch.open("db", batch_size="64")': 'Argument "batch_size" to "open" has incompatible',
    'prefetch.open("db", phase="training")': 'Argument "phase" to "open" has incompatible type',
    'prefetch.open("db", last_batch="dropped")': 'Argument "last_batch" to "open" has incompat',
    'prefetch.FeedConfig(source="db", batch_sise=64)': 'Unexpected keyword argument "batch_sise"',
    "ringfeed.no_such_name": 'Module has no attribute "no_such_name"',
}


@pytest.mark.slow
@pytest.mark.timeout(_DEADLINE_S)
def test_mypy_takes_what_is_right_and_refuses_each_thing_that_is_wrong(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    num_right = len(_PROGRAM.splitlines())
    program.write_text("\n".join([*_PROGRAM.splitlines(), *_WRONG]) + "\n")
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(program)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=_DEADLINE_S,
    )
    found = [line for line in run.stdout.splitlines() if ": error: " in line]
    assert not run.stderr
    assert len(_WRONG) == len(found), run.stdout
    for line, (number, words) in zip(found, enumerate(_WRONG.values(), num_right + 1), strict=True):
        assert f"program.py:{number}: error: {words}" in line
