"""Feeds of bfloat16: what is in their batches, who keeps them, and their saved states."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import bfloat16

if TYPE_CHECKING:
    from pathlib import Path

MEANS = {"mean_value": [104.5, 117.25, 123.125], "scale": 0.017}


source = images_fixture(40)


def options(source: Path, dtype: str = "bfloat16", **changed: Any) -> dict[str, Any]:
    transform = {"dtype": dtype, "crop_size": 5, "mirror": True, **MEANS}
    return {"source": source, "batch_size": 4, "seed": 3, "transform": transform, **changed}


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("threads", [1, 2])
def test_batches_are_rounded_from_those_of_float32(source: Path, device: str, threads: int) -> None:
    with prefetch.open(options(source, "float32"), device="cpu") as feed:
        floats = np.concatenate([batch.data.numpy() for batch in feed])
    with prefetch.open(options(source, threads=threads), device=device) as feed:
        batches = [batch.data.numpy() for batch in feed]
    assert {bfloat16()} == {batch.dtype for batch in batches}
    assert np.concatenate(batches).tobytes() == floats.astype(bfloat16()).tobytes()


def test_a_slice_of_a_batch_keeps_its_memory(source: Path) -> None:
    with prefetch.open(options(source, prefetch=2), device="cpu") as feed:
        batches = iter(feed)
        kept = next(batches).data.numpy()[1:, :, 2]
        expected = kept.tobytes()
        for _ in range(8):
            next(batches)
        assert expected == kept.tobytes()


def test_a_state_is_loaded_with_the_same_dtype_only(source: Path) -> None:
    with prefetch.open(options(source), device="cpu") as feed:
        batches = iter(feed)
        next(batches)
        state = feed.state_dict()
        expected = next(batches).data.numpy().tobytes()
    with prefetch.open(options(source), device="cpu") as feed:
        feed.load_state_dict(state)
        assert expected == next(iter(feed)).data.numpy().tobytes()
    with (
        prefetch.open(options(source, "float16"), device="cpu") as feed,
        pytest.raises(prefetch.StateError, match="bfloat16"),
    ):
        feed.load_state_dict(state)


def test_without_the_package_the_option_is_at_fault(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(prefetch.ConfigError, match=r"transform\.dtype: .*ml_dtypes.*\[bfloat16\]"):
        prefetch.open(options(source))
