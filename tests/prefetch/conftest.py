"""What tests share: the C extension beside its NumPy twin, and a place for commands to work in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from prefetch._kernels import selection
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from prefetch._kernels.contract import Kernels


_NETWORK = """
layer { name: "d" type: "Data" top: "data" top: "label"
        data_param { source: "data/lmdb" batch_size: 7 backend: LMDB } }
"""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with one of everything that the commands read."""
    monkeypatch.chdir(tmp_path)
    write_database(Path("data/lmdb"), fingerprinted_images(20))
    Path("feed.yaml").write_text("source: data/lmdb\nbatch_size: 8\n", encoding="utf-8")
    Path("net.prototxt").write_text(_NETWORK, encoding="utf-8")
    np.save("x.npy", np.zeros((4, 3, 4, 4), np.uint8))
    return tmp_path


@pytest.fixture(autouse=True)
def _unhurried_surveys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a survey look at all of its sample, however long the machine stands still meanwhile."""
    monkeypatch.setattr("prefetch._tools.survey.SAMPLING_S", 600.0)


@pytest.fixture(params=["c", "numpy"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    """Run a test with each of the kernels, which record transformers then use by default.

    The C extension has to be there: a checkout needs a C compiler.
    """
    chosen = selection.choose(request.param)
    monkeypatch.setattr(selection, "kernels", chosen)
    return chosen
