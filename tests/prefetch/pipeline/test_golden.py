"""Bit for bit what Caffe gives: real outputs of its Data layer, reproduced.

``tests/golden`` holds fourteen runs of the C++ layer (BVLC Caffe 9b891540, CPU) over five small
databases: its prototxt, float32 data and labels of all batches one after the other. In ``layers``
are networks with several such layers, whose seeds come from one generator.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import prefetch
from memory.testing import peek
from prefetch.cli import main

FOLDER = Path(__file__).parents[2] / "golden"
CASES: list[dict[str, Any]] = json.loads((FOLDER / "cases.json").read_text())
LAYERS = FOLDER / "layers"
LAYER_CASES: list[dict[str, Any]] = json.loads((LAYERS / "cases.json").read_text())


def _stored(name: str) -> tuple[bytes, bytes, list[tuple[int, ...]]]:
    shapes = [
        tuple(int(dim) for dim in line.split("(")[0].split())
        for line in (FOLDER / f"{name}.shape.txt").read_text().splitlines()
    ]
    data = (FOLDER / f"{name}.data.f32").read_bytes()
    return data, (FOLDER / f"{name}.label.f32").read_bytes(), shapes


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("prefetch_depth", [1, 2, 4])
@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_every_run_of_caffe_is_reproduced_bit_for_bit(
    case: dict[str, Any], threads: int, prefetch_depth: int, device: str
) -> None:
    data, labels, shapes = _stored(case["name"])
    served: list[tuple[bytes, bytes, tuple[int, ...]]] = []
    on_device: list[bytes] = []
    with prefetch.open_prototxt(
        FOLDER / f"{case['name']}.prototxt",
        phase=case["phase"],
        root=FOLDER,
        seed=case["seed"],
        rank=case["rank"],
        world_size=case["count"],
        prefetch=prefetch_depth,
        threads=threads,
        device=device,
    ) as feed:
        for batch in feed:
            if device == "simulated":
                on_device.append(peek(batch.data).tobytes())
            served.append(
                (
                    batch.data.numpy().tobytes(),
                    batch.label.numpy().tobytes(),
                    batch.data.shape,
                )
            )
            if len(served) == case["n"]:
                break
    assert [shape for _, _, shape in served] == shapes[: case["n"]]
    assert b"".join(label for _, label, _ in served) == labels
    assert b"".join(pixels for pixels, _, _ in served) == data
    if device == "simulated":
        assert b"".join(on_device) == data


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_the_same_options_in_yaml_give_the_same_bytes(case: dict[str, Any]) -> None:
    data, labels, _ = _stored(case["name"])
    config = {
        "source": FOLDER / case["db"],
        "batch_size": case["batch"],
        "phase": case["phase"].lower(),
        "seed": case["seed"],
        "rng": "caffe",
        "last_batch": "wrap",
        "label_dtype": "float32",
        "shard": {"rank": case["rank"], "world_size": case["count"], "policy": "caffe"},
        "transform": {
            "crop_size": case["crop"],
            "mirror": case["mirror"],
            "scale": case["scale"],
            "mean_value": case["mean_value"],
            "mean_file": FOLDER / "mean.binaryproto" if case["mean_file"] else None,
        },
    }
    with prefetch.open(config) as feed:
        batches = [batch for batch, _ in zip(feed, range(case["n"]), strict=False)]
        assert b"".join(batch.data.numpy().tobytes() for batch in batches) == data
        assert b"".join(batch.label.numpy().tobytes() for batch in batches) == labels


def _batches(feed: prefetch.Feed, count: int) -> tuple[bytes, bytes]:
    batches = [batch for batch, _ in zip(feed, range(count), strict=False)]
    return (
        b"".join(batch.data.numpy().tobytes() for batch in batches),
        b"".join(batch.label.numpy().tobytes() for batch in batches),
    )


@pytest.mark.parametrize("case", LAYER_CASES, ids=lambda case: str(case["data"]))
def test_every_layer_of_a_network_is_reproduced_and_so_is_its_yaml_file(
    case: dict[str, Any], tmp_path: Path
) -> None:
    network, count, seed = LAYERS / case["network"], case["batches"], case["seed"]
    stored = (LAYERS / case["data"]).read_bytes(), (LAYERS / case["label"]).read_bytes()

    with prefetch.open_prototxt(
        network, phase=case["phase"], layer=case["layer"], root=FOLDER, seed=seed
    ) as feed:
        assert _batches(feed, count) == stored
    out = tmp_path / "layer.yaml"
    arguments = ["--phase", case["phase"], "--layer", case["layer"], "--seed", str(seed)]
    assert main(["from-prototxt", str(network), str(out), "--root", str(FOLDER), *arguments]) == 0
    with prefetch.open(out) as feed:
        assert _batches(feed, count) == stored


def test_the_cases_hold_every_kind_of_run() -> None:
    assert len(CASES) == 14
    assert {case["db"] for case in CASES} == {"u8", "f32", "png", "graypng", "vary"}
    assert all(np.frombuffer(_stored(case["name"])[0], "<f4").size for case in CASES)
