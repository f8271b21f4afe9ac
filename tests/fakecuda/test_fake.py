"""What the fake device promises; each promise is a property of CUDA that the project relies on."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cupy
import fakecuda
import numpy as np
import pytest

from memory._cuda import maths

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    RunPython = Callable[..., subprocess.CompletedProcess[str]]

runtime = cupy.cuda.runtime
NBYTES = 4096
BUILDER = Path(fakecuda.__file__).resolve().parents[1] / "fakecuda_build.py"


def pinned(value: int, nbytes: int = NBYTES) -> NDArray[np.uint8]:
    array = np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)
    array[:] = value
    return array


def device_bytes(nbytes: int = NBYTES) -> Any:
    return cupy.empty(nbytes, np.uint8)


def new_stream() -> Any:
    return cupy.cuda.Stream(non_blocking=True)


def new_event() -> Any:
    return cupy.cuda.Event(disable_timing=True)


class TestOrder:
    def test_held_work_is_in_flight_and_fresh_memory_is_poisoned(self) -> None:
        source, target, stream, event = pinned(7), device_bytes(), new_stream(), new_event()
        with fakecuda.hold() as held:
            target.set(source, stream=stream)
            event.record(stream)
            assert not event.done
            assert not stream.done
            found = fakecuda.peek(target.data.ptr, 4)
            assert found == b"\xcb" * 4  # no array here: pytest would show it, and so wait for it
            held.release()
            event.synchronize()
        assert event.done
        assert set(target.get().tolist()) == {7}

    def test_a_copy_reads_its_pinned_source_when_it_runs(self) -> None:
        source, target, stream = pinned(1), device_bytes(), new_stream()
        with fakecuda.hold():
            target.set(source, stream=stream)
            source[:] = 2
        stream.synchronize()
        assert set(target.get().tolist()) == {2}

    def test_a_pageable_source_is_staged_before_the_call_returns(self) -> None:
        source, target, stream = np.ones(NBYTES, np.uint8), device_bytes(), new_stream()
        with fakecuda.hold():
            runtime.memcpyAsync(
                target.data.ptr,
                source.ctypes.data,
                NBYTES,
                runtime.memcpyHostToDevice,
                stream.ptr,
            )
            source[:] = 2
        stream.synchronize()
        assert set(target.get().tolist()) == {1}

    @pytest.mark.parametrize("ordered", [False, True])
    def test_two_streams_are_ordered_by_an_event_only(self, ordered: bool) -> None:  # noqa: FBT001 - a parameter
        source, between, target = pinned(7), device_bytes(), device_bytes()
        first, second = new_stream(), new_stream()
        with fakecuda.hold(first):
            between.set(source, stream=first)
            if ordered:
                second.wait_event(first.record())
            target.data.copy_from_device_async(between.data, NBYTES, second)
            if not ordered:
                second.synchronize()
        second.synchronize()
        first.synchronize()
        assert (set(target.get().tolist()) == {7}) == ordered

    @pytest.mark.parametrize("non_blocking", [False, True])
    def test_the_null_stream_is_ordered_with_blocking_streams(self, non_blocking: bool) -> None:  # noqa: FBT001 - a parameter
        stream, null = cupy.cuda.Stream(non_blocking=non_blocking), cupy.cuda.Stream.null
        target = device_bytes()
        with fakecuda.hold(stream):
            target.set(pinned(7), stream=stream)
            event = null.record(new_event())
            if non_blocking:
                event.synchronize()
            assert event.done == non_blocking

    def test_a_wait_takes_the_events_record_of_its_time(self) -> None:
        first, second, other, event = new_stream(), new_stream(), new_stream(), new_event()
        with fakecuda.hold(first):
            event.record(first)
            second.wait_event(event)
            event.record(other)  # the same event, used again
            event.synchronize()
            passed = second.record(new_event())
            assert not passed.done
        passed.synchronize()

    def test_an_event_never_recorded_is_done(self) -> None:
        assert new_event().done

    def test_the_default_stream_of_each_thread_is_its_own(self) -> None:
        def work(value: int) -> None:
            with cupy.cuda.Device(0), cupy.cuda.Stream.ptds as stream:
                # A name of its own for what is pinned: CuPy's pool would hand it out again at once.
                source, target = pinned(value), device_bytes()
                target.set(source, stream=stream)
                stream.synchronize()
                results[value] = set(target.get(stream=stream).tolist())

        results: dict[int, set[int]] = {}
        threads = [threading.Thread(target=work, args=(value,)) for value in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == {value: {value} for value in range(8)}

    def test_host_functions_run_in_order_on_another_thread(self) -> None:
        stream, called, found = new_stream(), threading.Event(), []

        def call(argument: int) -> None:
            found.append((argument, threading.get_ident()))
            called.set()

        stream.launch_host_func(call, 42)
        assert called.wait(5)
        assert found[0][0] == 42
        assert found[0][1] != threading.get_ident()

    def test_a_capture_takes_in_what_is_queued_and_is_spoilt_by_what_it_cannot(self) -> None:
        stream, target, event, source = new_stream(), device_bytes(), new_event(), pinned(7)
        runtime.memset(target.data.ptr, 1, NBYTES)
        stream.begin_capture()
        assert stream.is_capturing()
        runtime.memcpyAsync(
            target.data.ptr, source.ctypes.data, NBYTES, runtime.memcpyHostToDevice, stream.ptr
        )
        event.record(stream)
        with pytest.raises(runtime.CUDARuntimeError, match="CapturedEvent"):
            event.synchronize()
        runtime.graphDestroy(runtime.streamEndCapture(stream.ptr))
        assert set(target.get().tolist()) == {1}
        for spoil, message in (
            (lambda: stream.wait_event(new_event()), "Isolation"),
            (stream.synchronize, "Unsupported"),
        ):
            stream.begin_capture()
            with pytest.raises(runtime.CUDARuntimeError, match=message):
                spoil()
            with pytest.raises(runtime.CUDARuntimeError, match="Invalidated"):
                runtime.streamEndCapture(stream.ptr)
        stream.synchronize()

    def test_bandwidth_takes_time_on_the_device_and_not_on_the_host(self) -> None:
        source, target, stream = pinned(1, 1 << 20), device_bytes(1 << 20), new_stream()
        began, ended = cupy.cuda.Event(), cupy.cuda.Event()
        fakecuda.configure(mbps=200)
        began.record(stream)
        target.set(source, stream=stream)
        assert not stream.done
        ended.record(stream)
        ended.synchronize()
        assert cupy.cuda.get_elapsed_time(began, ended) >= 5


class TestCupysPools:
    """Why the project has no use for them."""

    def test_the_pinned_pool_hands_a_block_out_again_while_it_is_copied_from(self) -> None:
        pool = cupy.cuda.PinnedMemoryPool()
        memory = pool.malloc(NBYTES)
        source = np.frombuffer(memory, np.uint8, NBYTES)
        source[:] = 1
        address, target, stream = memory.ptr, device_bytes(), new_stream()
        with fakecuda.hold():
            runtime.memcpyAsync(
                target.data.ptr, address, NBYTES, runtime.memcpyHostToDevice, stream.ptr
            )
            del source, memory
            again = pool.malloc(NBYTES)
            assert again.ptr == address
            np.frombuffer(again, np.uint8, NBYTES)[:] = 9
        stream.synchronize()
        assert set(target.get().tolist()) == {9}

    def test_the_pinned_pool_rounds_up_to_a_power_of_two_and_keeps_what_is_free(self) -> None:
        pool, before = cupy.cuda.PinnedMemoryPool(), fakecuda.stat("pinned_used")
        memory = pool.malloc((1 << 20) + 1)
        assert fakecuda.stat("pinned_used") - before == 2 << 20
        del memory
        assert fakecuda.stat("pinned_used") - before == 2 << 20
        pool.free_all_blocks()
        assert fakecuda.stat("pinned_used") == before

    def test_pinned_memory_that_is_used_up_is_no_memory_error(self) -> None:
        fakecuda.configure(pinned=fakecuda.stat("pinned_used") + 4096)
        with pytest.raises(runtime.CUDARuntimeError) as caught:
            cupy.cuda.PinnedMemory(1 << 20)
        assert caught.value.status == 2
        assert not isinstance(caught.value, MemoryError)

    def test_the_device_pool_goes_by_the_current_stream(self) -> None:
        pool, first, second = cupy.cuda.MemoryPool(), new_stream(), new_stream()
        with cupy.cuda.using_allocator(pool.malloc):
            with first:
                address = device_bytes().data.ptr
            with second:
                elsewhere = device_bytes()
            with first:
                again = device_bytes()
            assert elsewhere.data.ptr != address
            assert again.data.ptr == address

    def test_the_device_pool_does_not_know_of_other_streams_work(self) -> None:
        pool, first, second = cupy.cuda.MemoryPool(), new_stream(), new_stream()
        sources = [pinned(1), pinned(2)]
        with cupy.cuda.using_allocator(pool.malloc), fakecuda.hold(second):
            with first:
                dropped = device_bytes()
            dropped.set(sources[0], stream=second)
            del dropped
            with first:
                taken = device_bytes()
                taken.set(sources[1], stream=first)
            first.synchronize()
        second.synchronize()
        assert set(taken.get().tolist()) == {1}

    def test_it_gives_back_and_tries_again_when_memory_is_used_up(self) -> None:
        pool = cupy.get_default_memory_pool()
        gc.collect()
        pool.free_all_blocks()
        fakecuda.configure(mem=8 << 20)
        device_bytes(6 << 20)
        kept = device_bytes(7 << 20)
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError) as caught:
            device_bytes(4 << 20)
        assert isinstance(caught.value, MemoryError)
        del kept

    def test_the_stream_ordered_pool_works(self) -> None:
        pool, stream = cupy.cuda.MemoryAsyncPool(), new_stream()
        with cupy.cuda.using_allocator(pool.malloc), stream:
            array = device_bytes(1 << 20)
            array.set(np.full(1 << 20, 3, np.uint8), stream=stream)
            assert set(array.get(stream=stream).tolist()) == {3}
            del array
        stream.synchronize()
        assert pool.used_bytes() == 0


class TestCupysArrays:
    """Why copies and hand-overs are made without their methods."""

    def test_set_does_not_keep_its_source(self) -> None:
        pool, target, stream = cupy.cuda.PinnedMemoryPool(), device_bytes(), new_stream()
        memory = pool.malloc(NBYTES)
        source = np.frombuffer(memory, np.uint8, NBYTES)
        source[:] = 1
        with fakecuda.hold():
            target.set(source, stream=stream)
            del source, memory
            np.frombuffer(pool.malloc(NBYTES), np.uint8, NBYTES)[:] = 9
        stream.synchronize()
        assert set(target.get().tolist()) == {9}

    def test_asarray_of_pinned_memory_is_not_staged(self) -> None:
        before, stream, source = fakecuda.stat("staged"), new_stream(), pinned(1)
        with stream, fakecuda.hold(stream):
            array = cupy.asarray(source)
            source[:] = 5  # too early: the copy has not run
        stream.synchronize()
        assert fakecuda.stat("staged") == before
        assert set(array.get().tolist()) == {5}

    def test_get_waits_unless_it_is_told_not_to(self) -> None:
        array, stream, out = device_bytes(), new_stream(), pinned(0)
        array.set(pinned(4), stream=stream)
        stream.synchronize()
        with fakecuda.hold(stream) as held:
            array.get(stream=stream, out=out, blocking=False)
            assert set(out.tolist()) == {0}
            threading.Timer(0.01, held.release).start()
            assert set(array.get(stream=stream).tolist()) == {4}

    def test_the_interface_names_the_current_stream_and_not_that_of_the_copy(self) -> None:
        array, stream = device_bytes(), new_stream()
        array.set(pinned(1), stream=stream)
        assert array.__cuda_array_interface__["stream"] == 1
        with stream:
            assert array.__cuda_array_interface__["stream"] == stream.ptr

    def test_dlpack_lets_the_consumers_stream_wait_for_the_current_one(self) -> None:
        producer, consumer, array = new_stream(), new_stream(), device_bytes()
        with producer:
            for stream, waits in ((consumer.ptr, 1), (-1, 0)):
                before = fakecuda.stat("waits")
                array.__dlpack__(stream=stream)
                assert fakecuda.stat("waits") - before == waits


class TestLimits:
    def test_host_functions_of_all_streams_run_one_after_the_other(self) -> None:
        first, second = new_stream(), new_stream()
        begun, check_cancelled, others = threading.Event(), threading.Event(), threading.Event()

        def hold_up(_: object) -> None:
            begun.set()
            check_cancelled.wait(10)

        first.launch_host_func(hold_up, None)
        assert begun.wait(10)
        second.launch_host_func(lambda _: others.set(), None)
        assert not others.wait(0.1)
        check_cancelled.set()
        assert others.wait(10)

    @pytest.mark.parametrize("what", ["copy", "event"])
    def test_a_full_stream_makes_calls_wait(self, what: str) -> None:
        fakecuda.configure(queue=8)
        source, target, stream = pinned(7), device_bytes(), new_stream()
        events = [new_event() for _ in range(9)]
        queued: list[int] = []

        def queue() -> None:
            for event in events:
                if what == "copy":
                    target.set(source, stream=stream)
                else:
                    event.record(stream)
                queued.append(1)

        before = fakecuda.stat("queue_waits")
        with fakecuda.hold(stream):
            thread = threading.Thread(target=queue)
            thread.start()
            thread.join(0.2)
            assert (len(queued), thread.is_alive()) == (8, True)
        thread.join()
        stream.synchronize()
        assert fakecuda.stat("queue_waits") == before + 1

    def test_a_kernels_first_launch_waits_for_the_whole_device_unless_it_is_loaded(self) -> None:
        source = maths.SOURCE
        busy, stream, array = new_stream(), new_stream(), cupy.zeros(4, np.float32)
        cupy.cuda.Device(0).synchronize()
        loads = fakecuda.stat("lazy_loads")
        arguments = (np.uint64(array.data.ptr), np.float32(2), np.uint64(4))
        for asked in (True, False):
            # Another text, since CuPy keeps what it has compiled.
            kernel = cupy.RawKernel(f"{source}// {asked}", "ringfeed_scale_float")
            kernel.compile()
            if asked:
                assert kernel.num_regs > 0
            with fakecuda.hold(busy) as held:
                busy.record(new_event())
                threading.Timer(0.2, held.release).start()
                with stream:
                    kernel((1,), (4,), arguments)
                assert busy.done is not asked
            assert fakecuda.stat("lazy_loads") == loads + (not asked)
        stream.synchronize()

    def test_flags_that_cost_something_are_counted(self) -> None:
        names = ("hostallocs_not_portable", "streams_blocking", "events_timed", "events_spinning")

        def found() -> list[int]:
            return [fakecuda.stat(name) for name in names]

        before = found()
        for portable in (0, runtime.hostAllocPortable):
            runtime.freeHost(runtime.hostAlloc(NBYTES, portable))
        made = [
            *(cupy.cuda.Stream(), new_stream(), new_event()),
            cupy.cuda.Event(block=True),
            cupy.cuda.Event(block=True, disable_timing=True),
        ]
        assert np.subtract(found(), before).tolist() == [1, 1, 1, 1]
        del made


class TestFailures:
    def test_a_call_fails_when_it_is_told_to(self) -> None:
        fakecuda.inject("cuMemHostAlloc@1=2")
        with pytest.raises(runtime.CUDARuntimeError) as caught:
            runtime.hostAlloc(NBYTES, 0)
        assert caught.value.status == 2
        runtime.freeHost(runtime.hostAlloc(NBYTES, 0))

    def test_a_copy_that_fails_on_the_device_loses_the_context(self) -> None:
        source, target, stream, event = pinned(1), device_bytes(), new_stream(), new_event()
        fakecuda.inject("cuMemcpyHtoDAsync@1=700!")
        target.set(source, stream=stream)
        for call in (stream.synchronize, event.record):
            with pytest.raises(runtime.CUDARuntimeError) as caught:
                call()
            assert caught.value.status == 700

    def test_a_forked_child_gets_an_error(self, run_python: RunPython) -> None:
        done = run_python(
            "import cupy, os\n"
            "cupy.zeros(4)\n"
            "if os.fork() == 0:\n"
            "    try:\n"
            "        cupy.zeros(4)\n"
            "    except cupy.cuda.runtime.CUDARuntimeError as error:\n"
            "        print(error.status, flush=True)\n"
            "    os._exit(0)\n"
            "os.wait()"
        )
        assert done.stdout.split() == ["3"], done.stderr

    @pytest.mark.parametrize(
        ("environment", "status"),
        [({"FAKECUDA_NODRIVER": "1"}, 35), ({"FAKECUDA_DEVICES": "0"}, 100)],
    )
    def test_a_machine_without_a_device_can_be_played(
        self, run_python: RunPython, environment: dict[str, str], status: int
    ) -> None:
        done = run_python(
            "import cupy\n"
            "try:\n"
            "    cupy.cuda.runtime.getDeviceCount()\n"
            "except cupy.cuda.runtime.CUDARuntimeError as error:\n"
            "    print(error.status, cupy.cuda.is_available())",
            **environment,
        )
        assert done.stdout.split() == [str(status), "False"], done.stderr

    def test_the_host_cannot_read_device_memory(self, run_python: RunPython) -> None:
        done = run_python("import cupy, ctypes\nctypes.string_at(cupy.zeros(4, 'u1').data.ptr, 1)")
        assert done.returncode == -11

    def test_kernels_are_refused(self) -> None:
        with pytest.raises(RuntimeError, match=r"nvrtc|NOT_SUPPORTED"):
            cupy.zeros(4) + 1

    def test_streams_and_events_belong_to_a_device(self) -> None:
        with cupy.cuda.Device(1):
            stream = new_stream()
        with pytest.raises(runtime.CUDARuntimeError) as caught:
            new_event().record(stream)
        assert caught.value.status == 400

    def test_a_new_thread_starts_on_device_0(self) -> None:
        found: list[int] = []
        with cupy.cuda.Device(1):
            thread = threading.Thread(target=lambda: found.append(runtime.getDevice()))
            thread.start()
            thread.join()
        assert found == [0]


class TestWhatItSees:
    def test_pinned_memory_freed_in_flight_is_a_hazard(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        address, target, stream = runtime.hostAlloc(NBYTES, 0), device_bytes(), new_stream()
        before = fakecuda.stat("hazards")
        fakecuda.configure(latency_us=20_000)
        runtime.memcpyAsync(
            target.data.ptr, address, NBYTES, runtime.memcpyHostToDevice, stream.ptr
        )
        runtime.freeHost(address)
        assert fakecuda.stat("hazards") == before + 1
        assert "HAZARD" in capfd.readouterr().err

    def test_work_that_is_right_by_luck_is_a_race(self, capfd: pytest.CaptureFixture[str]) -> None:
        first, second, between, target = new_stream(), new_stream(), device_bytes(), device_bytes()
        source, before = pinned(1), fakecuda.stat("races")
        between.set(source, stream=first)
        while runtime.streamQuery(second.ptr):
            pass
        target.data.copy_from_device_async(between.data, NBYTES, second)
        assert fakecuda.stat("races") == before + 1
        assert "RACE" in capfd.readouterr().err

    def test_streams_made_since_leave_what_the_null_stream_did_in_the_past(self) -> None:
        """There are fewer clocks than streams: one that is in use is not given to another."""
        target, source, before = device_bytes(), pinned(1), fakecuda.stat("races")
        target.set(source, stream=cupy.cuda.Stream.null)
        cupy.cuda.Stream.null.synchronize()
        for _ in range(300):
            stream = new_stream()
            target.set(source, stream=stream)
            stream.synchronize()
            del stream
        assert fakecuda.stat("races") == before

    def test_work_that_events_order_is_none(self) -> None:
        first, second, between, target = new_stream(), new_stream(), device_bytes(), device_bytes()
        source, before = pinned(1), fakecuda.stat("races")
        between.set(source, stream=first)
        second.wait_event(first.record())
        target.data.copy_from_device_async(between.data, NBYTES, second)
        second.record().synchronize()
        between.set(source, stream=first)
        first.synchronize()
        assert fakecuda.stat("races") == before


def test_the_interfaces_of_arrays_work() -> None:
    stream = new_stream()
    with stream:
        array = cupy.empty((3, 4), np.float32)
        interface = array.__cuda_array_interface__
    assert (interface["version"], interface["data"][0]) == (3, array.data.ptr)
    assert interface["stream"] == stream.ptr
    assert array.__dlpack_device__()[0] == 2
    assert cupy.from_dlpack(array).data.ptr == array.data.ptr
    assert runtime.pointerGetAttributes(array.data.ptr).type == 2


class TestItFailsAndNeverSkips:
    def test_where_it_cannot_be_built(self) -> None:
        done = subprocess.run(
            [sys.executable, BUILDER],
            env={**os.environ, "CUDA_INC": "/nowhere"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1
        assert "the fake CUDA device cannot be built" in done.stderr
        assert "cuda_runtime_api.h" in done.stderr

    def test_where_a_test_is_skipped(self, tmp_path: Path) -> None:
        (tmp_path / "test_skipped.py").write_text(
            "import pytest\ndef test_it():\n    pytest.skip('no reason')\n"
        )
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "fakecuda", "-p", "no:cacheprovider", "."],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(BUILDER.parent)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1
        assert "skipped on the fake device: test_skipped.py::test_it" in done.stderr
