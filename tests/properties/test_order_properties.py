from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from orders import num_batches_in

from prefetch._plan.order import Order, PlannedBatch
from prefetch._plan.permutation import shuffled

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK_AHEAD = 12
"""Batches looked at where an order has no end."""

# No deadline: the examples are small, but the machine may be busy with other things.
examples = settings(max_examples=60, deadline=None)

seeds = st.integers(0, 2**64 - 1)


@st.composite
def orders(draw: st.DrawFn, /, **fixed: Any) -> Order:
    """Orders of every kind, of a rank 0, resumed at any point."""
    policy = draw(st.sampled_from(["pad", "drop", "caffe"]))
    last_batch = draw(st.sampled_from(["partial", "drop", "wrap"]))
    num_records = draw(st.integers(1, 30))
    first_epoch = draw(st.integers(0, 2))
    options: dict[str, Any] = {
        "num_records": num_records,
        "batch_size": draw(st.integers(1, 12)),
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 3)),
        "policy": policy,
        "last_batch": "wrap" if policy == "caffe" else last_batch,
        "world_size": draw(st.integers(1, 6)),
        "phase_test": draw(st.booleans()),
        "epochs": draw(st.none() | st.integers(first_epoch + 1, first_epoch + 3)),
        "first_epoch": first_epoch,
        "first_served": draw(st.integers(0, num_records - 1)),
    }
    return Order(**(options | fixed))


def ranks_of(order: Order) -> list[Order]:
    return [dataclasses.replace(order, rank=rank) for rank in range(order.world_size)]


def reads_everything(order: Order) -> bool:
    return order.policy == "caffe" and order.phase_test


def planned(order: Order, count: int = LOOK_AHEAD) -> list[PlannedBatch]:
    """All batches, or the first `count` of them."""
    batches = []
    for sequence in range(count):
        batch = order.plan(sequence)
        if batch is None:
            break
        batches.append(batch)
    return batches


def samples_of(batches: list[PlannedBatch]) -> list[tuple[int, int]]:
    """The (epoch, place) of each sample."""
    return [
        sample
        for batch in batches
        for sample in zip(batch.epochs.tolist(), batch.places.tolist(), strict=True)
    ]


def padding_of(batch: PlannedBatch) -> list[bool]:
    return [False] * len(batch.records) if batch.padding is None else batch.padding.tolist()


def in_lockstep(ranks: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """The samples of all ranks, as they are served together."""
    return [sample for step in zip(*ranks, strict=True) for sample in step]


# A second definition of the order, in plain lists: what each rank is served, epoch by epoch.


def epochs_of(order: Order) -> Iterator[int]:
    if order.epochs is None:
        return itertools.count(order.first_epoch)
    return iter(range(order.first_epoch, order.epochs))


def listed_epoch(order: Order, epoch: int) -> list[tuple[int, int]]:
    """This rank's (epoch, place) of what an epoch serves, by pad or drop."""
    start = order.first_served if epoch == order.first_epoch else 0
    places = list(range(start, order.num_records))
    excess = len(places) % order.world_size
    if order.policy == "drop":
        places = places[: len(places) - excess]
    elif excess:
        again = itertools.cycle(range(order.num_records))
        places += itertools.islice(again, order.world_size - excess)
    return [(epoch, place) for place in places[order.rank :: order.world_size]]


def listed_stream(order: Order) -> Iterator[tuple[int, int]]:
    """This rank's (epoch, place) of Caffe's stream."""
    stride = 1 if reads_everything(order) else order.world_size
    lane = 0 if reads_everything(order) else order.rank
    stream = (
        (epoch, place)
        for epoch in itertools.count(order.first_epoch)
        for place in range(order.first_served * (epoch == order.first_epoch), order.num_records)
    )
    end = None
    if order.epochs is not None:
        num = (order.epochs - order.first_epoch) * order.num_records - order.first_served
        end = lane + -(-num // stride) * stride
    return itertools.islice(stream, lane, end, stride)


def listed_batches(order: Order, count: int = LOOK_AHEAD) -> list[list[tuple[int, int]]]:
    """The first `count` batches, each as the (epoch, place) of its samples."""
    size = order.batch_size
    # Only what remains of the first epoch can be shorter than the others, down to nothing.
    epochs = itertools.islice(epochs_of(order), 1 + size * count)
    shares = (listed_epoch(order, epoch) for epoch in epochs)
    if order.last_batch == "wrap":
        shared = itertools.chain.from_iterable(shares)
        stream = listed_stream(order) if order.policy == "caffe" else shared
        samples = list(itertools.islice(stream, size * count))
        return [samples[start : start + size] for start in range(0, len(samples), size)]
    cut = (share[start : start + size] for share in shares for start in range(0, len(share), size))
    whole = (batch for batch in cut if order.last_batch == "partial" or len(batch) == size)
    return list(itertools.islice(whole, count))


@examples
@given(size=st.integers(1, 5000), seed=seeds, epoch=st.integers(0, 2**40))
def test_a_shuffled_epoch_holds_every_record_once(size: int, seed: int, epoch: int) -> None:
    records = shuffled(np.arange(size), epoch, size=size, seed=seed)

    assert np.array_equal(np.sort(records), np.arange(size))


@examples
@given(
    size=st.integers(50, 5000),
    keys=st.lists(st.tuples(seeds, st.integers(0, 2**40)), min_size=2, max_size=2, unique=True),
)
def test_another_seed_or_epoch_is_another_order(size: int, keys: list[tuple[int, int]]) -> None:
    (seed, epoch), (other_seed, other_epoch) = keys

    records = shuffled(np.arange(size), epoch, size=size, seed=seed)
    others = shuffled(np.arange(size), other_epoch, size=size, seed=other_seed)

    assert not np.array_equal(records, others)


@examples
@given(order=orders(), rank=st.integers(0, 5))
def test_batches_are_those_of_the_definition_in_lists(order: Order, rank: int) -> None:
    order = dataclasses.replace(order, rank=rank % order.world_size)
    expected = listed_batches(order)

    batches = planned(order)

    assert [samples_of([batch]) for batch in batches] == expected
    for batch in batches:
        assert batch.records.tolist() == order.record_at(batch.epochs, batch.places).tolist()
        assert batch.epoch == batch.epochs[0]


@examples
@given(order=orders())
def test_a_finite_order_ends_where_num_batches_says(order: Order) -> None:
    end = order.num_batches
    assert (end is None) == (order.epochs is None and len(listed_batches(order)) > 0)
    if end is not None:
        assert [order.plan(end + further) for further in (0, 1, 50)] == [None] * 3
        assert len(planned(order, end + 1)) == end
        assert len(listed_batches(order, end + 5)) == end


@examples
@given(order=orders(policy="pad", last_batch="partial", epochs=None, first_served=0))
def test_padded_shards_are_complete_and_of_equal_length(order: Order) -> None:
    shards = [samples_of(planned(rank, order.batches_per_epoch)) for rank in ranks_of(order)]

    assert {len(shard) for shard in shards} == {order.samples_per_epoch}
    served = [place for shard in shards for _, place in shard]
    assert set(served) == set(range(order.num_records))
    assert len(served) - order.num_records < order.world_size


@examples
@given(order=orders(policy="drop", last_batch="partial", epochs=None, first_served=0))
def test_dropped_shards_are_disjoint_and_of_equal_length(order: Order) -> None:
    shards = [samples_of(planned(rank, order.batches_per_epoch)) for rank in ranks_of(order)]

    assert {len(shard) for shard in shards} == {order.samples_per_epoch}
    served = [place for shard in shards for _, place in shard]
    assert len(set(served)) == len(served) > order.num_records - order.world_size


@examples
@given(order=orders(phase_test=False))
def test_what_all_ranks_have_been_served_is_a_prefix_of_the_order(order: Order) -> None:
    assume(order.last_batch != "drop")
    served = in_lockstep([samples_of(planned(rank)) for rank in ranks_of(order)])
    if order.policy == "caffe":
        whole = dataclasses.replace(order, world_size=1, rank=0, epochs=None)
        expected = list(itertools.islice(listed_stream(whole), len(served)))
        assert served == expected
        return
    for epoch, group in itertools.groupby(served, key=lambda sample: sample[0]):
        start = order.first_served if epoch == order.first_epoch else 0
        places = [place for _, place in group]
        assert places == [(start + step) % order.num_records for step in range(len(places))]


@examples
@given(order=orders(first_served=0), epoch=st.integers(0, 3))
def test_partial_and_drop_have_the_batches_of_the_share(order: Order, epoch: int) -> None:
    assume(order.last_batch != "wrap")
    share, size = order.samples_per_epoch, order.batch_size
    expected = share // size if order.last_batch == "drop" else -(-share // size)
    epoch += order.first_epoch

    assert order.batches_per_epoch == expected
    within = order.epochs is None or epoch < order.epochs
    assert num_batches_in(order, epoch) == (expected if within else 0)


@examples
@given(order=orders(last_batch="wrap", first_epoch=0, first_served=0, epochs=3))
def test_wrap_with_epochs_serves_their_samples_in_full_batches(order: Order) -> None:
    batches = planned(order, 10**6)
    samples = sum(len(batch.records) for batch in batches)
    stride = 1 if reads_everything(order) else order.world_size
    share = 3 * order.samples_per_epoch
    if order.policy == "caffe":
        share = -(-3 * order.num_records // stride)

    assert samples == share
    assert len(batches) == order.num_batches == -(-share // order.batch_size)
    assert {len(batch.records) for batch in batches[:-1]} <= {order.batch_size}


@examples
@given(
    order=orders(phase_test=False),
    at=st.integers(0, 10),
    world_size=st.integers(1, 6),
    batch_size=st.integers(1, 12),
)
def test_a_resume_with_other_ranks_serves_exactly_what_remains(
    order: Order, at: int, world_size: int, batch_size: int
) -> None:
    assume(order.last_batch != "drop")
    assume(order.num_batches is None or at < order.num_batches)
    epoch, start = order.resume_point(at)
    resumed = dataclasses.replace(
        order,
        world_size=world_size,
        batch_size=batch_size,
        first_epoch=epoch,
        first_served=start,
    )

    before = in_lockstep([samples_of(planned(rank, at)) for rank in ranks_of(order)])
    earlier = order.first_served if epoch == order.first_epoch else 0
    assert start == earlier + sum(found == epoch for found, _ in before)

    enough = order.num_records // (world_size * batch_size) + 2
    after = in_lockstep([samples_of(planned(rank, enough)) for rank in ranks_of(resumed)])
    remaining = list(range(start, order.num_records))
    excess = len(remaining) % world_size
    if order.policy == "drop":
        remaining = remaining[: len(remaining) - excess]
    elif order.policy == "pad" and excess:
        again = itertools.cycle(range(order.num_records))
        remaining += itertools.islice(again, world_size - excess)
    assert [place for found, place in after if found == epoch] == remaining


@examples
@given(
    order=orders(first_epoch=0, first_served=0, epochs=None),
    at=st.integers(0, 10),
    rank=st.integers(0, 5),
)
def test_a_resume_with_the_same_sizes_goes_on_as_if_nothing_had_happened(
    order: Order, at: int, rank: int
) -> None:
    order = dataclasses.replace(order, rank=rank % order.world_size)
    assume(order.num_batches is None)
    epoch, served = order.resume_point(at)
    resumed = dataclasses.replace(order, first_epoch=epoch, first_served=served)

    for sequence in range(LOOK_AHEAD):
        expected, found = order.plan(at + sequence), resumed.plan(sequence)
        assert expected is not None
        assert found is not None
        assert found.records.tolist() == expected.records.tolist()
        assert found.places.tolist() == expected.places.tolist()
        assert found.epochs.tolist() == expected.epochs.tolist()
        assert (found.epoch, found.number) == (expected.epoch, expected.number)
        assert found.last_in_epoch == expected.last_in_epoch
        assert found.sequence == expected.sequence - at


@examples
@given(order=orders(), rank=st.integers(0, 5))
def test_numbers_count_up_from_an_epochs_first_batch(order: Order, rank: int) -> None:
    order = dataclasses.replace(order, rank=rank % order.world_size)
    batches = planned(order)
    for batch in batches:
        first = order.first_of_epoch(batch.epoch)
        assert first <= batch.sequence
        start = order.plan(first)
        assert start is not None
        assert start.epoch == batch.epoch
        assert batch.number - start.number == batch.sequence - first
        assert start.number == 0 or batch.epoch == order.first_epoch
    for before, after in itertools.pairwise(batches):
        assert after.first_sample == before.first_sample + len(before.records)
        if order.last_batch != "wrap":
            assert before.last_in_epoch == (after.epoch > before.epoch)
        assert order.first_of_epoch(before.epoch + 1) <= after.sequence or (
            after.epoch == before.epoch
        )
    if batches:
        last = batches[-1]
        end = last.sequence + 1 == order.num_batches
        assert not end or last.last_in_epoch


@examples
@given(order=orders(), sequences=st.lists(st.integers(0, 10**6), max_size=5))
def test_any_batch_can_be_planned_without_those_before(order: Order, sequences: list[int]) -> None:
    end = order.num_batches
    for sequence in sequences:
        batch = order.plan(sequence)
        assert (batch is None) == (end is not None and sequence >= end)
        if batch is not None:
            assert batch.sequence == sequence
            assert order.first_of_epoch(batch.epoch) <= sequence
            assert 0 < len(batch.records) <= order.batch_size


@given(orders(policy="pad", last_batch="wrap") | orders(policy="pad", last_batch="partial"))
@examples
def test_without_what_is_marked_as_padding_all_ranks_serve_each_epoch_exactly_once(
    order: Order,
) -> None:
    order = dataclasses.replace(order, epochs=order.first_epoch + 2)
    served = [
        sample
        for rank in ranks_of(order)
        for batch in planned(rank, 1000)
        for sample, is_padding in zip(samples_of([batch]), padding_of(batch), strict=True)
        if not is_padding
    ]
    first, num = order.first_epoch, order.num_records
    assert sorted(served) == [
        *((first, place) for place in range(order.first_served, num)),
        *((first + 1, place) for place in range(num)),
    ]


@given(orders())
@examples
def test_only_pad_repeats_anything(order: Order) -> None:
    assume(order.policy != "pad" or order.world_size == 1)
    for rank in ranks_of(order):
        assert not any(any(padding_of(batch)) for batch in planned(rank))
