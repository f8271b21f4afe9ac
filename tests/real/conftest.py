"""Where the real files lie that nobody on this project made; they are no part of the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder with lmdb/, mean/, images/ and prototxt/, or skip where there is none."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("PREFETCH_REAL_DATA", beside))
    if not (folder / "lmdb").is_dir():
        pytest.skip(f"no real files at {folder}; PREFETCH_REAL_DATA names their folder")
    return folder
