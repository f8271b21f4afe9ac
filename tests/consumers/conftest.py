"""Batches in the hands of PyTorch and JAX: the same memory, for as long as they use it.

Neither library is needed by this project, nor installed by ``make venv``. Where one is missing its
tests are skipped; ``pip install --group consumers`` adds both (the CPU's builds will do).
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from databases import images_fixture

import prefetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHECKOUT = Path(__file__).resolve().parents[2]
BATCH = 4
PER_EPOCH = 10


source = images_fixture(BATCH * PER_EPOCH)


@pytest.fixture(params=["cpu", "simulated"])
def feed(source: Path, request: pytest.FixtureRequest) -> Iterator[prefetch.Feed]:
    """An endless feed: what it hands to other libraries is in host memory."""
    with prefetch.open(
        {"source": source, "batch_size": BATCH, "prefetch": 2, "last_batch": "wrap"},
        device=request.param,
    ) as feed:
        yield feed


@pytest.fixture
def run_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Run the example of the guide that imports a library, where its paths lead somewhere."""
    from make_digits import make_digits  # noqa: PLC0415 - needs scikit-learn, as no other test here

    shutil.copytree(CHECKOUT / "configs", tmp_path / "configs")
    make_digits(tmp_path / "data" / "digits_lmdb")
    monkeypatch.chdir(tmp_path)

    def run(library: str) -> None:
        guide = CHECKOUT / "docs" / "guide" / {"torch": "pytorch.md", "jax": "jax.md"}[library]
        blocks = re.findall(r"^```py\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL)
        block = next(block for block in blocks if f"import {library}\n" in block)
        exec(compile(block, str(guide), "exec"), {"__name__": "__main__"})  # noqa: S102 - our own

    return run
