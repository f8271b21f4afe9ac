"""The options: what they accept, what they refuse, and in which words."""

from __future__ import annotations

import logging
import pickle
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import prefetch
from prefetch import ConfigError, ConfigFault, ConfigNotFoundError, FeedConfig
from prefetch._config.faults import option_paths
from prefetch._config.foreign_names import CALLED_HERE
from prefetch._config.load import load_config
from prefetch._config.schema import option_table
from prefetch.testing import example_database

if TYPE_CHECKING:
    from collections.abc import Iterator


def faults_in(mapping: dict[str, Any], **overrides: Any) -> dict[str, str]:
    """Return the messages by key; every key at fault once."""
    with pytest.raises(ConfigError) as caught:
        load_config({"source": "database", **mapping}, **overrides)
    keys = [fault.key for fault in caught.value.faults]
    assert len(set(keys)) == len(keys)
    return {fault.key: fault.message for fault in caught.value.faults}


def write(folder: Path, text: str) -> Path:
    path = folder / "feed.yaml"
    path.write_text(text, encoding="utf-8")
    return path


# --- what is valid ---------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_documentation() -> None:
    assert load_config({"source": "database"}).model_dump(exclude={"source"}) == {
        "subset": None,
        "batch_size": 64,
        "prefetch": 4,
        "threads": "auto",
        "device": "auto",
        "phase": "train",
        "seed": 0,
        "rng": "counter",
        "draws_before": 0,
        "epochs": None,
        "shuffle": False,
        "last_batch": "partial",
        "shard": {"rank": "auto", "world_size": "auto", "policy": "pad"},
        "transform": {
            "preset": None,
            "random_resized_crop": None,
            "resize": None,
            "pad": 0,
            "crop_size": 0,
            "mirror": False,
            "color_jitter": None,
            "normalize": None,
            "scale": 1.0,
            "mean_value": (),
            "mean_file": None,
            "random_erasing": None,
            "force_color": False,
            "force_gray": False,
            "max_pixels_per_byte": 2048,
            "channels": "stored",
            "layout": "nchw",
            "dtype": "float32",
            "mixup": None,
            "cutmix": None,
            "where": "auto",
        },
        "per_record": None,
        "per_batch": None,
        "label_dtype": "int64",
        "labels": True,
        "num_classes": None,
        "on_bad_record": "raise",
        "quarantine": None,
        "max_bad_records": 100,
        "max_batches_held": 16,
        "stall_warning_s": 30.0,
        "lock": False,
        "cache": {"decoded": None},
    }


@pytest.mark.parametrize(
    "options",
    [
        {"subset": {"start": 0, "stop": 1000}},
        {"subset": {"start": 5}},
        {"subset": {"stop": 5}},
        {"subset": {"start": None, "stop": None}},
        {"subset": {"start": 10, "fraction": 0.9, "seed": 1, "stratify": True}},
        {"subset": {"fraction": 0.9, "seed": 1, "complement": True}},
        {"shard": "auto"},
        {"shard": {"policy": "drop"}},
        {"threads": 8},
        {"device": "cpu"},
        {"device": "simulated"},
        {"device": "cuda"},
        {"device": "cuda:3"},
        {"phase": "test"},
        {"seed": None},
        {"seed": 2**64 - 1},
        {"seed": 2**32 - 1, "rng": "caffe"},
        {"epochs": 90},
        {"last_batch": "wrap", "shard": {"policy": "caffe", "rank": 2, "world_size": 3}},
        {"shuffle": True, "last_batch": "wrap"},
        {"transform": {"scale": [0.5, 1, 2.0], "mean_value": [1, 2, 3]}},
        {"transform": {"scale": [0.5, 1, 2.0], "mean_value": [1]}},
        {"transform": {"scale": 0.5, "mean_value": [1, 2, 3]}},
        {"transform": {"dtype": "uint8", "scale": [1.0, 1.0]}},
        {"transform": {"force_gray": True, "channels": "stored"}},
        {"transform": {"where": "device"}},
        {"label_dtype": "float64"},
        {"labels": False},
        {"on_bad_record": "skip", "max_bad_records": 0},
        {"max_batches_held": 1},
    ],
)
def test_every_documented_value_is_accepted(options: dict[str, Any]) -> None:
    config = load_config({"source": "database", **options})

    assert load_config(dict(config)) == config


def test_whole_numbers_are_accepted_for_real_ones() -> None:
    transform = load_config(
        {"source": "x", "transform": {"scale": 2, "mean_value": [117]}}
    ).transform

    assert (transform.scale, transform.mean_value) == (2.0, (117.0,))
    assert isinstance(transform.scale, float)


def test_numbers_and_arrays_of_numpy_count_as_numbers() -> None:
    config = load_config(
        {
            "source": "x",
            "batch_size": np.int64(32),
            "shuffle": np.True_,
            "transform": {"scale": np.float32(0.5), "mean_value": np.array([1, 2, 3])},
        }
    )

    assert (config.batch_size, config.shuffle) == (32, True)
    assert (config.transform.scale, config.transform.mean_value) == (0.5, (1.0, 2.0, 3.0))


def test_an_open_environment_is_a_source(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "database")) as environment:
        assert load_config({"source": environment}).source == (environment,)
        assert load_config({"source": ["x", environment]}).source[1] is environment


def test_an_open_device_is_a_device() -> None:
    class Device:
        def alloc_host(self) -> None: ...

        def make_stream(self) -> None: ...

    device = Device()

    assert load_config({"source": "x"}, device=device).device is device


def test_a_configuration_is_frozen_and_hashable_and_survives_pickling() -> None:
    config = load_config({"source": "x", "transform": {"mean_value": [1, 2]}})

    with pytest.raises(ValueError, match="frozen"):
        config.batch_size = 3
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - what was just dumped
    assert len({config, load_config(dict(config))}) == 1


# --- paths -----------------------------------------------------------------------------------


def test_paths_in_a_file_are_relative_to_that_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "configs").mkdir()
    path = write(
        tmp_path / "configs",
        "source: [../data/a, b, /c/d]\ntransform: {mean_file: ../mean.binaryproto}\n",
    )

    for name in (path, "../configs/feed.yaml"):
        config = load_config(name)

        assert config.source == (tmp_path / "data/a", tmp_path / "configs/b", Path("/c/d"))
        assert config.transform.mean_file == tmp_path / "mean.binaryproto"


def test_paths_in_a_mapping_and_in_keywords_are_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    path = write(tmp_path / "configs", "source: a\n")

    assert load_config({"source": "a"}).source == (tmp_path / "a",)
    assert load_config(path, source="a").source == (tmp_path / "a",)
    config = load_config(path, source=[Path("a"), "../b"], transform={"mean_file": "m"})
    assert config.source == (tmp_path / "a", tmp_path.parent / "b")
    assert config.transform.mean_file == tmp_path / "m"


def test_a_file_reached_through_a_linked_folder_finds_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "deep/down/configs").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep/down/configs")
    write(tmp_path / "deep/down/configs", "source: ../data\n")

    assert load_config(tmp_path / "link/feed.yaml").source == (tmp_path / "deep/down/data",)


# --- merging ---------------------------------------------------------------------------------


def test_keywords_win_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "source: a\nbatch_size: 8\nseed: 3\n")

    config = load_config(path, batch_size=32)

    assert (config.batch_size, config.seed) == (32, 3)


def test_keywords_that_are_mappings_merge_key_by_key() -> None:
    base = {
        "source": "x",
        "transform": {"crop_size": 24, "mirror": True},
        "subset": {"start": 1, "stop": 9},
    }

    config = load_config(base, transform={"mirror": False, "scale": 2}, subset={"stop": 5})

    assert (config.transform.crop_size, config.transform.mirror) == (24, False)
    assert config.transform.scale == 2
    assert config.subset is not None
    assert (config.subset.start, config.subset.stop) == (1, 5)
    assert load_config(base, subset=None).subset is None
    assert load_config({"source": "x", "subset": None}, subset={"stop": 5}).subset is not None


def test_keywords_merge_into_a_configuration_too_and_without_any_it_is_returned_itself() -> None:
    config = load_config({"source": "x", "transform": {"crop_size": 24}})

    changed = load_config(config, batch_size=3, transform={"mirror": True})

    assert load_config(config) is config
    assert (changed.batch_size, changed.transform.crop_size) == (3, 24)
    assert changed.transform.mirror
    assert load_config(config, transform=changed.transform).transform == changed.transform


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("batch_size", 0, "expected 1 or more, found 0"),
        ("batch_size", True, "expected an integer, found true (a boolean)"),
        ("batch_size", 32.0, "expected an integer, found 32.0; write 32"),
        (
            "batch_size",
            "64",
            "expected an integer, found '64' (text); write the number without quotes",
        ),
        (
            "phase",
            None,
            "expected one of train, test; found null; leave it out for its default, train",
        ),
        (
            "threads",
            None,
            "expected auto, or a number of threads from 1 to 1024; found null; leave it out for",
        ),
        ("batch_size", None, "expected an integer, found null; leave it out for its default, 64"),
        (
            "shuffle",
            None,
            "expected true or false, found null; leave it out for its default, false",
        ),
        ("epochs", "x", "expected an integer or null, found 'x' (text)"),
        ("stall_warning_s", 0, "expected a number above 0, found 0"),
        ("stall_warning_s", -1.5, "expected a number above 0, found -1.5"),
        ("prefetch", 0, "expected 1 or more, found 0"),
        ("threads", 0, "expected auto, or a number of threads from 1 to 1024; found 0"),
        ("threads", 1025, "expected auto, or a number of threads from 1 to 1024; found 1025"),
        ("threads", True, "expected auto, or a number of threads from 1 to 1024; found true (a b"),
        ("threads", "all", "expected auto, or a number of threads from 1 to 1024; found 'all' (t"),
        (
            "device",
            "cdua",
            (
                "expected one of auto, cpu, simulated, cuda, cuda:N; "
                "found 'cdua' (text); did you mean cuda?"
            ),
        ),
        ("device", "cuda:x", "expected one of auto, cpu, simulated, cuda, cuda:N; found 'cuda:x'"),
        ("device", 0, "expected one of auto, cpu, simulated, cuda, cuda:N; found 0"),
        (
            "phase",
            "TRAIN",
            "expected one of train, test; found 'TRAIN' (text); did you mean train?",
        ),
        ("seed", -1, "expected 0 or more, found -1"),
        ("seed", 2**64, "expected 18446744073709551615 or less, found 18446744073709551616"),
        ("seed", 1e3, "expected an integer, found 1000.0; write 1000"),
        ("epochs", 0, "expected 1 or more, found 0"),
        ("shuffle", 1, "expected true or false, found 1"),
        ("shuffle", "off", "expected true or false, found 'off' (text); only true and false, w"),
        ("last_batch", "keep", "expected one of partial, drop, wrap; found 'keep' (text)"),
        ("shard.world_size", 0, "expected 1 or more, found 0"),
        ("shard.rank", -1, "expected 0 or more, found -1"),
        ("shard.rank", "1", "expected auto, or an integer, found '1' (text); write the number"),
        ("shard.world_size", None, "expected auto, or an integer, found null; leave it out for"),
        ("shard", "none", "expected auto, or a mapping of options, found 'none' (text)"),
        ("subset.fraction", 0, "expected a number above 0, found 0"),
        ("subset.fraction", 1.5, "expected 1.0 or less, found 1.5"),
        (
            "shard.policy",
            "paid",
            "expected one of pad, drop, caffe; found 'paid' (text); did you mean pad?",
        ),
        ("subset.start", -1, "expected 0 or more, found -1"),
        ("subset", [0, 5], "expected a mapping of options or null, found [0, 5] (a list)"),
        ("transform.crop_size", -1, "expected 0 or more, found -1"),
        ("transform.scale", [], "expected a number, or a list of one a channel; found [] (a list)"),
        ("transform.scale", "1e-3", "expected a number, or a list of one a channel; found '1e-3'"),
        ("transform.scale", [1, True], "expected a number, or a list of one a channel; found [1,"),
        ("transform.scale", float("nan"), "expected a number, or a list of one a channel; found n"),
        ("transform.scale", 10**400, "expected a number, or a list of one a channel; found 1000"),
        ("transform.scale", 1e300, "expected at most 3.4028235e+38, the largest float32, in size"),
        ("transform.scale", [1, -1e39], "expected at most 3.4028235e+38, the largest float32"),
        (
            "transform.mean_value",
            "117",
            "expected a number, or a list of one a channel, found '117' (text)",
        ),
        (
            "transform.mean_value",
            True,
            "expected a number, or a list of one a channel, found true (a boolean)",
        ),
        ("transform.mean_file", "", "expected the path of a file or folder, found '' (text)"),
        ("transform.mean_file", 3, "expected the path of a file or folder, found 3"),
        (
            "transform.dtype",
            "int8",
            "expected one of float32, float16, bfloat16, uint8; found 'int8' (text)",
        ),
        ("transform.where", "gpu", "expected one of auto, host, device; found 'gpu' (text)"),
        (
            "label_dtype",
            "int",
            (
                "expected one of int64, int32, float32, float64; "
                "found 'int' (text); did you mean int64?"
            ),
        ),
        (
            "on_bad_record",
            "ignore",
            "expected one of raise, skip, quarantine; found 'ignore' (text)",
        ),
        ("max_bad_records", -1, "expected 0 or more, found -1"),
        ("max_batches_held", 0, "expected 1 or more, found 0"),
        ("source", "", "expected the path of a file or folder, found '' (text)"),
        ("source", [], "expected at least one database, found an empty list"),
        ("source", ["a", 5], "expected the path of a file or folder, found 5"),
        ("source", b"a", "expected the path of a file or folder, found"),
        ("source", "a\0b", "no path holds a NUL character, found 'a\\x00b' (text)"),
        (
            "transform",
            None,
            "expected a mapping of options, found null; leave it out for its default",
        ),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(
    key: str, value: object, message: str
) -> None:
    group, _, name = key.rpartition(".")

    ((found_key, found),) = faults_in({group: {name: value}} if group else {key: value}).items()

    assert found_key == key
    assert found.startswith(message)


def test_a_name_is_guessed_from_a_part_of_a_longer_one_and_a_word_from_words_only() -> None:
    assert faults_in({"transform": {"croop": 1}}) == {
        "transform.croop": "is not an option; did you mean transform.crop_size?"
    }
    assert faults_in({"batch": 1}) == {"batch": "is not an option; did you mean batch_size?"}
    assert faults_in({"transform": {"channels": True}}) == {
        "transform.channels": "expected one of stored, rgb, bgr; found true (a boolean)"
    }


@pytest.mark.parametrize("origin", [None, 5, ["source"], b"feed.yaml"])
def test_what_is_no_configuration_at_all_is_a_fault_like_any_other(origin: Any) -> None:
    with pytest.raises(ConfigError, match="expected the path of a YAML file, or the options as"):
        load_config(origin)


@pytest.mark.parametrize(
    ("device", "meant"),
    [("gpu", "cuda"), ("GPU:1", "cuda:1"), ("cuda:x", "cuda"), ("CUDA", "cuda"), ("CPU", "cpu")],
)
def test_a_device_is_guessed_by_what_it_means(device: str, meant: str) -> None:
    assert faults_in({"device": device}) == {
        "device": "expected one of auto, cpu, simulated, cuda, cuda:N; "
        f"found {device!r} (text); did you mean {meant}?"
    }


def test_a_folder_in_the_place_of_a_networks_file_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a file, found a folder"):
        prefetch.open_prototxt(tmp_path)


def test_a_mean_or_scale_is_one_number_or_one_a_channel() -> None:
    one = load_config({"source": "x", "transform": {"mean_value": 104, "scale": 2}}).transform
    several = load_config({"source": "x", "transform": {"mean_value": [104, 117, 123.5]}}).transform
    largest = float(np.finfo(np.float32).max)

    assert (one.mean_value, one.scale) == ((104.0,), 2.0)
    assert several.mean_value == (104.0, 117.0, 123.5)
    assert load_config({"source": "x", "transform": {"scale": largest}}).transform.scale == largest


def test_a_mean_value_that_is_infinite_in_float32_is_refused_by_its_place() -> None:
    ((key, message),) = faults_in({"transform": {"mean_value": [1, 1e39]}}).items()

    assert key == "transform.mean_value[1]"
    assert message.startswith("expected at most 3.4028235e+38, the largest float32, in size")


def test_one_item_of_a_list_is_named_by_its_index() -> None:
    assert faults_in({"transform": {"mean_value": [1, "2", True]}}) == {
        "transform.mean_value[1]": (
            "expected a number, found '2' (text); write the number without quotes"
        ),
        "transform.mean_value[2]": "expected a number, found true (a boolean)",
    }


@pytest.mark.parametrize(
    ("options", "key", "guess"),
    [
        ({"batchsize": 3}, "batchsize", "batch_size"),
        ({"Batch_Size": 3}, "Batch_Size", "batch_size"),
        ({"transform": {"crop": 3}}, "transform.crop", "transform.crop_size"),
        ({"crop_size": 3}, "crop_size", "transform.crop_size"),
        ({"transform": {"batch_size": 3}}, "transform.batch_size", "batch_size"),
        ({"transform.mirror": True}, "transform.mirror", "transform: {mirror: ...}"),
        ({"subset": {"strat": 3}}, "subset.strat", "subset.start"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_valid_name(
    options: dict[str, Any], key: str, guess: str
) -> None:
    assert faults_in(options) == {key: f"is not an option; did you mean {guess}?"}


def test_an_unknown_option_like_no_other_is_refused_with_all_valid_names() -> None:
    assert faults_in({"shard": {"zzz": 1}}) == {
        "shard.zzz": "is not an option; valid here are rank, world_size, policy"
    }


def test_an_option_of_another_loader_is_answered_by_what_it_is_called_here() -> None:
    assert {
        "drop_last": "is not an option: write last_batch: drop",
        "prefetch_factor": "is not an option: write prefetch: N, the number of batches kept ready",
    } == faults_in({"drop_last": True, "prefetch_factor": 2})


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("RandomResizedCrop", "did you mean transform.random_resized_crop?"),
        ("ColorJitter", "did you mean transform.color_jitter?"),
        ("RandomErasing", "did you mean transform.random_erasing?"),
        ("random_crop", "write transform.crop_size: N, with transform.pad: M before it"),
        ("RandomCrop", "write transform.crop_size: N, with transform.pad: M before it"),
        ("CenterCrop", "the centre in phase test"),
        ("RandomHorizontalFlip", "write transform.mirror: train"),
        ("std", "write transform.normalize: {mean: [...], std: [...]} for pixels from 0 to 1"),
        ("image_size", "write transform.random_resized_crop: {size: N} to train"),
        ("reprob", "write transform.random_erasing"),
        ("Mixup", "did you mean transform.mixup?"),
        ("MixUp", "write transform.mixup: {alpha: 0.2}"),
        ("random_area", "write transform.random_resized_crop"),
        ("augment", "write transform.preset: imagenet-train"),
    ],
)
def test_transformations_of_other_libraries_are_answered_by_the_options_there_are(
    name: str, answer: str
) -> None:
    assert answer in faults_in({name: 32})[name]
    assert answer in faults_in({"transform": {name: 32}})[f"transform.{name}"]


@pytest.mark.parametrize("name", ["resize", "normalize", "random_resized_crop", "color_jitter"])
def test_an_option_of_the_transformation_among_the_others_is_sent_there(name: str) -> None:
    assert {name: f"is not an option; did you mean transform.{name}?"} == faults_in({name: {}})


def test_what_is_said_of_other_loaders_names_options_that_there_are() -> None:
    named = re.findall(r"write ([\w.]+)", " ".join(CALLED_HERE.values()))
    assert set(named) <= set(option_paths(FeedConfig))
    assert not CALLED_HERE.keys() & set(option_paths(FeedConfig))


@pytest.mark.parametrize("is_file", [True, False])
def test_any_number_of_unknown_options_takes_linear_time_and_a_bounded_message(
    tmp_path: Path, *, is_file: bool
) -> None:
    mapping = {"source": "db"} | {f"k{number}": 1 for number in range(5000)}
    text = "".join(f"{name}: {value}\n" for name, value in mapping.items())
    begun = time.process_time()
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text) if is_file else mapping)

    assert time.process_time() - begun < 10  # it was 25 s
    assert 5000 == len(caught.value.faults)
    assert "5000 faults in the configuration" in str(caught.value)
    assert str(caught.value).endswith("\n  and 4980 more")
    assert len(str(caught.value)) < 3000


@pytest.mark.parametrize(
    "option",
    ["batch_size", "crop_size", "labels", "lock", "mirror", "scale", "seed", "source", "threads"],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_that_python_does_not_write_out_is_a_fault(option: str, sign: int) -> None:
    inner = {option: sign * 10**100000}
    is_pixels = option in {"crop_size", "mirror", "scale"}
    ((_, message),) = faults_in({"transform": inner} if is_pixels else inner).items()
    assert "found an integer of 332193 bits" in message


def test_every_integer_has_an_upper_bound() -> None:
    limits = {
        "batch_size": 2**24,
        "crop_size": 2**31 - 1,
        "draws_before": 2**20,
        "max_pixels_per_byte": 2**28,
        "num_classes": 2**24,
        "prefetch": 1024,
        "seed": 2**64 - 1,
        "shorter": 65535,
        "size": 65535,
        "pad": 65535,
        "resize": 65535,
    }
    for name, schema in _integers(FeedConfig.model_json_schema()):
        assert limits.get(name, 2**53) == schema.get("maximum"), name


def _integers(schema: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        if schema.get("type") == "integer" and name != "threads":
            yield name, schema
        for inner_name, inner in schema.items():
            yield from _integers(inner, name if inner_name in {"anyOf", "items"} else inner_name)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _integers(inner, name)


@pytest.mark.parametrize(("name", "shown"), [("", ""), ("\ud800", r"\ud800"), (10, "10")])
@pytest.mark.parametrize("group", [None, "transform"])
def test_a_name_that_no_option_has_is_a_fault_whatever_it_is_of(
    name: Any, shown: str, group: str | None
) -> None:
    options = {name: {"a": 1}}
    (key,) = faults_in(options if group is None else {group: options})
    assert key == (shown if group is None else f"{group}.{shown}")


def test_options_that_hold_themselves_are_a_fault() -> None:
    endless: dict[str, Any] = {}
    endless["transform"] = endless
    assert {"": "nested more than 20 deep"} == faults_in(endless)


@pytest.mark.parametrize(
    "config",
    [
        {"\x1b[2J": 1},
        {"source": "\x1b[2J"},
        {"device": "\x1b[2J"},
        "\x1b[2J",
        "\x1b[2J.yaml",
    ],
)
def test_no_error_of_a_configuration_steers_a_terminal(config: Any) -> None:
    with pytest.raises(prefetch.PrefetchError) as caught:
        prefetch.open(config)
    assert r"\x1b[2J" in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_name_in_yaml_that_steers_a_terminal_is_escaped(tmp_path: Path) -> None:
    path = write(tmp_path, 'source: db\n"\\e[2J": 1\n')
    with pytest.raises(ConfigError, match=r"line 2: \\x1b\[2J: is not an option"):
        prefetch.open(path)


def test_a_tilde_is_the_home_of_the_user_in_files_mappings_and_names_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, "source: ~/db\ntransform: {mean_file: ~/m.npy}\nquarantine: ~\n")
    config = load_config("~/feed.yaml")
    assert (tmp_path / "db",) == config.source
    assert tmp_path / "m.npy" == config.transform.mean_file
    assert (tmp_path / "db",) == load_config({"source": "~/db"}).source


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("$HOME/db", "variables such as $HOME are not replaced in paths"),
        ("C:\\data\\db", "paths of Windows are not read"),
    ],
)
def test_a_path_that_means_something_elsewhere_is_answered_so(source: str, words: str) -> None:
    with pytest.raises(prefetch.DatabaseNotFoundError, match=re.escape(words)):
        prefetch.open({"source": source})


def test_a_url_is_no_local_path(tmp_path: Path) -> None:
    message = (
        "expected a local path, found the URL 's3://bucket/db'; URLs are not read yet, copy it here"
    )
    assert {"source": message} == faults_in({"source": "s3://bucket/db"})
    with pytest.raises(ConfigError, match="line 1: source: expected a local path"):
        load_config(write(tmp_path, "source: [a, s3://bucket/db]\n"))


def test_opening_nothing_is_answered_by_an_example(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'as in prefetch.open\("/data/train_lmdb", batch_size='):
        prefetch.open()
    with pytest.raises(ConfigError, match=re.escape(f'open(source="{tmp_path}")')):
        prefetch.open(config=tmp_path)


def test_a_name_that_is_no_text_is_an_unknown_option() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({"source": "x", "transform": {1: 2}})

    assert [fault.key for fault in caught.value.faults] == ["transform.1"]


def test_the_source_is_required() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({"batch_size": 3})

    (fault,) = caught.value.faults
    assert fault.key == "source"
    assert fault.message.startswith("is missing, and has no default. LMDB of Datum records")


@pytest.mark.parametrize(
    ("options", "key", "words"),
    [
        ({"subset": {"start": 5, "stop": 5}}, "subset.stop", "start 5 and stop 5"),
        ({"shard": {"rank": 2, "world_size": 2}}, "shard.rank", "rank 2 and world_size 2"),
        ({"seed": None, "shard": {"rank": 0, "world_size": 2}}, "seed", "world_size 2"),
        ({"shard": {"rank": 1}}, "shard.rank", "expected both rank and world_size, or neither"),
        ({"shard": {"world_size": 2}}, "shard.world_size", "or neither of them, and found no rank"),
        ({"subset": {"complement": True}}, "subset.complement", "no effect without subset.fract"),
        ({"subset": {"seed": 1}}, "subset.seed", "no effect without subset.fraction"),
        ({"subset": {"stratify": True, "start": 3}}, "subset.stratify", "no effect without"),
        (
            {"labels": False, "subset": {"fraction": 0.5, "stratify": True}},
            "subset.stratify",
            "stratify needs labels, and labels is false",
        ),
        (
            {"label_dtype": "float32", "subset": {"fraction": 0.5, "stratify": True}},
            "subset.stratify",
            "stratify needs labels that are whole numbers, and label_dtype is float32",
        ),
        ({"seed": 2**32, "rng": "caffe"}, "seed", "4294967295"),
        ({"shard": {"policy": "caffe"}}, "shard.policy", "last_batch wrap"),
        ({"last_batch": "drop", "shard": {"policy": "caffe"}}, "shard.policy", "last_batch drop"),
        (
            {"shuffle": True, "last_batch": "wrap", "shard": {"policy": "caffe"}},
            "shuffle",
            "policy caffe",
        ),
        (
            {"transform": {"mean_value": [1], "mean_file": "m"}},
            "transform.mean_value",
            "mean_file",
        ),
        (
            {"transform": {"mean_value": [1, 2, 3], "scale": [1, 2]}},
            "transform.scale",
            "mean_value 3",
        ),
        (
            {"transform": {"force_color": True, "force_gray": True}},
            "transform.force_gray",
            "force_color",
        ),
        ({"transform": {"force_gray": True, "channels": "rgb"}}, "transform.channels", "rgb"),
        ({"transform": {"dtype": "uint8", "mean_value": [1]}}, "transform.mean_value", "uint8"),
        ({"transform": {"dtype": "uint8", "mean_file": "m"}}, "transform.mean_file", "uint8"),
        ({"transform": {"dtype": "uint8", "scale": 2}}, "transform.scale", "uint8"),
        ({"transform": {"dtype": "uint8", "scale": [1, 2]}}, "transform.scale", "uint8"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: dict[str, Any], key: str, words: str
) -> None:
    ((found_key, message),) = faults_in(options).items()

    assert found_key == key
    assert words in message


def test_a_lock_is_refused_where_the_environment_is_open_already(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "database")) as environment:
        faults = faults_in({"source": environment, "lock": True})

    assert list(faults) == ["lock"]


NAMES = [row.name.rpartition(".")[2] for row in option_table()]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["auto", "caffe", "wrap", "train", "rgb", "uint8"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*NAMES, "", "a.b"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@settings(max_examples=50, deadline=None)
@given(
    options=st.dictionaries(
        st.sampled_from([*NAMES, "shard", "transform", "transform.mirror"]), VALUES, max_size=6
    )
)
def test_whatever_is_given_makes_a_configuration_or_an_error_with_faults(
    options: dict[str, Any],
) -> None:
    config: FeedConfig | None = None
    faults: tuple[str, ...] = ()
    try:
        config = load_config(options)
    except ConfigError as error:
        # An unknown option with a dot in its name is spelt like one of a group.
        faults = tuple(f"{fault.key}: {fault.message}" for fault in error.faults)

    assert len(set(faults)) == len(faults)
    assert bool(faults) == (config is None)
    assert config is None or load_config(dict(config)) == config


# --- how it is reported ----------------------------------------------------------------------


def test_every_fault_of_a_file_is_reported_at_once_in_its_order_with_its_line(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path,
        "sorce: a\n"
        "prefetch: 0\n"
        "seed: 1\n"
        "transform:\n"
        "  scale: '1e-3'\n"
        "  mirror: off\n"
        "  mean_value: [1]\n"
        "  mean_file: mean.binaryproto\n"
        "seed: 2\n"
        "epochs: !!int 5\n"
        "shard: {rank: 1}\n",
    )

    with pytest.raises(ConfigError) as caught:
        load_config(path)

    assert caught.value.origin == str(path)
    assert [(fault.line, fault.key) for fault in caught.value.faults] == [
        (1, "sorce"),
        (2, "prefetch"),
        (5, "transform.scale"),
        (6, "transform.mirror"),
        (7, "transform.mean_value"),
        (9, "seed"),
        (10, "epochs"),
        (11, "shard.rank"),
        (None, "source"),
    ]
    text = str(caught.value)
    assert text.startswith(f"{path}: 9 faults in the configuration\n  line 1: sorce: is not an op")
    assert "did you mean source?" in text
    assert "'1e-3' (text)" in text


def test_a_key_given_twice_has_its_first_value_checked_and_a_refused_value_is_not_missing(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, "source: !x y\nprefetch: 0\nprefetch: 2\n")

    with pytest.raises(ConfigError) as caught:
        load_config(path)

    assert [(fault.line, fault.key) for fault in caught.value.faults] == [
        (1, "source"),
        (2, "prefetch"),
        (3, "prefetch"),
    ]


def test_the_faults_of_a_mapping_are_in_its_order() -> None:
    keys = faults_in(
        {
            "shard": {"rank": 5},
            "phase": "x",
            "transform": {"mean_file": "m", "mean_value": [1], "crop_size": -1},
            "batch_size": 0,
        }
    )

    assert list(keys) == [
        "shard.rank",
        "phase",
        "transform.mean_value",
        "transform.crop_size",
        "batch_size",
    ]


def test_a_fault_of_a_keyword_has_no_line_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "source: a\nbatch_size: 8\ntransform: {crop_size: 3}\n")

    with pytest.raises(ConfigError) as caught:
        load_config(path, batch_size=0, transform={"crop_size": -1, "crop": 1})

    assert [(fault.key, fault.line) for fault in caught.value.faults] == [
        ("batch_size", None),
        ("transform.crop_size", None),
        ("transform.crop", None),
    ]


def test_what_contradicts_an_option_at_fault_waits_until_that_is_put_right() -> None:
    assert list(faults_in({"last_batch": "Wrap", "shard": {"policy": "caffe"}})) == ["last_batch"]


def test_a_fault_of_a_configuration_made_by_hand_is_the_same_error() -> None:
    with pytest.raises(ConfigError, match=r"FeedConfig: 1 fault .*\n  batch_size: expected 1 or"):
        FeedConfig(source="x", batch_size=0)


def test_a_configuration_is_public_under_its_public_name() -> None:
    assert prefetch.FeedConfig is FeedConfig


@pytest.mark.parametrize(
    ("name", "message"),
    [(".", "found a folder"), ("net.prototxt", "open_prototxt")],
)
def test_what_is_no_configuration_file_is_refused_with_what_to_do(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(name)

    assert [fault.key for fault in caught.value.faults] == [""]
    assert message in caught.value.faults[0].message


def test_a_missing_file_is_a_file_not_found_error(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.yaml", tmp_path / "nowhere" / "a.yaml", "nowhere\0.yaml"):
        with pytest.raises(ConfigNotFoundError, match=r"nowhere.*: .*; give a YAML file") as caught:
            load_config(path)
        assert isinstance(caught.value, FileNotFoundError)
        assert isinstance(caught.value, ConfigError)


def test_a_prefetch_of_1_is_valid_and_warned_about_once_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "prefetch"):
        config = load_config({"source": "x", "prefetch": 1})
        assert load_config(config).prefetch == 1
        load_config({"source": "x", "prefetch": 2})

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.records[0].message.startswith("prefetch is 1")


def test_one_batch_held_is_valid_and_warned_about_once_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The loop's variable holds it already."""
    with caplog.at_level(logging.WARNING, "prefetch"):
        config = load_config({"source": "x", "max_batches_held": 1})
        assert load_config(config).max_batches_held == 1
        load_config({"source": "x", "max_batches_held": 2})

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.records[0].message.startswith("max_batches_held is 1: in 'for batch in feed'")
    assert "batch.release()" in caplog.records[0].message


def test_a_fault_without_a_key_is_about_the_file() -> None:
    assert str(ConfigFault("", "expected UTF-8 text", 3)) == "line 3: expected UTF-8 text"


# --- faults that only opening brings to light ------------------------------------------------


def opening_fault(config: Any, **overrides: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        prefetch.open(config, **overrides)
    return caught.value


def test_a_fault_found_at_opening_names_the_configurations_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "feed.yaml"
    with example_database(5) as path:
        file.write_text(f"source: {path}\nsubset:\n  start: 5000\n", encoding="utf-8")
        error = opening_fault(str(file))
        assert (error.origin, error.faults[0].key, error.faults[0].line) == (
            str(file),
            "subset.start",
            3,
        )
        assert str(path) in error.faults[0].message
        file.write_text(f"source: {path}\ntransform:\n  mean_file: no.npy\n", encoding="utf-8")
        for error in (opening_fault(str(file)), opening_fault(load_config(file, batch_size=2))):
            assert (error.origin, error.faults[0].line) == (str(file), 3)
            assert f"{tmp_path / 'no.npy'}: the mean file cannot be read" in str(error)
        elsewhere = opening_fault(str(file), transform={"mean_file": str(tmp_path / "x.npy")})
        assert elsewhere.origin == str(tmp_path / "x.npy")


def test_a_mean_file_that_is_not_there_names_the_networks_file_and_line(tmp_path: Path) -> None:
    net = tmp_path / "net.prototxt"
    with example_database(5) as path:
        net.write_text(
            'layer { name: "d" type: "Data" top: "data"\n'
            f'data_param {{ source: "{path}" batch_size: 4 backend: LMDB }}\n'
            'transform_param {\n mean_file: "/no.npy" } }',
            encoding="utf-8",
        )
        with pytest.raises(ConfigError) as caught:
            prefetch.open_prototxt(net, seed=1)

    (fault,) = caught.value.faults
    assert (caught.value.origin, fault.key, fault.line) == (
        str(net),
        "transform_param.mean_file",
        4,
    )


def test_where_it_was_written_is_no_part_of_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "feed.yaml"
    file.write_text("source: /db\n", encoding="utf-8")

    assert load_config(file) == FeedConfig(source="/db")
    assert repr(load_config(file)) == repr(FeedConfig(source="/db"))
    assert load_config(file).model_dump() == FeedConfig(source="/db").model_dump()
