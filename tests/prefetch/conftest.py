"""What tests of the kernels share: the C extension and its NumPy twin answer alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from prefetch import _kernel_choice

if TYPE_CHECKING:
    from prefetch._transform import Kernels


@pytest.fixture(params=["c", "numpy"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    """Run a test with each of the kernels, which record transformers then use by default.

    The C extension has to be there: a checkout needs a C compiler.
    """
    chosen = _kernel_choice.choose(request.param)
    monkeypatch.setattr(_kernel_choice, "kernels", chosen)
    return chosen
