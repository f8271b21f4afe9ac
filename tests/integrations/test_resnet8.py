"""The example that trains a ResNet-8 by the recipe of CIFAR, as people run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "resnet8.py"


@pytest.mark.timeout(300)
def test_a_resnet_8_learns_digits_that_it_has_not_seen_by_the_preset(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--data", str(tmp_path / "digits"), "--epochs", "4"],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done
    untrained = re.search(r"accuracy of the untrained network: ([\d.]+)%", done.stdout)
    trained = re.search(r"^accuracy: ([\d.]+)%", done.stdout, re.MULTILINE)
    assert untrained is not None
    assert trained is not None
    assert float(untrained[1]) < 40  # of ten classes
    assert float(trained[1]) > 90
    assert "1,617 images to train, 180 to test" in done.stdout
