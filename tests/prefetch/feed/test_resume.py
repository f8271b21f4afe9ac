"""A saved state goes on with exactly the remaining samples."""

from __future__ import annotations

import hashlib
import json
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from databases import records_fixture

import prefetch
from prefetch._config.option_types import to_plain
from prefetch._feed.saved_state import _flatten
from prefetch._transform.host import RecordTransformer
from prefetch.testing import encode_image, fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


def _noise() -> list[tuple[bytes, bytes]]:
    """Thirty-one records of random pixels."""
    images = np.random.default_rng(0).integers(0, 256, (31, 3, 9, 9), dtype=np.uint8)
    return [(b"%08d" % i, encode_image(image, label=i)) for i, image in enumerate(images)]


source = records_fixture(_noise)


def _samples(batches: Iterable[prefetch.Batch]) -> list[tuple[int, int, str]]:
    """Return epoch, record and pixels of each sample."""
    found = []
    for batch in batches:
        for index, pixels in zip(batch.indices.tolist(), batch.data.numpy(), strict=True):
            found.append((batch.epoch, index, hashlib.sha256(pixels.tobytes()).hexdigest()[:8]))
    return found


def _options(source: Path, **more: Any) -> dict[str, Any]:
    return {
        "source": source,
        "batch_size": 4,
        "seed": 3,
        "transform": {"crop_size": 5, "mirror": True},
        **more,
    }


@pytest.mark.parametrize("rng", ["counter", "caffe"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("last_batch", ["partial", "drop", "wrap"])
@pytest.mark.parametrize("taken", [0, 1, 7, 8, 9, 16])
def test_another_feed_goes_on_with_exactly_the_remaining_samples(
    source: Path, rng: str, last_batch: str, taken: int, *, shuffle: bool
) -> None:
    options = _options(source, rng=rng, shuffle=shuffle, last_batch=last_batch, epochs=3)
    with prefetch.open(options) as feed:
        whole = _samples(_all(feed))
    with prefetch.open(options, threads=1, prefetch=3) as feed:
        served = []
        batches = _all(feed)
        for _ in range(taken):
            served += _samples([next(batches)])
        state = json.loads(json.dumps(feed.state_dict()))
    with prefetch.open(options, threads=8, prefetch=1, max_batches_held=5) as feed:
        feed.load_state_dict(state)
        rest = _samples(_all(feed))
    assert served + rest == whole


def _all(feed: prefetch.Feed) -> Iterator[prefetch.Batch]:
    """Yield the batches of every configured epoch."""
    while True:
        try:
            yield from feed
        except prefetch.EpochsExhaustedError:
            return


@pytest.mark.parametrize("batch_size", [1, 5, 31, 64])
def test_the_batch_size_may_be_another(source: Path, batch_size: int) -> None:
    options = _options(source, shuffle=True, epochs=2)
    with prefetch.open(options) as feed:
        whole = _samples(_all(feed))
    with prefetch.open(options) as feed:
        iterator = iter(feed)
        served = _samples(next(iterator) for _ in range(3))
        state = feed.state_dict()
    with prefetch.open(options, batch_size=batch_size) as feed:
        feed.load_state_dict(state)
        assert served + _samples(_all(feed)) == whole


@pytest.mark.parametrize("worlds", [(1, 3), (3, 1), (2, 4)])
def test_the_world_size_may_be_another(source: Path, worlds: tuple[int, int]) -> None:
    before, after = worlds

    def ranks(world: int, state: dict[str, Any] | None, stop: int | None) -> list[Any]:
        shares, states = [], []
        for rank in range(world):
            shard = {"rank": rank, "world_size": world}
            with prefetch.open(_options(source, shuffle=True, shard=shard), batch_size=2) as feed:
                if state is not None:
                    feed.load_state_dict(state)
                iterator = iter(feed)
                batches = iterator if stop is None else (next(iterator) for _ in range(stop))
                shares.append(_samples(batches))
                states.append(feed.state_dict())
        together = [sample for place in zip(*shares, strict=True) for sample in place]
        assert all(other == states[0] for other in states[1:])
        return [together, states[0]]

    whole, _ = ranks(1, None, None)
    served, state = ranks(before, None, 3)
    rest, _ = ranks(after, state, None)
    assert (served + rest)[:31] == whole
    padding = (served + rest)[31:]
    assert len(padding) < after
    assert padding == whole[: len(padding)]


def test_a_state_says_what_was_taken_and_not_what_was_read_ahead(source: Path) -> None:
    with prefetch.open(_options(source)) as feed:
        assert (feed.state_dict()["epoch"], feed.state_dict()["served"]) == (0, 0)
        iterator = iter(feed)
        for number in range(8):
            assert feed.state_dict()["served"] == 4 * number
            next(iterator)
        assert (feed.state_dict()["epoch"], feed.state_dict()["served"]) == (1, 0)
        assert feed.epoch == 0


def test_after_an_abandoned_epoch_the_loaded_feed_serves_its_rest(source: Path) -> None:
    with prefetch.open(_options(source)) as feed:
        for batch in feed:
            if batch.number == 2:
                break
        state = feed.state_dict()
        assert state == feed.state_dict()
    with prefetch.open(_options(source)) as feed:
        feed.load_state_dict(state)
        assert feed.epoch == 0
        first = next(iter(feed))
        assert (first.epoch, first.indices[0]) == (0, 12)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_iterator_that_waits_while_another_thread_loads_is_told_so(
    source: Path,
    threads: int,
    monkeypatch: pytest.MonkeyPatch,
    until: Callable[[Callable[[], bool]], None],
) -> None:
    """It is not told that the feed is closed, which it is not."""
    may_read = threading.Event()
    real = RecordTransformer.fill

    def wait(self: RecordTransformer, *arguments: Any) -> Any:
        may_read.wait(20)
        return real(self, *arguments)

    monkeypatch.setattr(RecordTransformer, "fill", wait)
    with prefetch.open(_options(source, threads=threads)) as feed:
        state = feed.state_dict()
        iterator = iter(feed)
        stop = feed._prefetcher.request_stop

        def stop_and_read() -> None:
            stop()
            may_read.set()  # close() waits for the reads in progress

        monkeypatch.setattr(feed._prefetcher, "request_stop", stop_and_read)

        def load() -> None:
            until(lambda: feed.stats().slots_filling > 0)
            feed.load_state_dict(state)

        loader = threading.Thread(target=load)
        loader.start()
        with pytest.raises(prefetch.StaleIteratorError, match=r"load_state_dict\(\)"):
            next(iterator)
        loader.join()
        assert not feed.closed
        assert [batch.number for batch in feed] == list(range(8))


@pytest.mark.parametrize("rng", ["counter", "caffe"])
def test_loading_into_a_feed_that_runs_goes_back_and_ends_its_iterator(
    source: Path, rng: str
) -> None:
    with prefetch.open(_options(source, rng=rng)) as feed:
        iterator = iter(feed)
        next(iterator)
        state = feed.state_dict()
        expected = _samples(next(iterator) for _ in range(3))
        feed.load_state_dict(state)
        with pytest.raises(prefetch.StaleIteratorError):
            next(iterator)
        again = iter(feed)
        assert _samples(next(again) for _ in range(3)) == expected


def test_a_seed_that_was_drawn_is_saved(source: Path) -> None:
    options = _options(source, shuffle=True, seed=None)
    with prefetch.open(options) as feed:
        iterator = iter(feed)
        next(iterator)
        state = feed.state_dict()
        rest = _samples(iterator)
    with prefetch.open(options) as feed:
        feed.load_state_dict(state)
        assert _samples(feed) == rest


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 4}, "config seed: was 3, is 4"),
        ({"shuffle": True}, "config shuffle: was false, is true"),
        ({"phase": "test"}, "config phase: was 'train', is 'test'"),
        ({"transform": {"crop_size": 6}}, "config transform.crop_size: was 5, is 6"),
        ({"transform": {"mean_value": [3]}}, "config transform.mean_value"),
        ({"subset": {"start": 1}}, "dataset records: was 31, is 30"),
    ],
)
def test_another_configuration_is_refused_by_naming_the_difference(
    source: Path, change: dict[str, Any], named: str
) -> None:
    with prefetch.open(_options(source)) as feed:
        state = feed.state_dict()
    with prefetch.open(_options(source), **change) as feed:
        with pytest.raises(prefetch.StateError) as caught:
            feed.load_state_dict(state)
        assert named in str(caught.value)
        assert len(next(iter(feed))) == 4


def test_another_database_is_refused_and_a_moved_one_is_not(source: Path, tmp_path: Path) -> None:
    with prefetch.open(_options(source)) as feed:
        next(iter(feed))
        state = feed.state_dict()
    other = write_database(tmp_path / "other", fingerprinted_images(31, (3, 9, 9)))
    with (
        prefetch.open(_options(other)) as feed,
        pytest.raises(prefetch.StateError, match="dataset first_sha256"),
    ):
        feed.load_state_dict(state)
    moved = source.rename(tmp_path / "moved")
    with prefetch.open(_options(moved)) as feed:
        feed.load_state_dict(state)
        assert next(iter(feed)).number == 1


@pytest.mark.parametrize(
    ("key", "pixel", "named"),
    [
        (b"b", 1, "dataset first_key: was 'a', is 'b'"),
        (b"a", 2, "dataset first_sha256"),
    ],
)
def test_another_key_or_value_of_the_first_record_is_another_database(
    tmp_path: Path, key: bytes, pixel: int, named: str
) -> None:
    def one_record(name: str, key: bytes, pixel: int) -> dict[str, Any]:
        value = encode_image(np.full((3, 9, 9), pixel, np.uint8), label=0)
        return _options(write_database(tmp_path / name, [(key, value)]))

    with prefetch.open(one_record("saved", b"a", 1)) as feed:
        state = feed.state_dict()
    with (
        prefetch.open(one_record("present", key, pixel)) as feed,
        pytest.raises(prefetch.StateError, match=named) as caught,
    ):
        feed.load_state_dict(state)
    assert len(caught.value.differences) == 1


def test_how_a_state_names_its_records_and_its_mean_image_is_frozen(tmp_path: Path) -> None:
    """States that were saved before have to be known again."""
    image = np.arange(12, dtype=np.uint8).reshape(1, 3, 4)
    records = [(b'k\xff"', encode_image(image, label=7)), (b"l", encode_image(image, label=1))]
    np.save(tmp_path / "mean.npy", image.astype(np.float32))
    options = _options(write_database(tmp_path / "two", records), batch_size=1)
    transform = {"mean_file": tmp_path / "mean.npy", "crop_size": 2}
    with prefetch.open(options, transform=transform) as feed:
        state = feed.state_dict()
    assert state["dataset"] == {
        "records": 2,
        "first_key": 'k\\xff"',
        "first_sha256": "37428100dacea60e",
    }
    assert state["config"]["transform.mean_file"] == "1 x 3 x 4, sha256 29e1889124dc651e"


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ({"format": 9, "served": 3}, "9"),
        ({"format": True}, "true"),
        ({"served": 3}, "null"),
        ([1], r"\[1\]"),
        ("text", "'text'"),
    ],
)
def test_what_is_no_state_of_this_format_is_refused_by_what_it_says(
    source: Path, state: Any, found: str
) -> None:
    with (
        prefetch.open(_options(source)) as feed,
        pytest.raises(prefetch.StateError, match=rf"state of format 1, found {found}$"),
    ):
        feed.load_state_dict(state)


def test_another_mean_image_is_refused_and_the_same_in_another_file_is_not(
    source: Path, tmp_path: Path
) -> None:
    """It decides about the pixels; where it lies does not."""

    def options(name: str, value: float) -> dict[str, Any]:
        np.save(tmp_path / name, np.full((3, 9, 9), value, np.float32))
        return _options(source, transform={"mean_file": tmp_path / name})

    with prefetch.open(options("saved.npy", 5)) as feed:
        state = feed.state_dict()
    with prefetch.open(options("moved.npy", 5)) as feed:
        feed.load_state_dict(state)
    with (
        prefetch.open(options("another.npy", 6)) as feed,
        pytest.raises(prefetch.StateError, match=r"config transform\.mean_file: was .*sha256"),
    ):
        feed.load_state_dict(state)


def test_an_option_is_compared_unless_it_only_says_how_batches_are_made(source: Path) -> None:
    """What is not compared may be another when a state is loaded; a new option is to be decided."""
    with prefetch.open(_options(source)) as feed:
        compared = set(feed.state_dict()["config"])
        options = {name for name, _ in _flatten(to_plain(feed.config))}
    assert options - compared == {
        "batch_size",
        "cache.decoded",
        "device",
        "draws_before",
        "max_batches_held",
        "per_batch",
        "per_record",
        "prefetch",
        "quarantine",
        "shard.rank",
        "shard.world_size",
        "source",
        "stall_warning_s",
        "threads",
        "transform.preset",
        "transform.where",
    }


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state | {"format": 2},
        lambda state: {name: value for name, value in state.items() if name != "served"},
        lambda state: state | {"served": -1},
        lambda state: state | {"served": 10**9},
        lambda state: state | {"epoch": "1"},
        lambda state: state | {"epoch": 2**70},
        lambda state: state | {"seed": 2**70},
        lambda state: state | {"seed": 4},
        lambda state: state | {"world_size": 10**5000},
        lambda state: state | {"format": np.ones(2)},
        lambda state: state | {"format": 10**5000},
        lambda state: state | {1: 2},
        lambda state: state | {"format": _nested(100_000)},
        lambda state: state | {"seed": _nested(100_000)},
        lambda state: state | {"config": state["config"] | {"seed": _nested(100_000)}},
        lambda state: (
            state | {"config": state["config"] | {"transform.mean_value": _nested(100_000)}}
        ),
        lambda state: state | {"config": state["config"] | {"phase": np.ones(2)}},
        lambda state: state | {"config": state["config"] | {"shuffle": 0}},
        lambda state: state | {"config": state["config"] | {"seed": np.int64(3)}},
        lambda state: state | {"config": state["config"] | {1: 2}},
        lambda state: state | {"dataset": state["dataset"] | {"records": 10**5000}},
        lambda state: state | {"rng": {"generator": [1] * 625, "position": 10**10}},
        lambda state: state | {"rng": 5},
        lambda state: state | {"dataset": None},
        lambda _: [],
    ],
)
@pytest.mark.parametrize("rng", ["counter", "caffe"])
def test_a_damaged_state_is_refused(source: Path, damage: Any, rng: str) -> None:
    with prefetch.open(_options(source, rng=rng)) as feed:
        state = feed.state_dict()
        with pytest.raises(prefetch.StateError):
            feed.load_state_dict(damage(state))
        assert len(next(iter(feed))) == 4


def test_what_is_said_of_a_state_has_an_end_however_much_is_wrong(source: Path) -> None:
    with prefetch.open(_options(source)) as feed:
        state = feed.state_dict()
        much = {f"k{number}\x1b": "x" * 1000 for number in range(5000)}
        for bad in (state | much, state | {"config": state["config"] | much}):
            with pytest.raises(prefetch.StateError, match=r"and 49\d\d more") as caught:
                feed.load_state_dict(bad)
            assert len(str(caught.value)) < 5000
            assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(("rng", "most"), [("counter", 2**64 - 1), ("caffe", 2**32 - 1)])
def test_a_seed_is_as_large_as_its_generator_takes(source: Path, rng: str, most: int) -> None:
    with prefetch.open(_options(source, rng=rng, seed=None)) as feed:
        state = feed.state_dict()
        for seed in (0, most):
            feed.load_state_dict({**state, "seed": seed})
            assert feed.state_dict()["seed"] == seed
        for seed in (-1, most + 1):
            with pytest.raises(prefetch.StateError, match=rf"no integer from 0 to {most}"):
                feed.load_state_dict({**state, "seed": seed})
        for world_size in (0, 2**53 + 1):
            with pytest.raises(prefetch.StateError, match=rf"world_size is {world_size}, no"):
                feed.load_state_dict({**state, "world_size": world_size})


def test_an_epoch_past_the_last_is_refused(source: Path) -> None:
    with prefetch.open(_options(source, epochs=2)) as feed:
        state = feed.state_dict()
        with pytest.raises(prefetch.StateError, match="epoch is 3, no integer from 0 to 2"):
            feed.load_state_dict(state | {"epoch": 3})
        feed.load_state_dict(state | {"epoch": 2})
        with pytest.raises(prefetch.EpochsExhaustedError):
            next(iter(feed))


def test_caffes_stream_is_refused_for_another_world_size(source: Path) -> None:
    options = _options(source, rng="caffe")
    with prefetch.open(options) as feed:
        state = feed.state_dict()
    with (
        prefetch.open(options, shard={"rank": 1, "world_size": 2}) as feed,
        pytest.raises(prefetch.StateError, match="world_size was 1, is 2"),
    ):
        feed.load_state_dict(state)


def test_a_closed_feed_gives_its_state_and_takes_none(source: Path) -> None:
    feed = prefetch.open(_options(source))
    next(iter(feed))
    feed.close()
    state = feed.state_dict()
    assert state["served"] == 4
    with pytest.raises(prefetch.FeedClosedError):
        feed.load_state_dict(state)


def test_no_state_at_all_is_refused_and_the_feed_goes_on(source: Path) -> None:
    """As from a checkpoint that has no such entry."""
    with prefetch.open({"source": source, "batch_size": 4}) as feed:
        next(iter(feed))
        with pytest.raises(prefetch.StateError, match="found None"):
            feed.load_state_dict(None)  # type: ignore[arg-type]
        assert not feed.closed


def test_a_state_that_was_saved_before_an_option_came_had_its_default(source: Path) -> None:
    with prefetch.open(_options(source)) as feed:
        state = feed.state_dict()
        del state["config"]["transform.max_pixels_per_byte"]
        feed.load_state_dict(state)
    other = _options(source, transform={"max_pixels_per_byte": 9})
    with (
        prefetch.open(other) as feed,
        pytest.raises(prefetch.StateError, match="max_pixels_per_byte: was 2048, is 9"),
    ):
        feed.load_state_dict(state)


def test_a_state_loaded_and_saved_at_once_is_the_same_where_its_epoch_has_no_batch_left(
    source: Path,
) -> None:
    with prefetch.open({"source": source, "batch_size": 2, "last_batch": "drop"}) as feed:
        state = feed.state_dict()
        state["served"] = feed.num_records - 1
        feed.load_state_dict(state)
        assert feed.state_dict() == state


def test_a_state_that_has_served_the_whole_epoch_is_refused(source: Path) -> None:
    """The epoch after it would be the right one."""
    with prefetch.open({"source": source, "batch_size": 2}) as feed:
        state = feed.state_dict()
        state["served"] = feed.num_records
        with pytest.raises(prefetch.StateError, match="served is"):
            feed.load_state_dict(state)


def test_a_loop_from_the_states_epoch_serves_what_is_left_of_all_epochs(source: Path) -> None:
    with prefetch.open(source, batch_size=4, shuffle=True) as feed:
        served, states = [0], [feed.state_dict()]
        for _ in range(2):
            for batch in feed:
                served.append(served[-1] + len(batch))
                states.append(feed.state_dict())
    whole = 3 * served[-1] // 2
    for so_far, state in zip(served, states, strict=True):
        with prefetch.open(source, batch_size=4, shuffle=True) as feed:
            feed.load_state_dict(state)
            assert feed.epoch == state["epoch"]
            left = sum(len(batch) for _ in range(state["epoch"], 3) for batch in feed)
        assert so_far + left == whole
