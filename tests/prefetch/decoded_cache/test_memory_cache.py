"""Decoded images in memory: what was stored, as far as there is room."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
from decoded_images import fill, found_in, image_of, key_of

from prefetch._decoded_cache.memory_cache import MemoryCache

if TYPE_CHECKING:
    import pytest


def test_what_was_stored_is_found() -> None:
    cache = MemoryCache(1 << 20).hold()
    assert [] == found_in(cache, range(5))
    fill(cache, range(5))
    assert list(range(5)) == found_in(cache, range(10))
    counts = cache.counts()
    assert (5, 10) == (counts.hits, counts.misses)
    assert sum(image_of(number).nbytes for number in range(5)) == counts.nbytes


def test_what_is_stored_is_a_copy() -> None:
    cache = MemoryCache(1 << 20).hold()
    image = image_of(1)
    cache.store(key_of(1), image)
    image[:] = 0
    assert [1] == found_in(cache, [1])


def test_a_full_cache_keeps_what_it_has_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = MemoryCache(2000).hold()
    fill(cache, range(40))
    found = found_in(cache, range(40))
    assert 0 < len(found) < 40
    fill(cache, range(40))
    assert found == found_in(cache, range(40))
    assert cache.counts().nbytes <= 2000
    (record,) = caplog.records
    assert f"full with {len(found)} images: it has 2000 bytes" in record.getMessage()


def test_without_memory_it_is_full(caplog: pytest.LogCaptureFixture) -> None:
    class NoMemory(np.ndarray[tuple[int, ...], np.dtype[np.uint8]]):
        def copy(self, *_: object) -> NoMemory:
            raise MemoryError

    cache = MemoryCache(1 << 20).hold()
    cache.store(key_of(1), image_of(1).view(NoMemory))
    fill(cache, range(2, 4))
    assert [] == found_in(cache, range(5))
    assert 0 == cache.counts().nbytes
    assert "there is no more memory" in caplog.text


def test_it_is_emptied_when_all_that_hold_it_have_let_go() -> None:
    cache = MemoryCache(1 << 20).hold()
    fill(cache, range(3))
    cache.hold()
    cache.close()
    image = cache.find(key_of(0))
    cache.close()
    assert [] == found_in(cache, range(3))
    assert image is not None
    np.testing.assert_array_equal(image_of(0), image)


def test_threads_store_an_image_once() -> None:
    cache = MemoryCache(1 << 20).hold()
    threads = [threading.Thread(target=fill, args=(cache, range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(range(50)) == found_in(cache, range(50))
    assert sum(image_of(number).nbytes for number in range(50)) == cache.counts().nbytes
