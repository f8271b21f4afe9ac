from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest
from orders import num_batches_in

from prefetch._plan.order import Order, PlannedBatch


def planned(order: Order, sequence: int) -> PlannedBatch:
    batch = order.plan(sequence)
    assert batch is not None
    return batch


def records(order: Order, num_batches: int) -> list[list[int]]:
    return [planned(order, sequence).records.tolist() for sequence in range(num_batches)]


def numbers(order: Order, num_batches: int) -> list[tuple[int, int]]:
    batches = [planned(order, sequence) for sequence in range(num_batches)]
    return [(batch.epoch, batch.number) for batch in batches]


class TestLastBatch:
    def test_partial_ends_an_epoch_with_what_is_left(self) -> None:
        order = Order(5, 2)

        assert records(order, 4) == [[0, 1], [2, 3], [4], [0, 1]]
        assert numbers(order, 4) == [(0, 0), (0, 1), (0, 2), (1, 0)]
        assert [planned(order, sequence).last_in_epoch for sequence in range(4)] == [
            False,
            False,
            True,
            False,
        ]
        assert order.batches_per_epoch == 3

    def test_drop_serves_full_batches_only(self) -> None:
        order = Order(5, 2, last_batch="drop")

        assert records(order, 3) == [[0, 1], [2, 3], [0, 1]]
        assert [planned(order, sequence).last_in_epoch for sequence in range(3)] == [
            False,
            True,
            False,
        ]
        assert [planned(order, sequence).first_sample for sequence in range(3)] == [0, 2, 4]
        assert order.batches_per_epoch == 2

    def test_wrap_goes_on_into_the_next_epoch(self) -> None:
        order = Order(5, 3, last_batch="wrap")

        assert records(order, 4) == [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4, 0, 1]]
        assert numbers(order, 4) == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert planned(order, 1).epochs.tolist() == [0, 0, 1]
        assert not any(planned(order, sequence).last_in_epoch for sequence in range(4))

    def test_wrap_has_no_length(self) -> None:
        order = Order(5, 3, last_batch="wrap")

        with pytest.raises(TypeError, match="'wrap' never ends and has no length"):
            _ = order.batches_per_epoch

    def test_wrap_with_epochs_ends_with_a_partial_batch(self) -> None:
        order = Order(5, 4, last_batch="wrap", epochs=2)

        assert order.num_batches == 3
        assert records(order, 3) == [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4]]
        assert planned(order, 2).last_in_epoch
        assert order.plan(3) is None

    def test_a_batch_may_hold_an_epoch_many_times(self) -> None:
        batch = planned(Order(2, 5, last_batch="wrap"), 1)

        assert batch.records.tolist() == [1, 0, 1, 0, 1]
        assert batch.epochs.tolist() == [2, 3, 3, 4, 4]
        assert (batch.epoch, batch.number) == (2, 0)


class TestEpochs:
    def test_after_the_configured_epochs_there_is_nothing(self) -> None:
        order = Order(5, 2, epochs=2)

        assert order.num_batches == 6
        assert planned(order, 5).records.tolist() == [4]
        assert order.plan(6) is None
        assert order.plan(10**12) is None

    def test_without_epochs_there_is_no_end(self) -> None:
        assert Order(5, 2).num_batches is None
        assert Order(5, 2, last_batch="wrap").num_batches is None
        assert planned(Order(5, 2), 3 * 10**12).epoch == 10**12

    @pytest.mark.parametrize("epochs", [None, 3])
    @pytest.mark.parametrize(
        "order",
        [
            {"num_records": 5, "batch_size": 6, "last_batch": "drop"},
            {"num_records": 2, "batch_size": 1, "world_size": 3, "policy": "drop"},
            {
                "num_records": 2,
                "batch_size": 1,
                "world_size": 3,
                "policy": "drop",
                "last_batch": "wrap",
            },
        ],
    )
    def test_epochs_without_a_batch_are_planned_as_nothing(
        self, order: dict[str, Any], epochs: int | None
    ) -> None:
        empty = Order(**order, epochs=epochs)

        assert empty.num_batches == 0
        assert empty.plan(0) is None
        assert empty.plan(10**9) is None
        assert empty.first_of_epoch(2) == 0
        assert empty.resume_point(0) == (0, 0)
        if empty.last_batch != "wrap":
            assert empty.batches_per_epoch == 0
            assert num_batches_in(empty, 1) == 0

    def test_the_rest_of_an_epoch_may_hold_no_batch(self) -> None:
        order = Order(10, 4, last_batch="drop", first_epoch=3, first_served=7)

        assert num_batches_in(order, 3) == 0
        assert num_batches_in(order, 4) == 2
        assert order.first_of_epoch(3) == order.first_of_epoch(4) == 0
        assert numbers(order, 2) == [(4, 0), (4, 1)]
        assert order.resume_point(0) == (3, 7)  # as it was opened
        assert order.resume_point(1) == (4, 4)

    @pytest.mark.parametrize("last_batch", ["partial", "wrap"])
    @pytest.mark.parametrize("point", [(3, 0), (3, 2), (5, 4)])
    def test_an_order_that_resumes_at_or_after_its_end_has_nothing(
        self, last_batch: Any, point: tuple[int, int]
    ) -> None:
        epoch, served = point
        order = Order(5, 2, epochs=3, first_epoch=epoch, first_served=served, last_batch=last_batch)

        assert order.num_batches == 0
        assert order.plan(0) is None
        assert order.resume_point(0) == point

    def test_epochs_after_the_last_one_have_no_batches(self) -> None:
        order = Order(5, 2, epochs=3)

        assert [num_batches_in(order, epoch) for epoch in (0, 2, 3, 4)] == [3, 3, 0, 0]


class TestShards:
    def test_pad_repeats_the_start_of_the_order(self) -> None:
        ranks = [Order(5, 2, rank=rank, world_size=2) for rank in range(2)]

        assert [records(order, 2) for order in ranks] == [[[0, 2], [4]], [[1, 3], [0]]]

    def test_pad_goes_around_where_ranks_outnumber_records(self) -> None:
        ranks = [Order(2, 4, rank=rank, world_size=5) for rank in range(5)]

        assert [records(order, 1) for order in ranks] == [[[0]], [[1]], [[0]], [[1]], [[0]]]

    def test_drop_cuts_the_order(self) -> None:
        ranks = [Order(5, 2, rank=rank, world_size=2, policy="drop") for rank in range(2)]

        assert [records(order, 2) for order in ranks] == [[[0, 2], [0, 2]], [[1, 3], [1, 3]]]

    @pytest.mark.parametrize("rank", range(8))
    def test_caffes_stride_rotates_the_shards(self, rank: int) -> None:
        order = Order(5, 6, rank=rank, world_size=8, policy="caffe", last_batch="wrap")

        assert list(chain.from_iterable(records(order, 3))) == [
            (rank + 8 * k) % 5 for k in range(18)
        ]
        assert planned(order, 1).epochs.tolist() == [(rank + 8 * k) // 5 for k in range(6, 12)]

    @pytest.mark.parametrize("rank", range(3))
    def test_in_caffes_test_phase_every_rank_reads_everything(self, rank: int) -> None:
        order = Order(
            5, 13, rank=rank, world_size=3, policy="caffe", last_batch="wrap", phase_test=True
        )

        assert records(order, 1) == [[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2]]
        assert order.samples_per_epoch == 5

    def test_caffes_batches_wrap_within_a_batch(self) -> None:
        order = Order(5, 13, policy="caffe", last_batch="wrap")

        assert records(order, 2) == [
            [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2],
            [3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0],
        ]

    def test_under_caffe_all_ranks_end_after_as_many_samples(self) -> None:
        ranks = [
            Order(5, 2, rank=rank, world_size=2, policy="caffe", last_batch="wrap", epochs=1)
            for rank in range(2)
        ]

        assert [records(order, 2) for order in ranks] == [[[0, 2], [4]], [[1, 3], [0]]]
        assert [order.plan(2) for order in ranks] == [None, None]
        assert planned(ranks[1], 1).epochs.tolist() == [1]

    def test_caffe_counts_a_ranks_batches_within_the_epoch_they_start_in(self) -> None:
        order = Order(5, 2, rank=1, world_size=2, policy="caffe", last_batch="wrap")

        assert records(order, 5) == [[1, 3], [0, 2], [4, 1], [3, 0], [2, 4]]
        assert numbers(order, 5) == [(0, 0), (1, 0), (1, 1), (2, 0), (3, 0)]
        assert [order.first_of_epoch(epoch) for epoch in range(5)] == [0, 1, 3, 4, 5]


class TestShuffle:
    def test_the_order_depends_on_seed_and_epoch_only(self) -> None:
        whole = planned(Order(40, 40, shuffle=True, seed=8), 0)
        ranks = [Order(40, 5, shuffle=True, seed=8, rank=rank, world_size=4) for rank in range(4)]

        for rank, order in enumerate(ranks):
            assert list(chain.from_iterable(records(order, 2))) == whole.records[rank::4].tolist()
        assert sorted(whole.records.tolist()) == list(range(40))

    def test_epochs_and_seeds_have_orders_of_their_own(self) -> None:
        order = Order(40, 40, shuffle=True, seed=8)
        other = Order(40, 40, shuffle=True, seed=9)

        first, second = planned(order, 0).records, planned(order, 1).records
        assert first.tolist() != second.tolist()
        assert first.tolist() != planned(other, 0).records.tolist()

    def test_without_a_seed_it_is_0(self) -> None:
        without, seeded = Order(40, 40, shuffle=True), Order(40, 40, shuffle=True, seed=0)

        assert planned(without, 0).records.tolist() == planned(seeded, 0).records.tolist()

    def test_a_batch_over_two_epochs_follows_the_order_of_each(self) -> None:
        epochs = [planned(Order(7, 7, shuffle=True), epoch).records.tolist() for epoch in (0, 1)]

        batch = planned(Order(7, 10, shuffle=True, last_batch="wrap"), 0)

        assert batch.records.tolist() == epochs[0] + epochs[1][:3]

    def test_pad_repeats_the_shuffled_orders_start(self) -> None:
        whole = planned(Order(5, 5, shuffle=True), 0).records.tolist()

        last = planned(Order(5, 3, shuffle=True, rank=1, world_size=2), 0)

        assert last.records.tolist() == [whole[1], whole[3], whole[0]]
        assert last.places.tolist() == [1, 3, 0]


class TestResume:
    def test_the_first_epoch_is_shorter_and_later_ones_are_whole(self) -> None:
        order = Order(7, 2, first_epoch=3, first_served=4)

        assert records(order, 4) == [[4, 5], [6], [0, 1], [2, 3]]
        assert numbers(order, 4) == [(3, 2), (3, 3), (4, 0), (4, 1)]
        assert num_batches_in(order, 3) == 2
        assert num_batches_in(order, 4) == order.batches_per_epoch == 4
        assert [order.first_of_epoch(epoch) for epoch in (3, 4, 5)] == [0, 2, 6]

    def test_pad_applies_to_what_remains(self) -> None:
        ranks = [Order(7, 9, rank=rank, world_size=3, first_served=3) for rank in range(3)]

        assert [records(order, 1) for order in ranks] == [[[3, 6]], [[4, 0]], [[5, 1]]]

    def test_drop_applies_to_what_remains(self) -> None:
        ranks = [
            Order(7, 9, rank=rank, world_size=3, first_served=3, policy="drop") for rank in range(3)
        ]

        assert [records(order, 1) for order in ranks] == [[[3]], [[4]], [[5]]]

    def test_wrap_goes_on_from_an_offset_within_the_epoch(self) -> None:
        order = Order(5, 4, last_batch="wrap", first_epoch=2, first_served=3)

        assert records(order, 2) == [[3, 4, 0, 1], [2, 3, 4, 0]]
        assert planned(order, 0).epochs.tolist() == [2, 2, 3, 3]
        assert numbers(order, 2) == [(2, 0), (3, 0)]

    def test_caffes_stream_goes_on_with_its_rotated_shards(self) -> None:
        started = Order(5, 2, rank=1, world_size=3, policy="caffe", last_batch="wrap")
        epoch, served = started.resume_point(2)

        resumed = Order(
            5,
            2,
            rank=1,
            world_size=3,
            policy="caffe",
            last_batch="wrap",
            first_epoch=epoch,
            first_served=served,
        )

        assert (epoch, served) == (2, 2)
        for sequence in range(5):
            expected, found = planned(started, sequence + 2), planned(resumed, sequence)
            assert found.records.tolist() == expected.records.tolist()
            assert found.epochs.tolist() == expected.epochs.tolist()
            assert (found.epoch, found.number) == (expected.epoch, expected.number)

    def test_numbers_go_on_after_a_resume_where_shards_have_rotated(self) -> None:
        started = Order(9, 2, rank=1, world_size=2, policy="caffe", last_batch="wrap")
        resumed = Order(
            9,
            2,
            rank=1,
            world_size=2,
            policy="caffe",
            last_batch="wrap",
            first_epoch=1,
            first_served=3,
        )

        assert started.resume_point(3) == (1, 3)
        assert numbers(started, 5) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
        assert numbers(resumed, 2) == [(1, 1), (1, 2)]

    def test_after_an_epochs_last_batch_the_next_epoch_is_the_resume_point(self) -> None:
        order = Order(5, 2, epochs=2)

        points = [order.resume_point(sequence) for sequence in range(7)]
        assert points == [(0, 0), (0, 2), (0, 4), (1, 0), (1, 2), (1, 4), (2, 0)]

    def test_a_resume_point_counts_the_samples_of_all_ranks(self) -> None:
        order = Order(20, 2, rank=1, world_size=3, first_epoch=1, first_served=5)

        points = [order.resume_point(sequence) for sequence in range(4)]
        assert points == [(1, 5), (1, 11), (1, 17), (2, 0)]

    def test_in_caffes_test_phase_a_resume_point_counts_a_sample_once(self) -> None:
        order = Order(
            5, 3, rank=1, world_size=4, policy="caffe", last_batch="wrap", phase_test=True
        )

        assert order.resume_point(2) == (1, 1)


class TestRecordAt:
    def test_places_past_the_end_go_on_from_the_start(self) -> None:
        order = Order(5, 2)

        found = order.record_at(np.array([0, 0, 4]), np.array([4, 5, 13]))

        assert found.tolist() == [4, 0, 3]

    def test_places_follow_the_epochs_own_order(self) -> None:
        order = Order(9, 9, shuffle=True, seed=2)
        epochs = [planned(order, epoch).records for epoch in (0, 1)]

        found = order.record_at(np.array([0, 1, 1]), np.array([8, 0, 10]))

        assert found.tolist() == [epochs[0][8], epochs[1][0], epochs[1][1]]


class TestSequential:
    @pytest.mark.parametrize(
        ("order", "expected"),
        [
            ({}, True),
            ({"last_batch": "wrap"}, True),
            ({"first_epoch": 1, "first_served": 3}, True),
            ({"shuffle": True}, False),
            ({"world_size": 2}, False),
            ({"last_batch": "wrap", "policy": "caffe"}, True),
            ({"last_batch": "wrap", "policy": "caffe", "world_size": 2}, False),
            (
                {"last_batch": "wrap", "policy": "caffe", "world_size": 2, "phase_test": True},
                True,
            ),
            ({"world_size": 2, "phase_test": True}, False),
        ],
    )
    def test_a_cursor_serves_one_unshuffled_reader_of_everything(
        self, order: dict[str, Any], *, expected: bool
    ) -> None:
        assert Order(5, 2, **order).is_sequential is expected

    @pytest.mark.parametrize("last_batch", ["partial", "drop", "wrap"])
    def test_each_batch_begins_where_the_last_ended_or_at_record_0(self, last_batch: Any) -> None:
        order = Order(7, 3, last_batch=last_batch, first_served=2)
        cursor = 2

        for sequence in range(20):
            found = planned(order, sequence).records.tolist()
            assert found[0] in (cursor, 0)
            assert found == [(found[0] + step) % 7 for step in range(len(found))]
            cursor = (found[-1] + 1) % 7


class TestPlan:
    def test_arrays_are_the_callers_own(self) -> None:
        order = Order(6, 3)
        batch = planned(order, 0)

        batch.records[:] = 9
        batch.epochs[:] = 9

        assert batch.places.tolist() == [0, 1, 2]
        assert planned(order, 0).records.tolist() == [0, 1, 2]

    @pytest.mark.parametrize("last_batch", ["partial", "wrap"])
    @pytest.mark.parametrize("policy", ["pad", "drop"])
    @pytest.mark.parametrize("shuffle", [False, True])
    def test_a_trillion_records_are_planned_without_overflow(
        self, last_batch: Any, policy: Any, *, shuffle: bool
    ) -> None:
        num = 2**40 - 1
        order = Order(
            num,
            1000,
            last_batch=last_batch,
            policy=policy,
            shuffle=shuffle,
            rank=4095,
            world_size=4096,
            first_served=num - 1,
        )

        batch = planned(order, order.first_of_epoch(10**6) + 5)

        assert batch.epoch == 10**6
        assert batch.places[0] >= 0
        assert (batch.records >= 0).all()
        assert (batch.records < num).all()
        assert (np.diff(batch.places) == 4096).all()

    def test_caffes_stream_does_not_overflow(self) -> None:
        num = 2**40 - 1
        order = Order(num, 1000, policy="caffe", last_batch="wrap", rank=4095, world_size=4096)

        batch = planned(order, 10**9)

        offset = 4095 + 10**12 * 4096
        assert (batch.epoch, batch.places[0]) == divmod(offset, num)

    def test_dtypes_are_int64(self) -> None:
        for last_batch in ("partial", "wrap"):
            batch = planned(Order(5, 3, shuffle=True, last_batch=last_batch), 1)
            assert {batch.records.dtype, batch.places.dtype, batch.epochs.dtype} == {
                np.dtype(np.int64)
            }

    def test_a_negative_sequence_or_an_epoch_before_the_resume_point_is_refused(self) -> None:
        order = Order(5, 2, first_epoch=2)

        with pytest.raises(ValueError, match="sequence is -1: expected 0 or more"):
            order.plan(-1)
        with pytest.raises(ValueError, match="sequence is -1: expected 0 or more"):
            order.resume_point(-1)
        with pytest.raises(ValueError, match="epoch is 1: expected 2 or more"):
            order.first_of_epoch(1)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"num_records": 0}, "num_records is 0: expected 1 to 1099511627776"),
        ({"num_records": 2**40 + 1}, "num_records is 1099511627777"),
        ({"batch_size": 0}, "batch_size is 0: expected 1 or more"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"last_batch": "keep"}, "last_batch is 'keep': expected one of partial, drop, wrap"),
        ({"policy": "stride"}, "policy is 'stride': expected one of pad, drop, caffe"),
        ({"world_size": 0}, "world_size is 0: expected 1 or more"),
        ({"rank": -1}, "rank is -1: expected 0 to 0"),
        ({"rank": 3, "world_size": 3}, "rank is 3: expected 0 to 2"),
        ({"epochs": 0}, "epochs is 0: expected 1 or more"),
        ({"first_epoch": -1}, "first_epoch is -1: expected 0 or more"),
        ({"first_served": -1}, "first_served is -1: expected 0 to 4"),
        ({"first_served": 5}, "first_served is 5: expected 0 to 4"),
        ({"policy": "caffe"}, "last_batch is 'partial': .* need last_batch 'wrap'"),
    ],
)
def test_what_makes_no_order_is_refused(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Order(**{"num_records": 5, "batch_size": 2} | wrong)
