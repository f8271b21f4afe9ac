"""bfloat16 as a dtype: where it comes from, and what is said where its package is missing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from memory import Blob, MissingPackageError, bfloat16
from memory._device.bfloat16 import is_bfloat16


def test_it_is_ml_dtypes_type() -> None:
    import ml_dtypes  # noqa: PLC0415 - what is imported is what is tested

    assert np.dtype(ml_dtypes.bfloat16) == bfloat16()
    assert "bfloat16" == bfloat16().name
    assert bfloat16() == Blob((2,), "bfloat16").dtype == Blob((2,), bfloat16()).dtype


@pytest.mark.parametrize("other", ["V2", "f2", "u2", [("bfloat16", "u2")]])
def test_other_types_of_two_bytes_are_others(other: object) -> None:
    assert not is_bfloat16(np.dtype(other))  # type: ignore[call-overload]


def test_where_the_package_is_missing_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match=r"pip install '/path/to/checkout\[bfloat16\]'") as caught:
        Blob((2,), "bfloat16")
    assert isinstance(caught.value, MissingPackageError)
    assert ("ml_dtypes", "bfloat16") == (caught.value.package, caught.value.extra)


def test_the_package_is_imported_only_where_it_is_used() -> None:
    program = "import sys, memory; print('ml_dtypes' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "False" == found.stdout.strip()
