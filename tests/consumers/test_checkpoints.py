"""A feed is saved and loaded as PyTorch's tools do it with whatever is stateful."""

from __future__ import annotations

import io
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from databases import images_fixture

import prefetch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

torch: Any = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install --group consumers"
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of other people's packages


source = images_fixture(30)


def _options(source: Path, **more: Any) -> dict[str, Any]:
    return {"source": source, "batch_size": 4, "shuffle": True, "seed": 7, **more}


def _records(feed: prefetch.Feed) -> Iterator[list[int]]:
    """Yield the records of each batch, epoch after epoch."""
    while True:
        for batch in feed:
            yield batch.indices.tolist()


def _take(records: Iterator[list[int]], num: int) -> list[list[int]]:
    return list(islice(records, num))


@pytest.mark.parametrize("num_taken", [0, 3, 8, 11])
@pytest.mark.parametrize("rng", ["counter", "caffe"])
def test_distributed_checkpoint_saves_and_loads_a_feed_as_it_is(
    source: Path, tmp_path: Path, rng: str, num_taken: int
) -> None:
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    options = _options(source, rng=rng)
    weights = torch.arange(3.0)
    with prefetch.open(options) as feed:
        records = _records(feed)
        _take(records, num_taken)
        checkpoint.save({"feed": feed, "weights": weights}, checkpoint_id=str(tmp_path / "saved"))
        expected = _take(records, 9)
    with prefetch.open(options, threads=1, prefetch=2) as feed:
        loaded = {"feed": feed, "weights": torch.zeros(3)}
        checkpoint.load(loaded, checkpoint_id=str(tmp_path / "saved"))
        assert torch.equal(loaded["weights"], weights)
        assert _take(_records(feed), 9) == expected


def test_a_feed_is_what_distributed_checkpoint_calls_stateful(source: Path) -> None:
    stateful = pytest.importorskip("torch.distributed.checkpoint.stateful")
    with prefetch.open(_options(source)) as feed:
        assert isinstance(feed, stateful.Stateful)


def test_torch_save_and_a_load_of_weights_only_keep_a_state(source: Path) -> None:
    with prefetch.open(_options(source, rng="caffe")) as feed:
        records = _records(feed)
        _take(records, 3)
        file = io.BytesIO()
        torch.save(feed.state_dict(), file)
        expected = _take(records, 9)
    file.seek(0)
    with prefetch.open(_options(source, rng="caffe")) as feed:
        feed.load_state_dict(torch.load(file, weights_only=True))
        assert _take(_records(feed), 9) == expected


@pytest.mark.parametrize("num_taken", [0, 3, 11])
def test_a_feed_keeps_to_the_conventions_of_torchdatas_stateful_loader(
    source: Path, num_taken: int
) -> None:
    """The same steps with both: what is left of an epoch comes first, then whole epochs.

    They differ where the last batch of an epoch has been taken: that loader then serves an epoch
    without batches first, where its end had not been seen yet. A feed goes on with the next epoch.
    """
    loaders = pytest.importorskip("torchdata.stateful_dataloader")
    data = list(range(30))

    def rest_of(loader: Any, size_of: Any) -> list[int]:
        return [sum(size_of(batch) for batch in loader) for _ in range(2)]

    def of_loader() -> list[int]:
        first = loaders.StatefulDataLoader(data, batch_size=4)
        batches = iter(first)
        for number in range(num_taken):
            if number == 8:  # its epoch is over
                assert next(batches, None) is None
                batches = iter(first)
            next(batches)
        second = loaders.StatefulDataLoader(data, batch_size=4)
        second.load_state_dict(first.state_dict())
        return rest_of(second, len)

    def of_feed() -> list[int]:
        with prefetch.open(_options(source)) as first:
            _take(_records(first), num_taken)
            state = first.state_dict()
        with prefetch.open(_options(source)) as second:
            second.load_state_dict(state)
            return rest_of(second, len)

    assert of_feed() == of_loader()


def test_a_feed_is_what_torchdata_calls_stateful(source: Path) -> None:
    loaders = pytest.importorskip("torchdata.stateful_dataloader")
    with prefetch.open(_options(source)) as feed:
        assert isinstance(feed, loaders.Stateful)
