"""The guide's examples of a complement repeat the other options of the split."""

from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"


@pytest.mark.parametrize("name", ["getting-started.md", "splits.md", "configuration.md"])
def test_every_example_of_a_complement_repeats_its_split_and_says_why(name: str) -> None:
    text = (GUIDE / name).read_text(encoding="utf-8")
    examples = text.count('"complement": True},') + text.count('"complement": True})')
    assert examples
    reasons = text.count(
        "exact only with the same `fraction`, `seed`, `start`, `stop` and `stratify`"
    )
    assert reasons == examples
    assert text.count('{**split, "complement": True}') == examples + reasons
