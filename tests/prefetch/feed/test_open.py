"""What `prefetch.open` takes: a database, a configuration, a network's file, and options beside."""

from __future__ import annotations

import inspect
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import lmdb
import pytest
from databases import images_fixture

import prefetch
from prefetch import ConfigError, ConfigNotFoundError, FeedConfig
from prefetch._config.foreign_names import CALLED_HERE
from prefetch._config.keywords import FeedKeywords
from prefetch._config.schema import option_table

if TYPE_CHECKING:
    from collections.abc import Callable

_NETWORK = """
layer {{
  name: "d" type: "Data" top: "data" top: "label" include {{ phase: {phase} }}
  transform_param {{ mirror: true }}
  data_param {{ source: "{source}" batch_size: 3 backend: LMDB }}
}}
"""

source = images_fixture(4)


def keys_of(what: Any = None, **options: Any) -> list[bytes]:
    """Return the keys of the first batch."""
    with prefetch.open(what, device="cpu", **options) as feed:
        return list(next(iter(feed)).keys)


def faults_of(what: Any = None, **options: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        prefetch.open(what, **options)
    return {fault.key: fault.message for fault in caught.value.faults}


# --- databases ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "named",
    [
        str,
        Path,
        lambda path: path / "data.mdb",
        lambda path: [str(path)],
        lambda path: (path,),
        lambda path: f"{path.parent}/d?",
        lambda path: f"{path.parent}/**/data.mdb",
    ],
    ids=["text", "path", "file", "list", "tuple", "pattern", "pattern_of_folders"],
)
def test_a_database_is_opened_by_whatever_names_it(
    source: Path, named: Callable[[Path], Any]
) -> None:
    assert 4 == len(keys_of(named(source)))
    assert 2 == len(keys_of(named(source), batch_size=2))


def test_an_open_environment_is_a_source(source: Path) -> None:
    with lmdb.open(str(source), readonly=True, lock=False) as environment:
        assert 4 == len(keys_of(environment))
        assert 4 == len(keys_of([environment]))


def test_a_file_that_is_a_database_is_one_whatever_its_name(source: Path, tmp_path: Path) -> None:
    for name in ("train.mdb", "train.lmdb", "train"):
        shutil.copy(source / "data.mdb", tmp_path / name)
        assert 4 == len(keys_of(tmp_path / name))


def test_databases_of_a_pattern_are_read_in_the_order_of_their_names(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in ("10", "02", "01"):
        shutil.copytree(source, tmp_path / f"part{number}_lmdb")
    (tmp_path / "part11_lmdb-lock").touch()  # beside a single file
    monkeypatch.chdir(tmp_path)
    with prefetch.open("part*_lmdb") as feed:
        assert tuple(tmp_path / f"part{n}_lmdb" for n in ("01", "02", "10")) == feed.config.source
    (tmp_path / "feed.yaml").write_text("source: part0*_lmdb\n")
    monkeypatch.chdir("/")
    with prefetch.open(tmp_path / "feed.yaml") as feed:
        assert 8 == feed.num_records


def test_a_name_with_the_characters_of_a_pattern_is_a_name_where_it_is_there(
    source: Path, tmp_path: Path
) -> None:
    shutil.copytree(source, tmp_path / "[a]*")
    shutil.copytree(source, tmp_path / "a_lmdb")
    assert 4 == len(keys_of(tmp_path / "[a]*"))


def test_a_pattern_that_matches_nothing_is_a_database_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(prefetch.DatabaseNotFoundError, match="as a pattern it matches no path"):
        prefetch.open(tmp_path / "*_lmdb")


def test_a_tilde_is_the_user_s_home_in_what_is_opened(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(source.parent))
    assert 4 == len(keys_of("~/db"))
    assert 4 == len(keys_of(source="~/db"))
    assert 4 == len(keys_of(["~/db"]))


def test_a_folder_of_class_folders_is_answered_by_what_makes_a_database(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
    with pytest.raises(prefetch.DatabaseNotFoundError, match=r"class folders: ringfeed convert"):
        prefetch.open(tmp_path / "pets")


def test_an_image_is_answered_by_what_makes_a_database(tmp_path: Path) -> None:
    (tmp_path / "cat.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(200))
    with pytest.raises(prefetch.SourceError, match=r"a JPEG image; .* ringfeed convert"):
        prefetch.open(tmp_path / "cat.jpg")


def test_a_url_is_a_source_which_is_not_read_yet() -> None:
    for url in ("s3://bucket/train_lmdb", "https://host/data.mdb", "s3://bucket/feed.yaml"):
        (message,) = faults_of(url).values()
        assert message.startswith(f"expected a local path, found the URL '{url}'; URLs are not")


# --- configurations -------------------------------------------------------------------------------


def test_a_configuration_is_a_file_a_mapping_or_a_checked_one(source: Path, tmp_path: Path) -> None:
    texts = {"feed.yaml": "batch_size: 3\n", "feed.YML": "", "feed.conf": "", "feed": ""}
    for name, text in texts.items():
        (tmp_path / name).write_text(f"source: {source}\n{text}")
    for what, num in (
        (tmp_path / "feed.yaml", 3),
        (str(tmp_path / "feed.YML"), 4),
        (tmp_path / "feed.conf", 4),
        (tmp_path / "feed", 4),
        ({"source": source, "batch_size": 1}, 1),
        (FeedConfig(source=source, batch_size=2), 2),
    ):
        assert num == len(keys_of(what))
        assert num == len(keys_of(config=what))
        assert 1 == len(keys_of(what, batch_size=1))


def test_options_alone_are_enough(source: Path) -> None:
    assert 3 == len(keys_of(source=source, batch_size=3))
    with pytest.raises(ConfigError, match=r"^options: 1 fault.*\n  source: is missing"):
        prefetch.open(batch_size=3)
    with pytest.raises(ConfigError, match=r"^options: .*\n  transform.crop_size: .*the crop"):
        prefetch.open(source, transform={"crop_size": 100})


def test_options_that_are_mappings_merge_key_by_key(source: Path) -> None:
    given = {"source": source, "transform": {"mirror": True, "scale": 2.0}}
    with prefetch.open(given, transform={"scale": 1.0}) as feed:
        assert (True, 1.0) == (feed.config.transform.mirror, feed.config.transform.scale)


def test_paths_of_keywords_start_from_the_working_directory(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "feed.yaml").write_text(f"source: {os.path.relpath(source, tmp_path)}")
    monkeypatch.chdir(source.parent)
    assert 4 == len(keys_of(tmp_path / "configs" / "feed.yaml", source="db"))


@pytest.mark.parametrize("name", ["train_lmdb", "digits", "", "no/where", "$HOME/db"])
def test_a_text_that_names_nothing_is_answered_by_all_that_may_be_named(name: str) -> None:
    with pytest.raises(ConfigNotFoundError, match=r"\(.yaml\), .*\(.prototxt\), or a database: i"):
        prefetch.open(name)


def test_a_variable_in_a_path_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/")
    with pytest.raises(ConfigNotFoundError, match=r"variables such as \$HOME are not replaced"):
        prefetch.open("$HOME/train_lmdb")
    with pytest.raises(ConfigNotFoundError, match=r"variables such as \$HOME are not replaced"):
        prefetch.open("$HOME/train.yaml")


def test_two_things_to_open_are_refused(source: Path, tmp_path: Path) -> None:
    assert ["source"] == list(faults_of(source, source=source))
    assert ["config"] == list(faults_of(source, config={"source": source}))
    assert ["config"] == list(faults_of({"source": source}, config={"source": source}))
    (tmp_path / "feed.yaml").write_text("source: elsewhere\n")
    assert 4 == len(keys_of(tmp_path / "feed.yaml", source=source))
    assert 4 == len(keys_of(config=tmp_path / "feed.yaml", source=source))


def test_a_database_by_the_name_of_a_configuration_is_answered(source: Path) -> None:
    (message,) = faults_of(config=source).values()
    assert f'prefetch.open(source="{source}")' in message


# --- networks -------------------------------------------------------------------------------------


@pytest.fixture
def network(source: Path, tmp_path: Path) -> Path:
    path = tmp_path / "net.prototxt"
    path.write_text("".join(_NETWORK.format(source=source, phase=p) for p in ("TRAIN", "TEST")))
    return path


def test_a_network_is_served_as_by_open_prototxt(network: Path) -> None:
    with (
        prefetch.open(network, seed=1) as feed,
        prefetch.open_prototxt(network, seed=1) as same,
    ):
        assert same.config == feed.config
        batch, other = next(iter(feed)), next(iter(same))
        assert other.data.numpy().tobytes() == batch.data.numpy().tobytes()


def test_a_network_s_phase_is_written_in_either_case(network: Path) -> None:
    for phase in ("train", "TRAIN", "test", "TEST"):
        with prefetch.open(network, seed=1, phase=phase) as feed:
            assert phase.lower() == feed.config.phase


def test_a_network_s_defaults_are_caffe_s(network: Path) -> None:
    with prefetch.open(config=network) as feed:
        config = feed.config
    assert (None, "caffe", "wrap", "float32") == (
        config.seed,
        config.rng,
        config.last_batch,
        config.label_dtype,
    )
    assert (0, 1, "caffe") == (config.shard.rank, config.shard.world_size, config.shard.policy)


def test_options_override_a_network_s(
    network: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(source, tmp_path / "other_lmdb")
    monkeypatch.chdir(tmp_path)
    with prefetch.open(
        network,
        seed=1,
        source="other_lmdb",
        batch_size=2,
        shard={"rank": 1, "world_size": 2},
        label_dtype="int64",
        transform={"scale": 2.0},
        max_batches_held=3,
    ) as feed:
        config = feed.config
    assert (tmp_path / "other_lmdb",) == config.source
    assert (2, 1, 2, "caffe") == (
        config.batch_size,
        config.shard.rank,
        config.shard.world_size,
        config.shard.policy,
    )
    assert ("int64", 3) == (config.label_dtype, config.max_batches_held)
    assert (True, 2.0) == (config.transform.mirror, config.transform.scale)


def test_a_network_s_shard_may_be_that_of_the_surroundings(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with prefetch.open(network, seed=1, shard="auto") as feed:
        assert (1, 2, "caffe") == (feed.rank, feed.world_size, feed.config.shard.policy)
    with prefetch.open(network, seed=1, shard={"rank": 0, "world_size": 2}) as feed:
        assert (0, 2, "caffe") == (feed.rank, feed.world_size, feed.config.shard.policy)


@pytest.mark.parametrize("last_batch", ["partial", "drop"])
def test_a_network_may_be_served_in_epochs(
    network: Path, last_batch: Literal["partial", "drop"]
) -> None:
    with prefetch.open(network, seed=1, last_batch=last_batch, rng="counter") as feed:
        sizes = [len(batch) for batch in feed]
    assert [3, 1][: len(sizes)] == sizes
    assert ("partial" == last_batch) == (len(sizes) == 2)


def test_a_source_given_beside_it_stands_in_for_the_one_that_a_network_lacks(
    source: Path, tmp_path: Path
) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text('layer { name: "d" type: "Data" top: "d" data_param { batch_size: 3 } }')
    assert 3 == len(keys_of(path, source=source, seed=1))


def test_a_fault_of_an_option_beside_a_network_is_not_blamed_on_the_file(network: Path) -> None:
    options: Any = {"batch_size": 0, "transform": {"crop_size": -1}, "batch_sise": 2}
    with pytest.raises(ConfigError) as caught:
        prefetch.open(network, **options)
    assert [("batch_size", None), ("transform.crop_size", None), ("batch_sise", None)] == [
        (fault.key, fault.line) for fault in caught.value.faults
    ]
    assert ["shard"] == list(faults_of(network, shard={"rank": 1, "world_size": 2}, rank=1))


def test_arguments_for_networks_are_answered_where_there_is_none(source: Path) -> None:
    faults = faults_of(source, layer="d", stages=["a"], rank=1)
    assert "only a network's file (.prototxt) has it" in faults["layer"]
    assert "only a network's file (.prototxt) has it" in faults["stages"]
    assert "shard.rank" in faults["rank"]


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resize", "random_resized_crop", "normalize", "mixup"])
def test_an_option_of_the_transformation_that_stands_at_the_top_is_named(
    source: Path, name: str
) -> None:
    (message,) = faults_of(source, **{name: 1}).values()
    assert message == f"is not an option; did you mean transform.{name}?"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("drop_last", "write last_batch: drop"),
        ("num_workers", "write threads: N"),
        ("pin_memory", "always in pinned memory"),
        ("collate_fn", "or per_batch: one of (images, labels, rng)"),
        ("sampler", "write shuffle: true"),
        ("batch_sampler", "write shuffle: true"),
        ("prefetch_factor", "write prefetch: N"),
        ("persistent_workers", "leave it out"),
        ("worker_init_fn", "write seed: N"),
        ("generator", "write seed: N"),
        ("set_epoch", "call feed.set_epoch(n)"),
        ("buffer_size", "write prefetch: N"),
        ("num_parallel_calls", "write threads: N"),
        ("shuffle_buffer_size", "shuffle: true"),
        ("num_threads", "write threads: N"),
        ("device_id", "write device: cuda:N"),
    ],
)
def test_options_of_other_loaders_are_answered_by_what_they_are_called_here(
    source: Path, name: str, words: str
) -> None:
    (message,) = faults_of(source, **{name: 1}).values()
    assert message.startswith("is not an option: ")
    assert words in message
    assert "valid here are" not in message
    assert CALLED_HERE[name] in message


def test_a_function_for_a_transform_is_answered(source: Path) -> None:
    (message,) = faults_of(source, transform=lambda image: image).values()
    assert "write per_record: a function of (image, label, rng), or per_batch" in message


@pytest.mark.parametrize("function", [prefetch.open, FeedConfig])
def test_help_lists_every_option_with_its_text(function: Any) -> None:
    text = " ".join((inspect.getdoc(function) or "").split())
    for row in option_table():
        assert f"{row.name} (" in text
        assert " ".join(row.description.split()) in text
    parameters = inspect.signature(function).parameters
    assert parameters.keys() >= FeedKeywords.__annotations__.keys()


def test_the_keywords_are_the_options() -> None:
    assert list(FeedConfig.model_fields) == list(FeedKeywords.__annotations__)
