"""Pinned host buffers: their size, what keeps them, what happens when there are no more."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest

from memory import DeviceMemoryError, HostMemoryError
from memory.testing import hold

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = 1  # cudaMemoryTypeHost


@pytest.mark.fake_only
def test_a_buffer_is_pinned_and_takes_no_more_than_was_asked_for(cuda: Any, fake: Any) -> None:
    before = fake.stat("pinned_used")
    nbytes = (1 << 20) + 1  # CuPy's pool would take two MiB
    array = cuda.alloc_host(nbytes).array
    attributes = cupy.cuda.runtime.pointerGetAttributes(array.ctypes.data)
    assert attributes.type == HOST
    assert fake.stat("pinned_used") - before == (1 << 20) + 4096  # a page more, not a power of 2


def test_an_array_in_flight_outlives_its_last_reference(cuda: Any) -> None:
    with cuda.make_stream() as stream:
        target = cuda.alloc_device(4096)
        with hold(stream):
            source = cuda.alloc_host(4096).array
            source[:] = 1
            cuda.copy_to_device(target, source, stream=stream)
            del source
            gc.collect()
            assert cuda.memory_info().num_host_buffers == 1
            # Where the memory had been free, this would get it.
            for _ in range(4):
                cuda.alloc_host(4096).array[:] = 9
        back = cuda.alloc_host(4096).array
        cuda.copy_to_host(back, target, stream=stream)
        stream.synchronize()
        assert set(back.tolist()) == {1}


def test_memory_is_freed_after_work_that_knows_its_address_only(cuda: Any) -> None:
    theirs = cupy.cuda.Stream(non_blocking=True)
    target, back = cuda.alloc_device(4096), cuda.alloc_host(4096).array
    with hold(cuda.stream_from(theirs)):
        source = cuda.alloc_host(4096).array
        source[:] = 1
        cupy.cuda.runtime.memcpyAsync(
            target.ptr,
            source.ctypes.data,
            4096,
            cupy.cuda.runtime.memcpyHostToDevice,
            theirs.ptr,
        )
        del source
        gc.collect()
        cuda.copy_to_host(back, target, stream=cuda.stream_from(theirs))
    theirs.synchronize()
    assert set(back.tolist()) == {1}


def test_what_has_landed_is_freed_by_the_wait_for_it(cuda: Any) -> None:
    with cuda.make_stream() as stream:
        for wait in ("event", "stream", "later event"):
            source, target = cuda.alloc_host(64).array, cuda.alloc_device(64)
            cuda.copy_to_device(target, source, stream=stream)
            event = stream.record()
            del source, target
            if wait == "event":
                event.synchronize()
            elif wait == "stream":
                stream.synchronize()
            else:
                stream.record().synchronize()
            info = cuda.memory_info()
            assert (info.num_host_buffers, info.num_buffers) == (0, 0)


def test_copies_without_an_event_do_not_pile_up(cuda: Any) -> None:
    with cuda.make_stream() as stream:
        target = cuda.alloc_device(64)
        for _ in range(1000):
            cuda.copy_to_device(target, cuda.alloc_host(64).array, stream=stream)
            cuda.current_stream().synchronize()
        stream.record().synchronize()
        assert cuda.memory_info().num_host_buffers == 0


@pytest.mark.fake_only
def test_pinned_memory_that_is_used_up_names_the_bytes_and_the_option(cuda: Any, fake: Any) -> None:
    fake.configure(pinned=fake.stat("pinned_used") + 8192)
    kept = cuda.alloc_host(5000)
    with pytest.raises(HostMemoryError, match="100000 bytes were asked for, 5000 ") as caught:
        cuda.alloc_host(100_000)
    assert "pageable_fallback=True" in str(caught.value)
    assert "memory.max" in str(caught.value)
    assert "ulimit" not in str(caught.value)
    assert (caught.value.requested_bytes, caught.value.used_bytes) == (100_000, kept.nbytes)


@pytest.mark.fake_only
def test_with_the_option_it_falls_back_to_pageable_memory_and_says_so_once(
    open_checked: Callable[..., Any], fake: Any, caplog: pytest.LogCaptureFixture
) -> None:
    device = open_checked(pageable_fallback=True)
    fake.configure(pinned=4096)
    with caplog.at_level(logging.WARNING, logger="memory"), device.make_stream() as stream:
        for value in (1, 2):
            source, target = device.alloc_host(100_000).array, device.alloc_device(100_000)
            source[:] = value
            device.copy_to_device(target, source, stream=stream)
            back = device.alloc_host(100_000).array
            device.copy_to_host(back, target, stream=stream)
            assert set(back.tolist()) == {value}
    assert len(caplog.records) == 1
    assert "100000 bytes of host memory could not be pinned" in caplog.text


@pytest.mark.fake_only
def test_what_was_given_up_is_freed_before_memory_is_said_to_be_used_up(
    cuda: Any, fake: Any
) -> None:
    fake.configure(mem=16 << 20, pinned=fake.stat("pinned_used") + (16 << 20))
    for _ in range(8):
        cuda.alloc_device(10 << 20)
        cuda.alloc_host(10 << 20)


@pytest.mark.fake_only
def test_what_cupys_pools_keep_for_later_is_freed_before_that_too(cuda: Any, fake: Any) -> None:
    fake.configure(mem=16 << 20)
    cupy.empty(10 << 20, np.uint8)
    assert cupy.get_default_memory_pool().free_bytes() >= 10 << 20
    cuda.alloc_device(10 << 20)


@pytest.mark.fake_only
def test_device_memory_that_is_used_up_gives_the_numbers(cuda: Any, fake: Any) -> None:
    fake.configure(mem=16 << 20)
    kept = cuda.alloc_device(10 << 20)
    with pytest.raises(DeviceMemoryError) as caught:
        cuda.alloc_device(10 << 20)
    assert caught.value.requested_bytes == 10 << 20
    assert caught.value.used_bytes == kept.nbytes
    assert caught.value.limit_bytes == 1 << 30  # what it had when it was opened


@pytest.mark.parametrize("nbytes", [1 << 50, (1 << 63) - 1, 1 << 63, 1 << 70])
def test_more_than_there_can_be_is_an_error_with_the_number(cuda: Any, nbytes: int) -> None:
    with pytest.raises(DeviceMemoryError, match=f"{nbytes} bytes were asked for"):
        cuda.alloc_device(nbytes)
    with pytest.raises(HostMemoryError, match=f"{nbytes} bytes were asked for"):
        cuda.alloc_host(nbytes)


@pytest.mark.fake_only
def test_everything_is_freed_by_and_by(cuda: Any, fake: Any) -> None:
    before = fake.stat("pinned_used"), fake.stat("mem_used")
    buffers = [(cuda.alloc_host(1 << 16), cuda.alloc_device(1 << 16)) for _ in range(10)]
    del buffers
    cuda.close()  # waits for it
    assert (fake.stat("pinned_used"), fake.stat("mem_used")) == before


@pytest.mark.fake_only
def test_buffers_may_outlive_their_device(open_checked: Callable[..., Any], fake: Any) -> None:
    before = fake.stat("pinned_used")
    device = open_checked()
    array = device.alloc_host(1 << 16).array
    device.close()
    array[:] = 1
    del array
    device.close()  # again, to wait
    assert fake.stat("pinned_used") == before
