from __future__ import annotations

import numpy as np
import pytest
from scalar_philox import scalar_philox

from prefetch._plan.philox import MAX_SEED, Domain, philox4x32, stream_key, stream_keys

# Known answers of the Random123 library (tests/kat_vectors, philox4x32 with 10 rounds):
# counter, key, words.
KNOWN_ANSWERS = [
    (
        (0x00000000, 0x00000000, 0x00000000, 0x00000000),
        (0x00000000, 0x00000000),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_words_are_the_known_answers_of_random123(
    counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]
) -> None:
    found = philox4x32(np.array([counter], np.uint64).T, np.array([key], np.uint64).T)

    assert tuple(found[:, 0].tolist()) == words
    assert tuple(scalar_philox(counter, key)) == words


def test_many_counters_under_many_keys_give_what_each_gives_alone() -> None:
    generator = np.random.default_rng(20)
    counters = generator.integers(0, 2**32, (4, 50), np.uint64)
    keys = generator.integers(0, 2**32, (2, 50), np.uint64)

    expected = [scalar_philox(counters[:, i].tolist(), keys[:, i].tolist()) for i in range(50)]
    assert philox4x32(counters, keys).T.tolist() == expected


def test_counters_and_keys_broadcast_over_further_axes() -> None:
    counters = np.arange(4 * 3, dtype=np.uint64).reshape(4, 3, 1)
    keys = np.arange(2 * 5, dtype=np.uint64).reshape(2, 1, 5)

    words = philox4x32(counters, keys)

    assert words.shape == (4, 3, 5)
    for i in range(3):
        for j in range(5):
            expected = scalar_philox(counters[:, i, 0].tolist(), keys[:, 0, j].tolist())
            assert words[:, i, j].tolist() == expected


def test_arguments_are_left_as_they_were() -> None:
    counters = np.full((4, 2), 7, np.uint64)
    keys = np.full((2, 1), 9, np.uint64)

    philox4x32(counters, keys)

    assert counters.tolist() == [[7, 7]] * 4
    assert keys.tolist() == [[9]] * 2


@pytest.mark.parametrize("seed", [0, 1701, 2**32, MAX_SEED])
@pytest.mark.parametrize("epoch", [0, 1, 2**32 + 5])
@pytest.mark.parametrize("domain", list(Domain))
def test_a_streams_key_is_its_epoch_and_domain_encrypted_under_the_seed(
    seed: int, epoch: int, domain: Domain
) -> None:
    counter = (epoch & 0xFFFFFFFF, epoch >> 32, int(domain), 0)
    expected = scalar_philox(counter, (seed & 0xFFFFFFFF, seed >> 32))[:2]

    assert stream_key(seed, epoch, domain)[:, 0].tolist() == expected
    keys = stream_keys(seed, np.array([3, epoch]), domain=domain)
    assert keys[:, 1].tolist() == expected


def test_keys_are_frozen() -> None:
    epochs = np.array([0, 1])

    draws = stream_keys(1701, epochs, domain=Domain.AUGMENTATION)
    shuffles = stream_keys(1701, epochs, domain=Domain.SHUFFLE)

    assert draws.T.tolist() == [[0xB26A61A0, 0xA45A96D4], [0x3D71174B, 0x5F4137B1]]
    assert shuffles.T.tolist() == [[0x72163AE9, 0xAAC8DC92], [0xF9896CC4, 0x6289BD36]]


def test_a_remembered_key_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        stream_key(1, 2, Domain.SHUFFLE)[0] = 0


@pytest.mark.parametrize("seed", [-1, MAX_SEED + 1])
def test_a_seed_beyond_64_bits_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed is {seed}: expected"):
        stream_key(seed, 0, Domain.SHUFFLE)
