"""The device under test is the one that was asked for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import cupy


def test_it_is_the_fake_exactly_when_the_fake_was_asked_for() -> None:
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    module = Path(str(sys.modules["cupy_backends.cuda.api.runtime"].__file__))
    fake = os.environ["RINGFEED_TEST_CUDA"] == "fake"
    assert name.startswith("fakecuda") == fake
    assert ("fakecuda" in module.parts) == fake


def test_the_rest_of_cupy_is_the_installed_wheel() -> None:
    assert "site-packages" in Path(cupy.__file__).parts
