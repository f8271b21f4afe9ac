"""Published network files: each opens, up to its database, or is refused with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from prefetch import ConfigError, PrefetchWarning, UnsupportedSourceError
from prefetch._config.feed_config import FeedConfig
from prefetch._prototxt.data_layer import read_data_layer

ROOT = Path("/root/of/the/network")


@dataclass(frozen=True)
class Opened:
    """What a layer of a published file opens as; ``stage`` is the network's, where it needs one."""

    name: str
    phase: str
    source: str
    batch_size: int
    transform: dict[str, Any]
    stage: str = ""

    def __str__(self) -> str:
        return f"{self.name}-{self.phase}-{self.stage}"


SCALED = {"scale": 1 / 256}
IMAGENET_MEAN = {"mean_file": ROOT / "data/ilsvrc12/imagenet_mean.binaryproto"}
COLOURS = {"mean_value": [104, 117, 123]}
CIFAR_MEAN = {"mean_file": ROOT / "examples/cifar10/mean.binaryproto"}
LETTERS = {**SCALED, "mean_file": ROOT / "train.binaryproto"}
AUTOENCODER = {"scale": 0.003921568393707275}
IMAGENET = "examples/imagenet/ilsvrc12"
MNIST = "examples/mnist/mnist"

OPENED = [
    Opened(
        "bvlc_alexnet_train_val",
        "TRAIN",
        f"{IMAGENET}_train_lmdb",
        256,
        {"mirror": True, "crop_size": 227, **IMAGENET_MEAN},
    ),
    Opened(
        "bvlc_alexnet_train_val",
        "TEST",
        f"{IMAGENET}_val_lmdb",
        50,
        {"crop_size": 227, **IMAGENET_MEAN},
    ),
    Opened(
        "bvlc_googlenet_train_val",
        "TRAIN",
        f"{IMAGENET}_train_lmdb",
        32,
        {"mirror": True, "crop_size": 224, **COLOURS},
    ),
    Opened(
        "bvlc_googlenet_train_val",
        "TEST",
        f"{IMAGENET}_val_lmdb",
        50,
        {"crop_size": 224, **COLOURS},
    ),
    Opened(
        "cifar10_full_train_test", "TRAIN", "examples/cifar10/cifar10_train_lmdb", 100, CIFAR_MEAN
    ),
    Opened(
        "cifar10_full_train_test", "TEST", "examples/cifar10/cifar10_test_lmdb", 100, CIFAR_MEAN
    ),
    Opened("lenet_consolidated_solver", "TRAIN", f"{MNIST}_train_lmdb", 64, SCALED),
    Opened(
        "lenet_consolidated_solver", "TEST", f"{MNIST}_test_lmdb", 100, SCALED, "test-on-test-set"
    ),
    Opened(
        "lenet_consolidated_solver", "TEST", f"{MNIST}_train_lmdb", 100, SCALED, "test-on-train-set"
    ),
    Opened("lenet_train_test", "TRAIN", f"{MNIST}_train_lmdb", 64, SCALED),
    Opened("lenet_train_test", "TEST", f"{MNIST}_test_lmdb", 100, SCALED),
    Opened("letters_network", "TRAIN", "train", 16, LETTERS),
    Opened("letters_network", "TEST", "validate", 100, LETTERS),
    Opened("mnist_autoencoder", "TRAIN", f"{MNIST}_train_lmdb", 100, AUTOENCODER),
    Opened("mnist_autoencoder", "TEST", f"{MNIST}_train_lmdb", 100, AUTOENCODER, "test-on-train"),
    Opened("mnist_autoencoder", "TEST", f"{MNIST}_test_lmdb", 100, AUTOENCODER, "test-on-test"),
    Opened(
        "nv_resnet50_train_val",
        "TEST",
        f"{IMAGENET}_val_lmdb",
        32,
        {"crop_size": 224, **SCALED, **IMAGENET_MEAN},
    ),
    Opened("v1_layers_lenet_train_test", "TRAIN", "examples/authorship/data/train_lmdb", 8, SCALED),
    Opened("v1_layers_lenet_train_test", "TEST", "examples/authorship/data/test_lmdb", 5, SCALED),
]
REFUSED = [
    ("flickr_style_train_val", "is of type ImageData"),
    ("mnist_siamese_train_test", "names no backend, which is LEVELDB to Caffe"),
    ("nonlinear_train_val", "is of type HDF5Data"),
]


@pytest.fixture
def networks(real_data: Path) -> Path:
    return real_data / "prototxt"


@pytest.mark.parametrize("opened", OPENED, ids=str)
def test_a_published_data_layer_opens(networks: Path, opened: Opened) -> None:
    layer = read_data_layer(
        networks / f"{opened.name}.prototxt",
        phase=opened.phase,
        stages=[opened.stage] if opened.stage else [],
        root=ROOT,
        seed=1701,
    )

    assert layer.config == FeedConfig(
        source=ROOT / opened.source,
        batch_size=opened.batch_size,
        phase="train" if opened.phase == "TRAIN" else "test",
        seed=1701,
        rng="caffe",
        last_batch="wrap",
        shard={"rank": 0, "world_size": 1, "policy": "caffe"},
        transform=opened.transform,
        label_dtype="float32",
        labels=opened.name != "mnist_autoencoder",
    )


def test_what_a_fork_of_caffe_would_do_is_warned_about(networks: Path) -> None:
    with pytest.warns(PrefetchWarning) as caught:
        layer = read_data_layer(networks / "nv_resnet50_train_val.prototxt", root=ROOT, seed=1)

    begin, end = "layer 'data' (line 4; include TRAIN): ", " has no effect; Caffe has no such field"
    assert [str(warning.message) for warning in caught] == [
        f"{begin}data_param.cache on line 14{end}",
        f"{begin}data_param.shuffle on line 15{end}",
    ]
    assert (layer.config.batch_size, layer.config.transform.crop_size) == (256, 224)


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
@pytest.mark.parametrize(("name", "reason"), REFUSED)
def test_a_published_layer_of_another_kind_is_refused_with_the_reason(
    networks: Path, name: str, reason: str, phase: str
) -> None:
    with pytest.raises(UnsupportedSourceError, match=reason):
        read_data_layer(networks / f"{name}.prototxt", phase=phase, seed=1)


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("mnist_autoencoder", ["test-on-train", "test-on-test"]),
        ("lenet_consolidated_solver", ["test-on-train-set", "test-on-test-set"]),
    ],
)
def test_a_published_phase_with_several_stages_is_an_error_that_names_them(
    networks: Path, name: str, stages: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_data_layer(networks / f"{name}.prototxt", phase="TEST", seed=1)

    assert [stage for stage in stages if f"stage {stage})" in str(caught.value)] == stages


def test_every_published_file_is_looked_at_here(networks: Path) -> None:
    looked_at = {opened.name for opened in OPENED} | {name for name, _ in REFUSED}

    assert {path.stem for path in networks.iterdir()} == looked_at
