"""Which kernels are used, and what is said where it is the twin."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import Any

import pytest

from prefetch._kernels import _c, reference, selection
from prefetch._transform.host import RecordTransformer
from prefetch._transform.options import Transform


def test_the_extension_is_used_where_it_is_there() -> None:
    assert selection.choose("auto") is _c
    assert selection.choose("c") is _c


def test_the_twin_is_used_on_demand() -> None:
    assert selection.choose("numpy") is reference


def test_without_the_extension_the_twin_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    _hide_extension(monkeypatch)
    assert selection.choose("auto") is reference


def test_the_extension_on_demand_is_an_error_that_names_the_cure_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _hide_extension(monkeypatch)
    with pytest.raises(ImportError, match=r"RINGFEED_KERNELS is 'c'.*install one \(gcc"):
        selection.choose("c")


def test_another_value_is_refused() -> None:
    with pytest.raises(ValueError, match="RINGFEED_KERNELS is 'fast', and must be auto, c or"):
        selection.choose("fast")


@pytest.mark.slow
@pytest.mark.parametrize(("value", "available"), [(None, True), ("", True), ("numpy", False)])
def test_the_environment_decides_at_import(value: str | None, available: bool) -> None:  # noqa: FBT001 (pytest gives it)
    environment = {name: text for name, text in os.environ.items() if name != "RINGFEED_KERNELS"}
    if value is not None:
        environment["RINGFEED_KERNELS"] = value
    code = "from prefetch._kernels import selection as it; print(it.kernels_available, it.kernels)"
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith(f"{available} <module 'prefetch.")


def test_the_log_says_once_that_the_twin_is_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _use_twin(monkeypatch)
    for _ in range(2):
        RecordTransformer(Transform(train=False))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "since the C extension prefetch._kernels._c is not installed" in record.getMessage()


def test_the_twin_on_demand_is_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    _use_twin(monkeypatch)
    monkeypatch.setenv("RINGFEED_KERNELS", "numpy")
    RecordTransformer(Transform(train=False))
    assert [record.levelno for record in caplog.records] == [logging.INFO]


def test_nothing_is_said_of_the_extension(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    RecordTransformer(Transform(train=False))
    assert not caplog.records


def _hide_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden: Any = None  # the import system takes it for a module that does not exist
    monkeypatch.setitem(sys.modules, "prefetch._kernels._c", hidden)
    monkeypatch.delattr("prefetch._kernels._c")


def _use_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RINGFEED_KERNELS", raising=False)
    monkeypatch.setattr(selection, "kernels", reference)
    monkeypatch.setattr(selection, "kernels_available", False)
    monkeypatch.setattr(selection, "_said", set())
