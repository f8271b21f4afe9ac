"""Bit for bit what Caffe gave over real databases, by the checksums of its float32 output."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import prefetch
from memory.testing import peek

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "real_cases.json").read_text(encoding="utf-8")
)


def _prototxt(case: dict[str, Any], real_data: Path) -> str:
    means = "".join(f"mean_value: {value} " for value in case["mean_value"])
    if case["mean_file"] is not None:
        means = f'mean_file: "{real_data / case["mean_file"]}"'
    return f"""
        name: "real"
        layer {{
          name: "data" type: "Data" top: "data" top: "label"
          include {{ phase: {case["phase"]} }}
          transform_param {{
            scale: {case["scale"]} mirror: {str(case["mirror"]).lower()}
            crop_size: {case["crop_size"]} {means}
          }}
          data_param {{
            source: "{case["db"]}" batch_size: {case["batch_size"]} backend: LMDB
          }}
        }}
    """


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("prefetch_depth", [1, 2, 4])
@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_real_databases_give_the_bytes_that_caffe_gave(
    case: dict[str, Any],
    threads: int,
    prefetch_depth: int,
    device: str,
    real_data: Path,
    tmp_path: Path,
) -> None:
    network = tmp_path / "net.prototxt"
    network.write_text(_prototxt(case, real_data), encoding="utf-8")
    pixels, labels, on_device = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
    nbytes = 0
    with prefetch.open_prototxt(
        network,
        phase=case["phase"],
        root=real_data,
        seed=case["seed"],
        rank=case["rank"],
        world_size=case["world"],
        prefetch=prefetch_depth,
        threads=threads,
        device=device,
    ) as feed:
        for _, batch in zip(range(case["batches"]), feed, strict=False):
            if device == "simulated":
                on_device.update(peek(batch.data).tobytes())
            data = batch.data.numpy()
            nbytes += data.nbytes
            pixels.update(data.tobytes())
            labels.update(batch.label.numpy().tobytes())
    assert nbytes == case["nbytes"]
    assert labels.hexdigest() == case["label_sha256"]
    assert pixels.hexdigest() == case["data_sha256"]
    if device == "simulated":
        assert on_device.hexdigest() == case["data_sha256"]
