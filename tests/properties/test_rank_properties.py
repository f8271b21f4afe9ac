"""Ranks that are killed, and become more or fewer: what they serve together, and their states."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import prefetch
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path

NUM_EPOCHS = 2
WORLDS = (2, 3, 1)


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Databases of 1 to 24 records."""
    folder = tmp_path_factory.mktemp("ranks")
    return [
        write_database(folder / str(num), fingerprinted_images(num, (1, 2, 2)))
        for num in range(1, 25)
    ]


class Ranks:
    """The feeds of all ranks, which go in lockstep."""

    def __init__(self, stack: ExitStack, options: dict[str, Any], world_size: int) -> None:
        self._feeds = [
            stack.enter_context(
                prefetch.open(options, shard={"rank": rank, "world_size": world_size})
            )
            for rank in range(world_size)
        ]
        self._loops = [iter(feed) for feed in self._feeds]
        self.served: dict[int, Counter[bytes]] = {}
        self.padded: dict[int, Counter[bytes]] = {}

    def load(self, state: dict[str, Any]) -> None:
        for feed in self._feeds:
            feed.load_state_dict(state)

    def reshard(self, stack: ExitStack, options: dict[str, Any], world_size: int) -> None:
        """Have some ranks leave, or others join, which load the state."""
        state = self.state()
        self._feeds, gone = self._feeds[:world_size], self._feeds[world_size:]
        self._loops = self._loops[:world_size]
        for feed in gone:
            feed.close()
        for rank, feed in enumerate(self._feeds):
            feed.reshard(rank, world_size)
        for rank in range(len(self._feeds), world_size):
            shard = {"rank": rank, "world_size": world_size}
            feed = stack.enter_context(prefetch.open(options, shard=shard))
            feed.load_state_dict(state)
            self._feeds.append(feed)
            self._loops.append(iter(feed))

    def state(self) -> dict[str, Any]:
        """Return the state, which is the same on every rank."""
        first, *others = [json.dumps(feed.state_dict()) for feed in self._feeds]
        assert all(other == first for other in others)
        state: dict[str, Any] = json.loads(first)
        return state

    def step(self) -> bool:
        """Take a batch on every rank, or end an epoch on all; return whether there are more."""
        try:
            batches = [next(loop, None) for loop in self._loops]
        except prefetch.EpochsExhaustedError:
            return False
        for rank, batch in enumerate(batches):
            if batch is None:
                self._loops[rank] = iter(self._feeds[rank])
                # Who has joined behind an epoch's last batch does not see its end.
                if any(batches):
                    batches[rank] = next(self._loops[rank])
        assert len({batch is None for batch in batches}) == 1, "some ranks have fewer batches"
        for batch in batches:
            if batch is not None:
                for key, is_padding in zip(batch.keys, batch.is_padding.tolist(), strict=True):
                    which = self.padded if is_padding else self.served
                    which.setdefault(batch.epoch, Counter())[key] += 1
        return True


def _check(ranks: list[Ranks], num: int) -> None:
    served = {epoch: Counter[bytes]() for epoch in range(NUM_EPOCHS)}
    num_padded = 0
    for some in ranks:
        for epoch, keys in some.served.items():
            served[epoch].update(keys)
        num_padded += sum(keys.total() for keys in some.padded.values())
    every = Counter(key for key, _ in fingerprinted_images(num, (1, 2, 2)))
    assert dict.fromkeys(range(NUM_EPOCHS), every) == served
    assert num_padded <= (max(WORLDS) - 1) * NUM_EPOCHS


@settings(max_examples=25)
@given(data=st.data())
def test_ranks_that_are_killed_and_become_more_and_fewer_serve_every_record_once_an_epoch(
    data: st.DataObject, databases: list[Path]
) -> None:
    num = data.draw(st.integers(1, len(databases)), "records")
    options = {"source": databases[num - 1], "shuffle": data.draw(st.booleans(), "shuffle")}
    options |= {"epochs": NUM_EPOCHS, "seed": 3, "prefetch": 2, "threads": 1, "device": "cpu"}
    ranks, state = [], None
    for world_size in WORLDS:
        options["batch_size"] = data.draw(st.integers(1, 4), "batch_size")
        with ExitStack() as stack:
            ranks.append(Ranks(stack, options, world_size))
            if state is not None:
                ranks[-1].load(state)
            is_last = len(ranks) == len(WORLDS)
            for _ in range(1000 if is_last else data.draw(st.integers(0, 8), "steps")):
                if not ranks[-1].step():
                    break
            state = ranks[-1].state()
    _check(ranks, num)


@settings(max_examples=25)
@given(data=st.data())
def test_ranks_that_leave_and_join_between_two_batches_serve_every_record_once_an_epoch(
    data: st.DataObject, databases: list[Path]
) -> None:
    num = data.draw(st.integers(1, len(databases)), "records")
    options = {"source": databases[num - 1], "shuffle": data.draw(st.booleans(), "shuffle")}
    options |= {"epochs": NUM_EPOCHS, "seed": 3, "prefetch": 2, "threads": 1, "device": "cpu"}
    options["batch_size"] = data.draw(st.integers(1, 4), "batch_size")
    with ExitStack() as stack:
        ranks = Ranks(stack, options, WORLDS[0])
        for world_size in WORLDS[1:]:
            for _ in range(data.draw(st.integers(0, 8), "steps")):
                ranks.step()
            ranks.reshard(stack, options, world_size)
        for _ in range(1000):
            if not ranks.step():
                break
    _check([ranks], num)
