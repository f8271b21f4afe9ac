"""Which of the generator's numbers seeds a layer, and what is said where that is not known."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import prefetch
from prefetch import PrefetchWarning
from prefetch._feed.saved_state import _LATER_OPTIONS
from prefetch._prototxt.data_layer import DataLayer, read_data_layer
from prefetch.cli import main

GOLDEN = Path(__file__).parents[2] / "golden"


def layer(kind: str, fields: str = "", name: str = "before") -> str:
    return f'layer {{ name: "{name}" type: "{kind}" top: "{name}" {fields} }}\n'


DATA = 'data_param { source: "db" batch_size: 4 backend: LMDB }'
LAST = layer("Data", f"transform_param {{ mirror: true }} {DATA}", "last")


def transform(fields: str) -> str:
    return f"transform_param {{ {fields} }} {DATA}"


def weights(kind: str, *fillers: str) -> str:
    blocks = " ".join(f"weight_filler {{ {filler} }}" for filler in fillers)
    return layer(kind, f'bottom: "x" convolution_param {{ num_output: 2 {blocks} }}')


def read(folder: Path, text: str, phase: str = "TRAIN", **options: Any) -> DataLayer:
    net = folder / "net.prototxt"
    net.write_text(text, encoding="utf-8")
    return read_data_layer(net, phase=phase, **{"layer": "last", "seed": 1, **options})


@pytest.mark.parametrize(
    ("before", "train", "test"),
    [
        ("", 0, 0),
        (layer("Data", DATA), 1, 1),
        (layer("Data", transform("scale: 2 mirror: false")), 1, 1),
        (layer("Data", transform("mirror: true")), 3, 3),
        (layer("Data", transform("crop_size: 5")), 3, 1),
        (layer("Data", transform("crop_size: 5 mirror: true")), 3, 3),
        (layer("Data", "phase: TEST " + transform("crop_size: 5")), 1, 1),
        (layer("Data", "phase: TRAIN " + transform("crop_size: 5")), 3, 3),
        (layer("Data", "include { phase: TEST } " + transform("mirror: true")), 0, 3),
        (layer("Data", 'exclude { stage: "s" } ' + transform("mirror: true")), 3, 3),
        (layer("Data", DATA) + layer("Data", transform("crop_size: 5"), "next"), 4, 2),
        (layer("Data", transform("crop_size: 5")) + layer("Data", DATA, "next"), 4, 2),
        (layer("ImageData"), 1, 1),
        (layer("ImageData", "image_data_param { shuffle: true rand_skip: 9 }"), 3, 3),
        (layer("ImageData", "transform_param { crop_size: 5 }"), 3, 1),
        (layer("MemoryData"), 0, 0),
        (layer("MemoryData", "transform_param { crop_size: 5 }"), 1, 0),
        (layer("DummyData", 'dummy_data_param { data_filler { type: "gaussian" } }'), 0, 0),
        (layer("HDF5Data", "hdf5_data_param { shuffle: true }") + layer("Input"), 0, 0),
        (layer("Dropout", 'bottom: "x"') + layer("ReLU", 'bottom: "x"'), 0, 0),
        (weights("Convolution"), 0, 0),
        ('layer: [{ type: "ReLU" input_dim: [1, 2] }, { type: "Split" }]', 0, 0),
        ('layer { type: "ReLU" x { [a.b] { type: "u" } list: [] } }', 0, 0),
        (weights("Convolution", "", "value: 2", "type: 'constant'", 'type: "bilinear"'), 0, 0),
    ],
)
def test_what_the_layers_before_draw_is_counted(
    tmp_path: Path, before: str, train: int, test: int
) -> None:
    assert read(tmp_path, before + LAST, "TRAIN").config.draws_before == train
    found = read(tmp_path, before + LAST, "TEST")
    assert (found.config.draws_before, found.unlike) == (test, None)


@pytest.mark.parametrize(
    ("before", "train", "test"),
    [
        ('layers { name: "before" type: DATA data_param { crop_size: 5 } }', 3, 1),
        ('layers { name: "before" type: IMAGE_DATA image_data_param { mirror: true } }', 3, 3),
        ('layers { name: "before" type: POOLING bottom: "x" }', 0, 0),
    ],
)
def test_old_layers_draw_as_their_upgrade_does(
    tmp_path: Path, before: str, train: int, test: int
) -> None:
    last = LAST.replace("layer {", "layers {").replace('"Data"', "DATA")
    assert read(tmp_path, before + last, "TRAIN").config.draws_before == train
    assert read(tmp_path, before + last, "TEST").config.draws_before == test


def test_layers_behind_and_a_layer_that_draws_nothing_have_none_before(tmp_path: Path) -> None:
    later = layer("Data", transform("mirror: true"))
    plain = LAST.replace("mirror: true", "")
    assert read(tmp_path, LAST + later).config.draws_before == 0
    assert read(tmp_path, later + plain).config.draws_before == 0
    assert read(tmp_path, weights("Convolution", 'type: "xavier"') + plain).unlike is None


@pytest.mark.parametrize(
    "before",
    [
        weights("Convolution", 'type: "xavier"'),
        weights("Convolution", "type: 'constant'", "type: 'gaussian' std: 0.01"),
        layer("LSTM", 'bottom: "x" recurrent_param { weight_filler { type: "uniform" } }'),
        layer("Python", "python_param { }"),
        layer("WindowData", "transform_param { crop_size: 5 }"),
        layer("AnnotatedData", DATA),
        "layer: [" + weights("Convolution", 'type: "msra"').removeprefix("layer") + "]",
        'layer: [{ type: "Split" },{ '
        + weights("Bias", 'type: "msra"').removeprefix("layer {")
        + "]",
    ],
)
def test_what_cannot_be_counted_is_said(tmp_path: Path, before: str) -> None:
    with pytest.warns(PrefetchWarning) as caught:
        found = read(tmp_path, layer("Data", DATA, "first") + before + LAST)

    assert [str(warning.message) for warning in caught] == [found.unlike]
    assert found.unlike is not None
    assert "its crops and mirrors are others than Caffe's" in found.unlike
    assert "sets up layer 'before'" in found.unlike
    assert found.config.draws_before == 1


def test_without_a_seed_nothing_is_warned_of(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read(tmp_path, weights("Convolution", 'type: "xavier"') + LAST, seed=None)
    assert found.unlike is not None


def test_many_layers_are_not_all_named(tmp_path: Path) -> None:
    text = "".join(
        weights("Convolution", 'type: "msra"').replace("before", f"conv{i}") for i in range(9)
    )
    with pytest.warns(PrefetchWarning, match=r"'conv2' \(line 3\), 6 more first, and"):
        read(tmp_path, text + LAST)


def test_a_solvers_test_network_comes_after_its_training_network(tmp_path: Path) -> None:
    text = f"net_param {{\n{LAST}}}\n"
    assert read(tmp_path, text, "TRAIN").unlike is None
    with pytest.warns(PrefetchWarning, match="sets up the solver's training network first"):
        read(tmp_path, text, "TEST")


def test_a_yaml_file_made_of_such_a_layer_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = tmp_path / "net.prototxt"
    net.write_text(layer("Data", DATA) + weights("Convolution", "type: 'msra'") + LAST)
    assert main(["from-prototxt", str(net), "--layer", "last", "--seed", "5"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("warning: layer 'last' (line 3): its crops and mirrors are others")
    comment = " ".join(line[2:] for line in out.splitlines() if line.startswith("# "))
    assert "But layer 'last' (line 3): its crops and mirrors are others than Caffe's" in comment
    assert "\ndraws_before: 1  # by the layers before it" in out
    assert max(map(len, out.splitlines())) <= 100 or "source" in max(out.splitlines(), key=len)


def test_the_yaml_file_of_a_test_layer_that_mirrors_tells_a_solvers_network_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = tmp_path / "net.prototxt"
    net.write_text(LAST)
    assert main(["from-prototxt", str(net), "--phase", "test", "--seed", "5"]) == 0
    assert "\nseed: 5  # of this network by itself; a solver sets up" in capsys.readouterr().out
    assert main(["from-prototxt", str(net), "--phase", "train", "--seed", "5"]) == 0
    assert "\nseed: 5\n" in capsys.readouterr().out


def test_a_misspelt_field_in_a_list_of_layers_is_found(tmp_path: Path) -> None:
    with pytest.raises(prefetch.ConfigError, match="line 2: includde: is no field of a layer"):
        read(tmp_path, 'layer: [{ type: "Split" },\n { includde { } }]\n' + LAST)


def test_a_state_saved_before_layers_before_counted_goes_on_with_its_own_stream() -> None:
    """It was made by the version that seeded every layer as its network's first."""
    state = json.loads((GOLDEN / "layers/two_random.b.earlier.json").read_text())
    with prefetch.open_prototxt(
        GOLDEN / "layers/two_random.prototxt", layer="b", root=GOLDEN, seed=1701
    ) as feed:
        assert feed.config.draws_before == 3
        feed.load_state_dict(state)
        again = feed.state_dict()
        # Options that came later are named besides, with what they were by default.
        later = set(again["config"]) - set(state["config"])
        assert later == set(_LATER_OPTIONS) & set(again["config"])
        for name in later:
            del again["config"][name]
        assert again == state
        served = [batch.data.numpy().tobytes() for batch, _ in zip(feed, range(4), strict=False)]
    assert hashlib.sha256(b"".join(served)).hexdigest()[:16] == "d1ee360603877936"


def test_draws_before_without_caffes_numbers_is_a_contradiction() -> None:
    with pytest.raises(prefetch.ConfigError, match="draws_before has no effect with rng counter"):
        prefetch.FeedConfig(source="db", draws_before=3)
