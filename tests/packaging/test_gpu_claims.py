"""The table of what is claimed about GPUs names tests and checks that exist."""

from __future__ import annotations

import re
from pathlib import Path

import rehearse_gpu

CHECKOUT = Path(__file__).resolve().parents[2]
TABLE = (CHECKOUT / "docs" / "design" / "0013-what-only-a-gpu-can-tell.md").read_text()


def test_every_test_that_proves_a_claim_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", TABLE))
    defined = set()
    for path in (CHECKOUT / "tests").rglob("test_*.py"):
        defined |= set(re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE))
    assert len(named) > 30
    assert set() == named - defined


def test_every_check_of_a_gpu_is_in_the_table_and_no_other() -> None:
    named = set(re.findall(r"(?<!\*)\*([A-Za-z][\w -]*)\*(?!\*)", TABLE))
    assert named == set(rehearse_gpu.EXPECTED)


def test_no_speed_of_a_gpu_is_told() -> None:
    for path in (CHECKOUT / "docs").rglob("*.md"):
        if "gpu" in path.name:
            assert re.findall(r"\d (?:GB/s|TB/s|images/s)", path.read_text()) == []
