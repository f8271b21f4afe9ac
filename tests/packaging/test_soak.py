"""The soak's own machinery: a short one passes, and what is wrong makes it fail."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from processes import DEADLINE_S

import prefetch
import soak
from prefetch.testing import fingerprinted_images, write_database
from soak_model import MismatchError, Model, read_database

if TYPE_CHECKING:
    import numpy.typing as npt

_SCRIPT = Path(soak.__file__)


def test_a_short_soak_on_a_given_database_passes_and_has_the_documented_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = write_database(tmp_path / "given", fingerprinted_images(20))
    status = soak.main([str(given), "--seconds", "1", "--seed", "3", "--json", "-"])
    summary = json.loads(capsys.readouterr().out)
    assert ([], 0) == (summary["problems"], status)
    fields = "seed format elapsed_s rounds batches samples resumes endings faults memory problems"
    assert set(fields.split()) == set(summary)
    assert summary["rounds"] >= 1
    assert summary["samples"] >= summary["batches"] >= 1


def test_ctrl_c_ends_a_soak_with_its_summary() -> None:
    process = subprocess.Popen(
        [sys.executable, str(_SCRIPT), "--seconds", "600", "--json", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "soaking; Ctrl-C ends it\n"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode in {0, 1}
    assert json.loads(output)["format"] == 1


def _batch(source: Path, options: dict[str, Any]) -> prefetch.Batch:
    with prefetch.open({"source": source, "batch_size": 4}, **options) as feed:
        return next(iter(feed))


def test_the_model_finds_a_pixel_a_label_and_an_order_that_are_wrong(tmp_path: Path) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(8))
    database = read_database(source)
    transform = {"crop_size": 5, "mirror": True, "mean_value": [2.0], "scale": 0.5}
    options: dict[str, Any] = {
        "shuffle": False,
        "seed": 1,
        "rng": "counter",
        "phase": "train",
        "transform": transform,
    }
    places = [(0, place) for place in range(4)]
    batch = _batch(source, options)
    Model().check(database, options, places, batch)
    with pytest.raises(MismatchError, match="should be record 1"):
        Model().check(database, options, [(0, place + 1) for place in range(4)], batch)
    with pytest.raises(MismatchError, match="should have 3 samples"):
        Model().check(database, options, places[:3], batch)
    for blob, complaint in ((batch.data, "the pixels are not"), (batch.label, "label 77")):
        array: npt.NDArray[Any] = blob.numpy()
        before = array.copy()
        array[2] = 77
        with pytest.raises(MismatchError, match=complaint):
            Model().check(database, options, places, batch)
        np.copyto(array, before)


def test_growing_memory_is_judged_as_such() -> None:
    flat = soak._judge_memory([100 << 20] * 80)
    growing = soak._judge_memory([(100 + n) << 20 for n in range(80)])
    assert (True, False) == (flat["flat"], growing["flat"])
    assert soak._judge_memory([1] * 3)["flat"] is None
