"""Streams: whose they are, which is current, what orders them; and the caller's own state."""

from __future__ import annotations

import gc
import os
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest

from memory import BufferMismatchError, DeviceMismatchError
from memory.testing import hold, peek

if TYPE_CHECKING:
    from collections.abc import Callable

runtime = cupy.cuda.runtime


def fakes_hold(stream: Any) -> AbstractContextManager[Any]:
    """Hold a stream by the fake's own means, where there is one."""
    if os.environ["RINGFEED_TEST_CUDA"] != "fake":
        return nullcontext()
    import fakecuda  # noqa: PLC0415 - there is none on a GPU

    return fakecuda.hold(stream)


def pinned(device: Any, nbytes: int, value: int) -> Any:
    array = device.alloc_host(nbytes).array
    array[:] = value
    return array


class TestOurs:
    def test_the_null_stream_does_not_order_them(self, cuda: Any) -> None:
        with cuda.make_stream() as stream, hold(stream):
            cuda.copy_to_device(cuda.alloc_device(64), pinned(cuda, 64, 1), stream=stream)
            null = cuda.current_stream()
            null.synchronize()
            assert not stream.record().done()

    def test_an_event_of_one_is_waited_for_by_another_and_not_by_the_host(self, cuda: Any) -> None:
        first, second = pinned(cuda, 1 << 16, 1), cuda.alloc_device(1 << 16)
        third = cuda.alloc_device(1 << 16)
        with cuda.make_stream() as writer, cuda.make_stream() as reader:
            with hold(writer):
                cuda.copy_to_device(second, first, stream=writer)
                reader.wait(writer.record())
                cuda.copy_on_device(third, second, stream=reader)
                assert not reader.record().done()
            reader.synchronize()
            assert set(peek(third).tolist()) == {1}

    def test_an_event_that_is_used_again_disturbs_no_wait(self, cuda: Any) -> None:
        # CUDA's events are few and used again once their Python object is gone.
        source, target = pinned(cuda, 64, 7), cuda.alloc_device(64)
        back = cuda.alloc_host(64).array
        with cuda.make_stream() as writer, cuda.make_stream() as reader, cuda.make_stream() as idle:
            with hold(writer):
                cuda.copy_to_device(target, source, stream=writer)
                event = writer.record()
                reader.wait(event)
                del event
                for _ in range(10):
                    idle.record().synchronize()
                cuda.copy_to_host(back, target, stream=reader)
                assert not reader.record().done()
            reader.synchronize()
            assert set(back.tolist()) == {7}

    def test_one_that_is_collected_open_finishes_its_work_and_warns(self, cuda: Any) -> None:
        source, target = pinned(cuda, 64, 3), cuda.alloc_device(64)
        stream = cuda.make_stream("dropped")
        latch = hold(stream)
        cuda.copy_to_device(target, source, stream=stream)
        event = stream.record()
        del source
        with pytest.warns(ResourceWarning, match="stream 'dropped' of device 'cuda:0'"):
            del stream
        assert not event.done()
        latch.release()
        event.synchronize()
        assert set(peek(target).tolist()) == {3}

    def test_a_stream_made_after_one_was_closed_is_another(self, cuda: Any) -> None:
        closed = cuda.make_stream()
        closed.close()
        with cuda.make_stream() as stream:
            assert closed != stream
            assert [noted for noted in (closed,) if noted == stream] == []

    def test_a_notification_does_not_wait_for_another_streams_work(self, cuda: Any) -> None:
        called: list[str] = []
        passed = threading.Event()
        with cuda.make_stream() as held, cuda.make_stream() as free:
            with hold(held):
                held.record().notify(lambda: called.append("held"))
                # A GPU may call the functions of two streams one after the other: one hold there.
                with fakes_hold(free):
                    event = free.record()
                    event.notify(passed.set)
                assert passed.wait(10)
                assert called == []
            held.synchronize()

    def test_notifications_do_not_get_lost_whoever_gives_them(self, cuda: Any) -> None:
        semaphore = threading.Semaphore(0)

        def give() -> None:
            with cuda.make_stream() as stream:
                for _ in range(50):
                    with hold(stream):
                        stream.record().notify(semaphore.release)

        threads = [threading.Thread(target=give) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(200):
            assert semaphore.acquire(timeout=10)


class TestTheCallers:
    def test_the_current_stream_is_cupys(self, cuda: Any) -> None:
        with cupy.cuda.Stream(non_blocking=True) as theirs:
            assert cuda.current_stream().handle == theirs.ptr
            assert cuda.current_stream() == cuda.stream_from(theirs)
        assert cuda.current_stream().handle == 0

    def test_a_stream_of_ours_becomes_cupys_current_one(self, cuda: Any) -> None:
        with cuda.make_stream() as stream, cuda.use_stream(stream):
            assert cupy.cuda.get_current_stream().ptr == stream.handle
            array = cupy.zeros(4)
            assert array.__cuda_array_interface__["stream"] == stream.handle
        assert cupy.cuda.get_current_stream() == cupy.cuda.Stream.null

    def test_an_adopted_one_is_kept_alive_and_is_one_of_a_list(self, cuda: Any) -> None:
        theirs = cupy.cuda.Stream(non_blocking=True)
        noted = [cuda.stream_from(theirs)]
        assert cuda.stream_from(theirs.ptr) in noted
        del theirs
        noted[0].record().synchronize()

    def test_any_library_s_stream_is_adopted(self, cuda: Any) -> None:
        theirs = cupy.cuda.Stream(non_blocking=True)

        class Torch:
            cuda_stream = theirs.ptr
            device_index = 0

        class Protocol:
            def __cuda_stream__(self) -> tuple[int, int]:
                return (0, theirs.ptr)

        for found in (theirs, Torch(), Protocol(), theirs.ptr, np.int64(theirs.ptr)):
            assert cuda.stream_from(found).handle == theirs.ptr
        assert cuda.stream_from(0) is cuda.stream_from(cupy.cuda.Stream.null)
        assert cuda.stream_from(runtime.streamLegacy) is cuda.stream_from(0)

    @pytest.mark.parametrize("found", [None, "stream", -1, True, 1.5])
    def test_what_is_no_stream_is_refused(self, cuda: Any, found: object) -> None:
        with pytest.raises(BufferMismatchError, match="a stream of this device"):
            cuda.stream_from(found)

    def test_a_stream_of_another_gpu_is_refused(self, two_devices: tuple[Any, Any]) -> None:
        first, second = two_devices
        with cupy.cuda.Device(1):
            theirs = cupy.cuda.Stream(non_blocking=True)
        assert second.stream_from(theirs).handle == theirs.ptr
        with pytest.raises(DeviceMismatchError, match="belongs to cuda:1"):
            first.stream_from(theirs)
        with second.make_stream() as stream, pytest.raises(DeviceMismatchError):
            first.stream_from(stream)

    def test_work_on_it_is_kept_alive_when_its_handle_is_dropped(self, cuda: Any) -> None:
        theirs = cupy.cuda.Stream(non_blocking=True)
        target = cuda.alloc_device(64)
        stream = cuda.stream_from(theirs)
        with hold(stream):
            cuda.copy_to_device(target, pinned(cuda, 64, 5), stream=stream)
            event = stream.record()
            del stream
            gc.collect()
            cuda.alloc_host(64).array[:] = 9
        event.synchronize()
        assert set(peek(target).tolist()) == {5}

    def test_a_threads_default_stream_is_reached_from_other_threads(self, cuda: Any) -> None:
        # Its handle, 2, means another stream on every thread.
        with cupy.cuda.Stream.ptds:
            mine = cuda.current_stream()
        assert mine.handle < 0
        events: list[Any] = []
        with hold(mine):
            thread = threading.Thread(target=lambda: events.append(mine.record()))
            thread.start()
            thread.join()
            assert not events[0].done()
        events[0].synchronize()

    def test_the_default_streams_of_two_threads_are_two(self, cuda: Any) -> None:
        def adopt() -> None:
            with cupy.cuda.Stream.ptds:
                found.append(cuda.current_stream())
            met.wait()

        found: list[Any] = []
        met = threading.Barrier(2)
        threads = [threading.Thread(target=adopt) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found[0] != found[1]


class TestTheCallersDevice:
    @pytest.mark.parametrize("current", [0, 1])
    def test_every_call_leaves_it_as_it_was(
        self, two_devices: tuple[Any, Any], current: int
    ) -> None:
        for device in two_devices:
            with cupy.cuda.Device(current):
                for call in self.calls(device):
                    call()
                    assert runtime.getDevice() == current
                with device.make_stream() as own, device.use_stream(own):
                    assert runtime.getDevice() == current
                    assert device.current_stream() is own
                assert cupy.cuda.get_current_stream(0) == cupy.cuda.Stream.null
                assert cupy.cuda.get_current_stream(1) == cupy.cuda.Stream.null

    def calls(self, device: Any) -> list[Callable[[], object]]:
        stream = device.make_stream()
        source, target = pinned(device, 64, device.ordinal), device.alloc_device(64)
        return [
            lambda: device.copy_to_device(target, source, stream=stream),
            lambda: device.fill(target, 1, stream=stream),
            stream.record,
            lambda: stream.wait(stream.record()),
            stream.synchronize,
            device.current_stream,
            lambda: device.alloc_host(64),
            lambda: device.alloc_device(64),
            stream.close,
        ]

    def test_memory_and_streams_are_on_the_device_that_made_them(
        self, two_devices: tuple[Any, Any]
    ) -> None:
        for device in two_devices:
            block = device.alloc_device(64)
            assert runtime.pointerGetAttributes(block.ptr).device == device.ordinal

    def test_a_new_thread_works_on_the_second_device(self, two_devices: tuple[Any, Any]) -> None:
        def work() -> None:
            target = second.alloc_device(64)
            with second.make_stream() as stream:
                second.copy_to_device(target, pinned(second, 64, 4), stream=stream)
                stream.synchronize()
            results.append((runtime.getDevice(), set(peek(target).tolist())))

        _, second = two_devices
        results: list[tuple[int, set[int]]] = []
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert results == [(0, {4})]
