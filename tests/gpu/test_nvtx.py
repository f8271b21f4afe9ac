"""Ranges for profilers by CuPy, where the package nvtx is not installed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import cupy

from prefetch._process import nvtx

if TYPE_CHECKING:
    import pytest


def test_cupy_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    ranges = nvtx._choose("1")
    assert ranges is not None
    ranges.push("read")  # without a profiler it goes nowhere
    ranges.pop()
    seen: list[str] = []
    monkeypatch.setattr(cupy.cuda.nvtx, "RangePush", seen.append)
    ranges.push("read")
    assert seen == ["ringfeed read"]
