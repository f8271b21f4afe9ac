"""A feed on a CUDA device: no batch is torn, and nothing of the caller's is touched.

Every pixel of record i is i, and so is its label. A batch is read back as a kernel would read it:
by work on the consumer's stream, queued before the batch is let go.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import (
    DeviceBuffer,
    DeviceError,
    DeviceMemoryError,
    DeviceUnavailableError,
    HostMemoryError,
)
from memory.testing import hold
from prefetch._process.numa import stay_near

if TYPE_CHECKING:
    from pathlib import Path

BATCH = 4
BATCHES = 15
STRESS_S = float(os.environ.get("RINGFEED_STRESS_S", "3"))


source = images_fixture(BATCH * BATCHES)


def read_later(device: Any, batch: prefetch.Batch) -> tuple[Any, Any]:
    """Queue copies of a batch's data and labels to the host, on the current stream.

    As a kernel reads them: by their addresses, which keep nothing alive.
    """
    stream = device.current_stream()
    found = []
    for blob in (batch.data, batch.label):
        out = device.alloc_host(blob.nbytes).array
        bare = DeviceBuffer(blob.gpu_data().ptr, blob.nbytes, device=device)
        device.copy_to_host(out, bare, stream=stream)
        found.append(out.view(blob.dtype).reshape(blob.shape))
    return found[0], found[1]


def check(batch_number: int, data: Any, labels: Any) -> None:
    expected = np.arange(len(labels)) + BATCH * batch_number
    assert (labels == expected).all()
    assert (data == expected[:, None, None, None]).all()


def test_readers_run_near_the_gpu_and_the_log_says_so_once(
    source: Path,
    cuda: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    gpu = tmp_path / f"sys/bus/pci/devices/{cuda.pci_bus_id.lower()}"
    gpu.mkdir(parents=True)
    (gpu / "numa_node").write_text("1\n")
    for number, cpulist in enumerate(("9999", f"{allowed[-1]}")):
        node = tmp_path / f"sys/devices/system/node/node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(cpulist)
    monkeypatch.setattr("prefetch._pipeline.reader.stay_near", partial(stay_near, root=tmp_path))
    config = {"source": source, "batch_size": BATCH, "threads": 1}
    with (
        caplog.at_level(logging.INFO, logger="prefetch"),
        prefetch.open(config, device=cuda) as feed,
    ):
        next(iter(feed))
        readers = [thread for thread in threading.enumerate() if "ringfeed-reader" in thread.name]
        found = [os.sched_getaffinity(thread.native_id or 0) for thread in readers]
    assert found == [{allowed[-1]}]
    assert sorted(os.sched_getaffinity(0)) == allowed
    assert caplog.text.count("readers run on NUMA node 1 (cores: 1), where cuda:0 is") == 1


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_every_batch_equals_its_fingerprint(
    source: Path, cuda: Any, threads: int, depth: int
) -> None:
    if os.environ["RINGFEED_TEST_CUDA"] == "fake":
        import fakecuda  # noqa: PLC0415 - there is none on a GPU

        fakecuda.configure(latency_us=500, jitter_us=500, poison_dst=1)
    with (
        prefetch.open(
            {"source": source, "batch_size": BATCH, "prefetch": depth, "threads": threads},
            device=cuda,
        ) as feed,
        cuda.make_stream("consumer") as stream,
        cuda.use_stream(stream),
    ):
        for _ in range(2):
            read = []
            for batch in feed:
                read.append((batch.number, *read_later(cuda, batch)))
                del batch
            stream.synchronize()
            assert len(read) == BATCHES
            for number, data, labels in read:
                check(number, data, labels)


def test_a_slot_is_not_refilled_while_a_consumers_stream_may_read_it(
    source: Path, cuda: Any
) -> None:
    theirs = cupy.cuda.Stream(non_blocking=True)
    read = []
    with (
        prefetch.open(
            {"source": source, "batch_size": BATCH, "prefetch": 2, "threads": 1},
            max_batches_held=3,
            device=cuda,
        ) as feed,
        theirs,
    ):
        batches = iter(feed)
        with hold(cuda.current_stream()):
            for _ in range(3):
                batch = next(batches)
                out = cuda.alloc_host(batch.data.nbytes).array
                # As a kernel reads it: by its address, which keeps nothing alive.
                cupy.cuda.runtime.memcpyAsync(
                    out.ctypes.data,
                    batch.data.gpu_data().ptr,
                    out.nbytes,
                    cupy.cuda.runtime.memcpyDeviceToHost,
                    theirs.ptr,
                )
                read.append(out)
                del batch
            stats = feed.stats()
            assert (stats.slots_leased, stats.slots_draining, stats.slots) == (0, 3, 3)
        theirs.synchronize()
        for number, out in enumerate(read):
            values = out.view(np.float32).reshape(BATCH, -1)
            assert (values == np.arange(BATCH)[:, None] + BATCH * number).all()
        assert next(batches).number == 3


@pytest.mark.parametrize("dropped", ["before closing", "after closing"])
def test_closing_frees_no_memory_that_a_consumers_stream_may_still_read(
    source: Path, cuda: Any, dropped: str
) -> None:
    theirs = cupy.cuda.Stream(non_blocking=True)
    nbytes = BATCH * 3 * 8 * 8 * 4
    there, out = cuda.alloc_device(nbytes), cuda.alloc_host(nbytes).array
    feed = prefetch.open({"source": source, "batch_size": BATCH}, device=cuda)
    with theirs, hold(cuda.current_stream()):
        batch = next(iter(feed))
        blob = batch.data
        address = blob.gpu_data().ptr
        # As a kernel reads it: by its address, which keeps nothing alive.
        cupy.cuda.runtime.memcpyAsync(
            there.ptr, address, nbytes, cupy.cuda.runtime.memcpyDefault, theirs.ptr
        )
        del blob
        if dropped == "before closing":
            del batch
            feed.close()
        else:
            feed.close()
            del batch
        del feed
        gc.collect()
        # Where the memory had been free, this would get it.
        for _ in range(8):
            cuda.alloc_host(nbytes).array[:] = 9
            with cuda.make_stream() as stream:
                cuda.fill(cuda.alloc_device(nbytes), 9, stream=stream)
        cuda.copy_to_host(out, there, stream=cuda.current_stream())
    theirs.synchronize()
    values = out.view(np.float32).reshape(BATCH, -1)
    assert (values == np.arange(BATCH)[:, None]).all()


@pytest.mark.parametrize("where", ["host", "device"])
def test_batches_that_are_held_take_no_pinned_memory(source: Path, cuda: Any, where: str) -> None:
    options = {"source": source, "batch_size": BATCH, "prefetch": 4, "threads": 2}
    with (
        prefetch.open(options, transform={"where": where}, device=cuda) as feed,
        cuda.make_stream("consumer") as stream,
        cuda.use_stream(stream),
    ):
        batches = list(feed)
        assert len(batches) == BATCHES
        stats = feed.stats()
        assert stats.slots_leased == BATCHES
        assert 0 < stats.host_bytes <= (stats.ring_host_bytes or 0)
        assert cuda.memory_info().num_host_buffers <= 3
        read = [(batch.number, *read_later(cuda, batch)) for batch in batches]
        stream.synchronize()
        for number, data, labels in read:
            check(number, data, labels)
        del batches


def test_of_a_closed_feeds_own_device_the_host_still_gets_a_held_batch(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": BATCH, "device": "cuda"}) as feed:
        batch = next(iter(feed))
    check(0, batch.data.numpy(), batch.label.numpy())


@pytest.mark.fake_only
@pytest.mark.parametrize("where", ["host", "device"])
def test_a_batch_that_nobody_wants_is_copied_before_its_slot_is_filled_again(
    source: Path, cuda: Any, fake: Any, where: str
) -> None:
    fake.configure(latency_us=2000, jitter_us=2000, poison_dst=1)
    options = {"source": source, "batch_size": BATCH, "prefetch": 3, "threads": 2}
    options["transform"] = {"where": where}
    with (
        prefetch.open(options, device=cuda) as feed,
        cuda.make_stream("consumer") as stream,
        cuda.use_stream(stream),
    ):
        for _ in range(12):
            batches = iter(feed)  # ends the epoch before it, with what was read ahead for that
            read = []
            for number in range(2):
                batch = next(batches)
                read.append((number, *read_later(cuda, batch)))
                del batch
            stream.synchronize()
            for number, data, labels in read:
                check(number, data, labels)


@pytest.mark.fake_only
def test_the_host_waits_for_no_copy(source: Path, cuda: Any, fake: Any) -> None:
    with (
        prefetch.open(
            {"source": source, "batch_size": BATCH, "prefetch": 2, "threads": 2}, device=cuda
        ) as feed,
        cuda.make_stream("consumer") as stream,
        cuda.use_stream(stream),
    ):
        with fake.hold():
            batch = next(iter(feed))  # nothing has been copied yet
            data, labels = read_later(cuda, batch)
        stream.synchronize()
        check(0, data, labels)
        del batch


@pytest.mark.fake_only
def test_each_reader_has_a_stream_of_its_own_which_ends_with_it(
    source: Path, cuda: Any, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fake.stat("streams")
    made: list[str] = []
    make = cuda.make_stream

    def counted(name: str) -> Any:
        if name.startswith("ringfeed-reader"):
            made.append(name)
        return make(name)

    monkeypatch.setattr(cuda, "make_stream", counted)
    with prefetch.open({"source": source, "batch_size": BATCH, "threads": 3}, device=cuda) as feed:
        assert fake.stat("streams") == before
        for _ in range(3):
            for batch in feed:
                assert 1 <= fake.stat("streams") - before <= 3
                del batch
    assert fake.stat("streams") == before
    assert sorted(made) == [f"ringfeed-reader-{number}" for number in range(3)]


@pytest.mark.fake_only
def test_the_callers_null_stream_holds_up_no_reader(source: Path, cuda: Any, fake: Any) -> None:
    null = cuda.current_stream()
    with (
        prefetch.open({"source": source, "batch_size": BATCH, "threads": 2}, device=cuda) as feed,
        cuda.make_stream() as stream,
    ):
        feed.to_stream(stream)
        with fake.hold(null):
            batches = iter(feed)
            behind = null.record()
            for number in range(BATCHES):
                batch = next(batches)
                stream.synchronize()  # the batch's copies have run
                assert batch.number == number
                del batch
            assert not behind.done()


@pytest.mark.fake_only
@pytest.mark.parametrize("where", ["host", "device"])
def test_a_batch_costs_one_copy_for_data_and_labels(
    source: Path, cuda: Any, fake: Any, where: str
) -> None:
    def counts() -> dict[str, int]:
        return {name: fake.stat(name) for name in ("h2d", "d2h", "d2d", "staged")}

    options = {"source": source, "batch_size": BATCH, "epochs": 2, "threads": 2}
    with prefetch.open(options, transform={"where": where}, device=cuda) as feed:
        before = counts()  # constants of the transformation are on the device
        for _ in range(2):
            for batch in feed:
                assert batch.label.numpy()[0] == BATCH * batch.number  # the host has them too
                del batch
    after = counts()
    # Nothing comes back, and nothing is pageable.
    assert {name: after[name] - before[name] for name in after} == {
        "h2d": 2 * BATCHES,
        "d2h": 0,
        "d2d": 0,
        "staged": 0,
    }


@pytest.mark.fake_only
def test_memory_is_flat_over_epochs_and_gone_at_the_end(source: Path, cuda: Any, fake: Any) -> None:
    def counts() -> tuple[int, ...]:
        return tuple(
            fake.stat(name) for name in ("allocs", "hostallocs", "mem_used", "pinned_used")
        )

    before = counts()
    options = {"source": source, "batch_size": BATCH, "transform": {"where": "host"}}
    with prefetch.open(options, device=cuda) as feed:
        for _ in range(6):
            for batch in feed:
                del batch
            stats = feed.stats()
            assert stats.slots == stats.prefetch + 1
            # Once for each slot on the device, when it is first filled, and thrice on the host.
            taken = [now - then for now, then in zip(counts(), before, strict=True)]
            assert taken[0] <= stats.slots
            assert taken[1] <= 3
            assert cuda.memory_info().allocated_bytes <= stats.ring_device_bytes
            assert cuda.memory_info().host_allocated_bytes <= stats.ring_host_bytes
    del feed
    gc.collect()
    gc.collect()
    cuda.close()
    assert counts()[2:] == before[2:]


@pytest.mark.fake_only
def test_a_ring_that_the_device_cannot_hold_is_refused_before_anything_is_allocated(
    source: Path, open_checked: Any, fake: Any
) -> None:
    fake.configure(mem=16 << 20)
    device = open_checked()
    batch_bytes = 60 * (3 * 8 * 8 * 4 + 8)
    where = {"where": "host"}
    options = {"source": source, "batch_size": 64, "prefetch": 399, "transform": where}
    with pytest.raises(
        prefetch.RingTooLargeError,
        match=f"{400 * batch_bytes} bytes .*cuda:0 has {16 << 20} bytes.*batch_size or prefetch",
    ):
        prefetch.open(options, device=device)
    assert device.memory_info().peak_bytes == 0


def test_cupys_pools_have_no_part_in_a_feed(source: Path, cuda: Any) -> None:
    def pools() -> tuple[int, int, int]:
        device, pinned = cupy.get_default_memory_pool(), cupy.get_default_pinned_memory_pool()
        return device.total_bytes(), device.used_bytes(), pinned.n_free_blocks()

    before = pools()
    with prefetch.open({"source": source, "batch_size": BATCH}, device=cuda) as feed:
        for batch in feed:
            batch.data.cupy()
            del batch
            assert pools() == before
    assert pools() == before


def test_a_list_of_all_batches_is_right(source: Path, cuda: Any) -> None:
    with prefetch.open(
        {"source": source, "batch_size": BATCH, "max_batches_held": BATCHES}, device=cuda
    ) as feed:
        batches = list(feed)
    # The feed is closed; the batches are the consumer's.
    for batch in batches:
        data, labels = read_later(cuda, batch)
        cuda.current_stream().synchronize()
        check(batch.number, data, labels)


class TestTheCallersState:
    @pytest.mark.parametrize("current", [0, 1])
    def test_device_and_stream_are_as_they_were(
        self, source: Path, two_devices: tuple[Any, Any], current: int
    ) -> None:
        for device in two_devices:
            with (
                cupy.cuda.Device(current),
                prefetch.open({"source": source, "batch_size": BATCH}, device=device) as feed,
                device.make_stream() as stream,
                device.use_stream(stream),
            ):
                for batch in feed:
                    assert cupy.cuda.runtime.getDevice() == current
                    assert device.current_stream() is stream
                    assert batch.data.gpu_data().device is device
                    del batch
            assert cupy.cuda.get_current_stream(current) == cupy.cuda.Stream.null

    def test_a_feed_by_name_is_on_that_device_whatever_is_current(
        self, source: Path, two_devices: tuple[Any, Any]
    ) -> None:
        assert len(two_devices) == 2
        with prefetch.open({"source": source, "batch_size": BATCH, "device": "cuda:1"}) as feed:
            for batch in feed:
                ptr = batch.data.gpu_data().ptr
                assert cupy.cuda.runtime.pointerGetAttributes(ptr).device == 1
                assert cupy.cuda.runtime.getDevice() == 0
                del batch

    @pytest.mark.fake_only
    def test_no_thread_of_a_feed_takes_memory_on_another_device(
        self, source: Path, run_python: Any
    ) -> None:
        # A new thread's current device is 0: whoever makes that current again sets it up.
        code = f"""
import cupy, fakecuda, prefetch
from memory.testing import hold
cupy.cuda.Device(1).use()
options = {{"source": {str(source)!r}, "batch_size": 4, "threads": 2, "device": "cuda:1"}}
with prefetch.open(options) as feed:
    stream = feed.device.make_stream()
    feed.to_stream(stream)
    batches = iter(feed)
    with hold(stream):
        for _ in range(feed.config.prefetch):
            next(batches).data.cupy()
    for batch in batches:
        batch.data.numpy()
    del batch
    stream.close()
print(fakecuda.stat("contexts"))
"""
        done = run_python(code)
        assert done.stdout.split() == [str(1 << 1)], done.stderr

    def test_two_feeds_on_two_devices_do_not_disturb_each_other(
        self, source: Path, two_devices: tuple[Any, Any]
    ) -> None:
        options = {"source": source, "batch_size": BATCH, "threads": 2}
        with (
            prefetch.open(options, device=two_devices[0]) as first,
            prefetch.open(options, device=two_devices[1]) as second,
        ):
            for batches in zip(first, second, strict=True):
                for device, batch in zip(two_devices, batches, strict=True):
                    data, labels = read_later(device, batch)
                    device.current_stream().synchronize()
                    check(batch.number, data, labels)
                del batch, batches

    def test_an_ordinal_that_does_not_exist_is_refused_by_name(self, source: Path) -> None:
        with pytest.raises(DeviceUnavailableError, match="there is no GPU 77"):
            prefetch.open({"source": source, "batch_size": BATCH, "device": "cuda:77"})


@pytest.mark.fake_only
class TestFailures:
    """The right error at the right batch; no hang, and, as the fixtures see, no leak."""

    def served(self, source: Path, device: Any) -> tuple[int, type[BaseException] | None, str]:
        """Return how many batches came, and the kind and text of what ended them."""
        count = 0
        options = {"source": source, "batch_size": BATCH, "prefetch": 2, "threads": 1}
        options["transform"] = {"where": "host"}  # what a push does when it fails
        with prefetch.open(options, device=device) as feed:
            try:
                for batch in feed:
                    assert batch.number == count
                    count += 1
                    del batch
            except Exception as error:  # noqa: BLE001 - what it is, is the test
                assert feed.closed
                return count, type(error), str(error)
        return count, None, ""

    @pytest.mark.parametrize("number", [1, 2, 5, 15])
    def test_a_copy_that_is_refused(self, source: Path, cuda: Any, fake: Any, number: int) -> None:
        fake.inject(f"cuMemcpyHtoDAsync@{number}=1")
        count, kind, text = self.served(source, cuda)
        assert kind is DeviceError
        assert count == number - 1
        assert "copy_to_device of" in text

    def test_pinned_memory_that_is_refused(self, source: Path, cuda: Any, fake: Any) -> None:
        fake.inject("cuMemHostAlloc@1+=2")
        count, kind, text = self.served(source, cuda)
        assert kind is HostMemoryError
        assert "pageable_fallback" in text
        assert count == 0

    @pytest.mark.parametrize("number", [1, 2])
    def test_device_memory_that_is_refused(
        self, source: Path, cuda: Any, fake: Any, number: int
    ) -> None:
        fake.inject(f"cuMemAlloc@{number}+=2")
        count, kind, text = self.served(source, cuda)
        assert kind is DeviceMemoryError
        assert "bytes were asked for" in text
        assert count == number - 1

    def test_a_stream_that_is_refused(self, source: Path, cuda: Any, fake: Any) -> None:
        fake.inject("cuStreamCreate@1=999")
        count, kind, text = self.served(source, cuda)
        assert kind is DeviceError
        assert count == 0
        assert "make_stream failed" in text

    def test_a_copy_that_fails_on_the_device(self, source: Path, cuda: Any, fake: Any) -> None:
        fake.inject("cuMemcpyHtoDAsync@7=700!")
        count, kind, text = self.served(source, cuda)
        fake.clear_failure()
        assert kind is DeviceError
        assert "cudaErrorIllegalAddress" in text
        # It was a copy of batch 3. The batches before it are whole, and it shows at the first call
        # after it: at the latest where its slot, one of three, is to be filled again.
        assert 1 <= count <= 6


@pytest.mark.fake_only
def test_closing_while_everything_is_held_does_not_hang(source: Path, cuda: Any, fake: Any) -> None:
    feed = prefetch.open({"source": source, "batch_size": BATCH, "threads": 2}, device=cuda)
    with fake.hold() as held:
        batch = next(iter(feed))
        closer = threading.Thread(target=feed.close)
        closer.start()  # waits for the readers, who wait for their copies
        held.release()
        closer.join(10)
        assert not closer.is_alive()
    data, labels = read_later(cuda, batch)
    cuda.current_stream().synchronize()
    check(0, data, labels)
    del batch


def test_eight_readers_tear_no_batch(source: Path, cuda: Any) -> None:
    """For RINGFEED_STRESS_S seconds, 3 unless it is set, and 300 batches at the least."""
    if os.environ["RINGFEED_TEST_CUDA"] == "fake":
        import fakecuda  # noqa: PLC0415 - there is none on a GPU

        fakecuda.configure(jitter_us=300, poison_dst=1)
    until = time.monotonic() + STRESS_S
    with (
        prefetch.open(
            {
                "source": source,
                "batch_size": BATCH,
                "prefetch": 3,
                "threads": 8,
                "last_batch": "wrap",
            },
            device=cuda,
        ) as feed,
        cuda.make_stream("a") as first,
        cuda.make_stream("b") as second,
    ):
        waiting: list[tuple[int, Any, Any, Any]] = []
        for number, batch in enumerate(feed):
            stream = (first, second)[number % 2]
            with cuda.use_stream(stream):
                found = read_later(cuda, batch)
                waiting.append((number % BATCHES, *found, stream.record()))
            del batch
            while len(waiting) > 5:
                place, data, labels, event = waiting.pop(0)
                event.synchronize()
                check(place, data, labels)
            if number >= 300 and time.monotonic() > until:
                break
        for stream in (first, second):
            stream.synchronize()
        for place, data, labels, _ in waiting:
            check(place, data, labels)
    print(f"{number} batches")  # noqa: T201 - shown with -s: how many a long run has tried


def test_a_batch_unpacks_into_arrays_of_cupys_and_the_labels_hold_no_batch(
    source: Path, cuda: Any
) -> None:
    with prefetch.open(
        {"source": source, "batch_size": BATCH, "prefetch": 1}, device=cuda, max_batches_held=1
    ) as feed:
        collected, images = [], None
        for images, labels in feed:
            assert cupy.ndarray is type(images) is type(labels)
            assert (images.get()[:, 0, 0, 0] == labels.get()).all()
            del images
            collected.append(labels)
        assert (
            list(range(BATCH * BATCHES))
            == np.concatenate([one.get() for one in collected]).tolist()
        )
