"""shard: auto: which share of each epoch a feed serves, by what has started its process."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import prefetch
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_database(tmp_path / "db", fingerprinted_images(10))


@pytest.fixture
def _torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's process is rank 1 of 3."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")


def join_group(monkeypatch: pytest.MonkeyPatch, rank: int, world_size: int) -> None:
    """Have the process in an initialised group of PyTorch's."""
    group = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: rank,
        get_world_size=lambda: world_size,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)


def _records(feed: prefetch.Feed) -> list[int]:
    return [index for batch in feed for index in batch.indices.tolist()]


@pytest.mark.usefixtures("_torchrun")
@pytest.mark.parametrize("options", [{}, {"shard": "auto"}, {"shard": {"rank": "auto"}}])
def test_a_feed_serves_the_share_that_its_process_was_started_for(
    source: Path, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "prefetch")
    with prefetch.open({"source": source}, **options) as feed:
        assert (1, 3) == (feed.rank, feed.world_size)
        assert ("auto", "auto") == (feed.config.shard.rank, feed.config.shard.world_size)
        assert [1, 4, 7, 0] == _records(feed)
        assert 3 == feed.state_dict()["world_size"]
    assert "shard: auto resolved to rank 1 of 3, by RANK and WORLD_SIZE" in caplog.messages


def test_a_process_that_was_started_alone_serves_everything(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "prefetch")
    with prefetch.open({"source": source}) as feed:
        assert (0, 1, list(range(10))) == (feed.rank, feed.world_size, _records(feed))
    assert any(line.startswith("shard: auto resolved to rank 0 of 1") for line in caplog.messages)


@pytest.mark.usefixtures("_torchrun")
def test_an_explicit_shard_wins_in_silence(source: Path) -> None:
    shard = {"rank": 1, "world_size": 2}
    with prefetch.open({"source": source}, shard=shard) as feed:
        assert (1, 2, [1, 3, 5, 7, 9]) == (feed.rank, feed.world_size, _records(feed))


@pytest.mark.usefixtures("_torchrun")
def test_a_feed_for_one_process_among_several_is_warned_of(source: Path) -> None:
    with pytest.warns(prefetch.PrefetchWarning, match="is rank 1 of 3 by RANK and WORLD_SIZE"):
        feed = prefetch.open({"source": source}, shard={"rank": 0, "world_size": 1})
    with feed:
        assert list(range(10)) == _records(feed)


@pytest.mark.usefixtures("_torchrun")
def test_a_warning_that_is_an_error_leaves_nothing_open(source: Path) -> None:
    with pytest.raises(prefetch.PrefetchWarning):
        prefetch.open({"source": source}, shard={"rank": 0, "world_size": 1})


@pytest.mark.usefixtures("_torchrun")
def test_a_network_file_is_read_for_one_process_unless_told_and_that_is_warned_of(
    source: Path, tmp_path: Path
) -> None:
    net = tmp_path / "net.prototxt"
    net.write_text(
        'layer { name: "data" type: "Data" top: "data" top: "label" '
        f'data_param {{ source: "{source}" batch_size: 2 backend: LMDB }} }}'
    )
    with pytest.warns(prefetch.PrefetchWarning, match="every rank is served all records"):
        feed = prefetch.open_prototxt(net, seed=0)
    feed.close()
    with prefetch.open_prototxt(net, seed=0, rank=1, world_size=3) as feed:
        assert (1, 3) == (feed.rank, feed.world_size)


@pytest.mark.usefixtures("_torchrun")
def test_several_ranks_without_a_seed_are_refused_when_that_shows(source: Path) -> None:
    with pytest.raises(prefetch.ConfigError, match=r"seed: seed null with shard\.world_size 3"):
        prefetch.open({"source": source}, seed=None)


def test_half_of_a_launchers_variables_is_ignored_with_a_warning(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    with pytest.warns(prefetch.PrefetchWarning, match="RANK is set and WORLD_SIZE is not"):
        feed = prefetch.open({"source": source})
    with feed:
        assert (0, 1) == (feed.rank, feed.world_size)


def test_a_process_group_that_is_joined_after_opening_is_warned_of_once(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prefetch.open({"source": source, "batch_size": 2}) as feed:
        join_group(monkeypatch, 1, 2)
        batches = iter(feed)
        with pytest.warns(prefetch.PrefetchWarning, match="open the feed after init_process_group"):
            next(batches)
        next(batches)
        feed.load_state_dict(feed.state_dict())
        assert 3 == len(list(feed))


def test_that_warning_as_an_error_leaves_the_feed_open(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prefetch.open({"source": source}) as feed:
        join_group(monkeypatch, 1, 2)
        batches = iter(feed)
        with pytest.raises(prefetch.PrefetchWarning):
            next(batches)
        assert 10 == len(next(batches))


@pytest.mark.parametrize("world_size", [1, 2])
def test_an_explicit_shard_is_compared_with_the_group_where_it_is_one_of_one(
    source: Path, world_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = {"rank": 0, "world_size": world_size}
    with prefetch.open({"source": source}, shard=shard) as feed:
        join_group(monkeypatch, 5, 8)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            next(iter(feed))
        assert (world_size == 1) == bool(caught)


def test_a_state_is_loaded_by_whatever_rank_the_feed_has(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prefetch.open({"source": source}) as feed:
        state = json.loads(json.dumps(feed.state_dict()))
    join_group(monkeypatch, 1, 2)
    with prefetch.open({"source": source}) as feed:
        feed.load_state_dict(state)
        assert (1, 2, [1, 3, 5, 7, 9]) == (feed.rank, feed.world_size, _records(feed))


@pytest.mark.parametrize("last_batch", ["partial", "wrap"])
def test_what_pad_repeats_is_marked(source: Path, last_batch: str) -> None:
    options: dict[str, Any] = {"source": source, "batch_size": 2, "last_batch": last_batch}
    found = {}
    for rank in range(3):
        shard = {"rank": rank, "world_size": 3}
        with prefetch.open(options, shard=shard, epochs=1) as feed:
            for batch in feed:
                for index, is_padding in zip(batch.indices, batch.is_padding, strict=True):
                    found[rank, int(index)] = bool(is_padding)
    marked = [place for place, is_padding in found.items() if is_padding]
    assert [(1, 0), (2, 1)] == marked
    assert sorted(set(range(10))) == sorted(index for _, index in found.keys() - set(marked))


def test_whether_a_row_is_padding_stays_known_of_a_released_batch(source: Path) -> None:
    with prefetch.open({"source": source}) as feed:
        batch = next(iter(feed))
        batch.release()
        is_padding = batch.is_padding
        assert (np.dtype(bool), (10,), False) == (
            is_padding.dtype,
            is_padding.shape,
            bool(is_padding.any()),
        )
