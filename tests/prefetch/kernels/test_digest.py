"""The digest of bytes: equal from both kernels, frozen, and another one for any change."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefetch._kernels import _c
from prefetch._kernels.digest import DIGEST_BYTES, numpy_digest

RNG = np.random.default_rng(0)


@given(st.binary(max_size=300))
def test_c_and_numpy_make_the_same_digest(content: bytes) -> None:
    expected = numpy_digest(content)
    # In memory without a byte to spare, for the sanitizers.
    assert expected == _c.digest(np.frombuffer(content, np.uint8).copy())
    assert len(expected) == DIGEST_BYTES


@pytest.mark.parametrize("size", [4095, 4096, 4097, 92_003])
@pytest.mark.parametrize("shift", [0, 1, 7])
def test_they_do_for_long_contents_at_any_address(size: int, shift: int) -> None:
    content = RNG.integers(0, 256, size + shift, np.uint8)[shift:]
    assert numpy_digest(content) == _c.digest(content)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "0000000000000000a0f0188346d90dc5"),
        (b"a", "ce308c31373a5c064e4f81c6f543c13d"),
        (bytes(range(256)), "e3febf9a1fc6617d598822748c81bfde"),
    ],
    ids=["none", "one", "many"],
)
def test_the_digest_is_frozen_for_the_files_that_hold_it(content: bytes, expected: str) -> None:
    assert expected == _c.digest(content).hex()


def test_any_changed_bit_changes_both_words() -> None:
    content = bytearray(RNG.integers(0, 256, 200, np.uint8).tobytes())
    found = {_c.digest(content)}
    for bit in range(8 * len(content)):
        content[bit // 8] ^= 1 << bit % 8
        found.add(_c.digest(content))
        content[bit // 8] ^= 1 << bit % 8
    assert len(found) == 1 + 8 * len(content)
    assert len({one[:8] for one in found}) == len({one[8:] for one in found}) == len(found)


def test_zeros_and_order_count() -> None:
    zeros = {_c.digest(bytes(size)) for size in range(300)}
    assert len(zeros) == 300
    stripes = [RNG.integers(0, 256, 64, np.uint8).tobytes() for _ in range(3)]
    assert _c.digest(b"".join(stripes)) != _c.digest(b"".join(reversed(stripes)))
    words = [RNG.integers(0, 256, 8, np.uint8).tobytes() for _ in range(8)]
    swapped = [words[1], words[0], *words[2:]]
    assert _c.digest(b"".join(words)) != _c.digest(b"".join(swapped))


def test_an_image_has_the_digest_of_its_bytes() -> None:
    image = RNG.integers(0, 256, (5, 7, 3), np.uint8)
    assert _c.digest(image.tobytes()) == _c.digest(image) == _c.digest(image.data)


def test_what_is_no_contiguous_memory_is_refused() -> None:
    with pytest.raises(TypeError):
        _c.digest("text")
    with pytest.raises((ValueError, BufferError)):
        _c.digest(RNG.integers(0, 256, (4, 4), np.uint8)[:, ::2])
    with pytest.raises(TypeError):
        _c.digest()  # type: ignore[call-arg]


def test_several_threads_make_digests_at_once() -> None:
    content = RNG.integers(0, 256, 1 << 20, np.uint8)
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(_c.digest(content))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [numpy_digest(content)] * 4 == found
