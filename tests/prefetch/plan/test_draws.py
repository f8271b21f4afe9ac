from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scalar_philox import scalar_philox

from prefetch._kernels import _c
from prefetch._plan.draws import CaffeDraws, CounterDraws
from prefetch._plan.order import Order, PlannedBatch

# Caffe with random seed 1701: what the layer's transformer draws first.
WORDS_1701 = [3481802584, 1524196175, 546066792, 745442735, 1665295398, 1208259420]


def planned(order: Order, sequence: int) -> PlannedBatch:
    batch = order.plan(sequence)
    assert batch is not None
    return batch


def scalar_words(seed: int, epoch: int, record: int) -> list[int]:
    """The words of a record: its block under the key of (seed, epoch)."""
    seed_words = (seed & 0xFFFFFFFF, seed >> 32)
    key = scalar_philox((epoch & 0xFFFFFFFF, epoch >> 32, 1, 0), seed_words)[:2]
    return scalar_philox((record & 0xFFFFFFFF, record >> 32, 0, 0), key)[:3]


class TestCounterAugmentation:
    def test_words_are_frozen(self) -> None:
        words = CounterDraws(1701).words_at(
            np.array([0, 0, 1, 2**33]), np.array([0, 1, 1, 2**40 - 1])
        )

        assert words.tolist() == [
            [3818077128, 541936070, 3349419492],
            [771622534, 3802268188, 4162312825],
            [1122701987, 868833037, 4279571541],
            [31722069, 3513272890, 2201389735],
        ]

    @pytest.mark.parametrize("seed", [0, 1701, 2**64 - 1])
    def test_words_are_a_records_block_under_the_key_of_seed_and_epoch(self, seed: int) -> None:
        epochs, records = np.array([3, 3, 3]), np.array([0, 7, 2**33 + 5])

        words = CounterDraws(seed).words_at(epochs, records)

        assert words.tolist() == [scalar_words(seed, 3, record) for record in records.tolist()]
        assert words.dtype == np.uint32
        assert words.flags.c_contiguous

    def test_a_batch_over_several_epochs_has_the_words_of_each(self) -> None:
        batch = planned(Order(3, 8, last_batch="wrap"), 1)

        words = CounterDraws(5).words(batch)

        assert batch.epochs.tolist() == [2, 3, 3, 3, 4, 4, 4, 5]
        expected = [
            scalar_words(5, epoch, record)
            for epoch, record in zip(batch.epochs.tolist(), batch.records.tolist(), strict=True)
        ]
        assert words.tolist() == expected

    def test_a_record_has_the_same_words_in_whatever_batch_and_share(self) -> None:
        augmentation = CounterDraws(9)
        whole = augmentation.words(planned(Order(12, 12, shuffle=True, seed=9), 0))
        places = planned(Order(12, 12, shuffle=True, seed=9), 0).places

        for rank in range(3):
            order = Order(12, 2, shuffle=True, seed=9, rank=rank, world_size=3)
            for sequence in range(2):
                batch = planned(order, sequence)
                rows = np.searchsorted(places, batch.places)
                assert augmentation.words(batch).tolist() == whole[rows].tolist()

    def test_epochs_and_seeds_have_words_of_their_own(self) -> None:
        first, second = Order(10, 10), Order(10, 10, first_epoch=1)
        seen = {
            word
            for seed in (0, 1, 2**32)
            for order in (first, second)
            for word in CounterDraws(seed).words(planned(order, 0)).ravel().tolist()
        }

        assert len(seen) == 3 * 2 * 10 * 3

    def test_no_records_have_no_words(self) -> None:
        nothing = np.empty(0, np.int64)

        assert CounterDraws(0).words_at(nothing, nothing).shape == (0, 3)

    @pytest.mark.parametrize("seed", [-1, 2**64])
    def test_a_seed_beyond_64_bits_is_refused(self, seed: int) -> None:
        with pytest.raises(ValueError, match=f"seed is {seed}: expected"):
            CounterDraws(seed)


class TestCaffeAugmentation:
    order = Order(5, 4, last_batch="wrap", policy="caffe")

    def test_images_draw_mirror_row_and_column_in_turn(self) -> None:
        words = CaffeDraws(1701, mirror=True, crop=True).words(planned(self.order, 0))

        assert words[:2].ravel().tolist() == WORDS_1701
        assert words.shape == (4, 3)
        assert words.dtype == np.uint32

    def test_without_a_crop_an_image_draws_one_word(self) -> None:
        words = CaffeDraws(1701, mirror=True, crop=False).words(planned(self.order, 0))

        assert words[:, 0].tolist() == WORDS_1701[:4]
        assert not words[:, 1:].any()

    def test_without_a_mirror_an_image_draws_two_words(self) -> None:
        words = CaffeDraws(1701, mirror=False, crop=True).words(planned(self.order, 0))

        assert words[:3, 1:].ravel().tolist() == WORDS_1701
        assert not words[:, 0].any()

    def test_without_either_nothing_is_drawn(self) -> None:
        augmentation = CaffeDraws(1701, mirror=False, crop=False)
        before = augmentation.state

        assert augmentation.words(planned(self.order, 3)).tolist() == [[0, 0, 0]] * 4
        assert augmentation.state == before

    @pytest.mark.parametrize("draws_before", [0, 1, 3, 700])
    def test_a_layer_is_seeded_with_the_second_number_after_those_before_it(
        self, draws_before: int
    ) -> None:
        outer = np.random.RandomState(1701)._bit_generator.random_raw(draws_before + 2)
        inner = np.random.RandomState(int(outer[-1]))._bit_generator.random_raw(4)

        augmentation = CaffeDraws(1701, mirror=True, crop=False, draws_before=draws_before)

        assert augmentation.words(planned(self.order, 0))[:, 0].tolist() == inner.tolist()

    def test_the_stream_goes_on_from_batch_to_batch(self) -> None:
        augmentation = CaffeDraws(3, mirror=True, crop=True)
        batches = [augmentation.words(planned(self.order, sequence)) for sequence in range(3)]

        whole = CaffeDraws(3, mirror=True, crop=True).words(
            planned(Order(5, 12, last_batch="wrap"), 0)
        )
        assert np.concatenate(batches).tolist() == whole.tolist()

    def test_a_batch_has_its_words_in_whatever_order_batches_are_asked_for(self) -> None:
        straight = CaffeDraws(3, mirror=True, crop=True)
        expected = [straight.words(planned(self.order, sequence)) for sequence in range(4)]
        augmentation = CaffeDraws(3, mirror=True, crop=True)

        for sequence in (2, 3, 0, 1, 1):
            words = augmentation.words(planned(self.order, sequence))
            assert words.tolist() == expected[sequence].tolist()

    @pytest.mark.parametrize("sequence", [0, 1, 200])
    def test_a_run_goes_on_from_the_state_before_a_batch(self, sequence: int) -> None:
        augmentation = CaffeDraws(3, mirror=True, crop=True)
        batch = planned(self.order, sequence)
        state = json.loads(json.dumps(augmentation.state_before(batch)))
        expected = augmentation.words(batch)

        resumed = CaffeDraws(0, mirror=True, crop=True, state=state)

        assert resumed.words(planned(self.order, 0)).tolist() == expected.tolist()

    def test_the_state_is_that_after_the_last_words(self) -> None:
        augmentation = CaffeDraws(3, mirror=True, crop=False)
        augmentation.words(planned(self.order, 0))

        state = augmentation.state

        assert state == augmentation.state_before(planned(self.order, 1))

    @pytest.mark.parametrize("seed", [-1, 2**32])
    def test_a_seed_beyond_32_bits_is_refused(self, seed: int) -> None:
        with pytest.raises(ValueError, match=f"seed is {seed}: .*rng 'counter'"):
            CaffeDraws(seed, mirror=True, crop=True)

    def test_the_repr_shows_where_the_stream_stands(self) -> None:
        augmentation = CaffeDraws(3, mirror=True, crop=False)
        augmentation.words(planned(self.order, 1))

        assert repr(augmentation) == "<CaffeDraws mirror=True crop=False at word 8>"


class TestNativeWords:
    @given(
        seed=st.integers(0, 2**64 - 1),
        num_records=st.integers(1, 2**40),
        batch_size=st.integers(1, 40),
        sequence=st.integers(0, 2**50),
    )
    def test_the_c_kernel_draws_what_numpy_draws(
        self, seed: int, num_records: int, batch_size: int, sequence: int
    ) -> None:
        order = Order(num_records, batch_size, shuffle=True, seed=seed, last_batch="wrap")
        batch = planned(order, sequence)
        for blocks in ([], [4, 5, 13], [2**31]):
            numbers = np.array(blocks, np.int64)
            native = CounterDraws(seed, draw=_c.philox_words, blocks=numbers)
            expected = CounterDraws(seed, blocks=numbers).words(batch)
            assert native.words(batch).tolist() == expected.tolist()
            assert expected.shape[1] == 3 + 4 * len(blocks)

    def test_arguments_that_do_not_fit_are_refused(self) -> None:
        records, words = np.zeros(2, np.int64), np.zeros((2, 3), np.uint32)
        none, one = np.zeros(0, np.int64), np.zeros(1, np.int64)
        for bad in (
            (-1, 0, records, none, words),
            (0, 0, records, none, words[:1]),
            (0, 0, records, one, words),
            (0, 0, words, none, words),
            (0, 0, records, words, words),
        ):
            with pytest.raises((TypeError, ValueError, OverflowError)):
                _c.philox_words(*bad)
        with pytest.raises(TypeError, match="records must be int64"):
            _c.philox_words(0, 0, words[0], none, words)
