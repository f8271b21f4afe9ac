"""Every effect of a feed fails once, at its nth use, and one law holds.

The right error reaches the consumer, once; the batches before it are right, in order and none is
lost, so that a feed that loads the state goes on exactly behind them; nothing hangs (pytest's
timeout); no thread, file, host byte or device byte is left; and a new feed works.
"""

from __future__ import annotations

import gc
import os
import threading
from typing import TYPE_CHECKING, Any

import cv2
import lmdb
import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import DeviceError, DeviceMemoryError, HostMemoryError, open_device
from memory.testing import FailingDevice, hold, live_buffers, peek
from prefetch._pipeline.coordinator import Coordinator
from prefetch._pipeline.light_batches import LightBatches
from prefetch._pipeline.part_filler import Filler
from prefetch._record.decode import ImageDecoder
from prefetch._ring.slot import Slot
from prefetch._source.lmdb.database import LmdbDatabase
from prefetch._source.lmdb.mapped import MappedPages
from prefetch._source.records import RecordReader, Walker
from prefetch._transform.host import RecordTransformer
from prefetch.caffe import Datum
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

    from prefetch._source.mapped_records import MappedRecords


NUM_RECORDS = 24
THREADS = [1, 2, 8]


source = images_fixture(NUM_RECORDS, scope="module")


@pytest.fixture(autouse=True)
def _no_bytes_left() -> Iterator[None]:
    """Fail a test that leaves memory of any device allocated."""
    before = live_buffers()
    yield
    if before != live_buffers():
        gc.collect()  # an exception's traceback and its frames refer to each other
        gc.collect()  # a lease that went with them has put its slot into the ring's queue
    assert before == live_buffers()


def _options(source: Path, threads: int, **more: Any) -> dict[str, Any]:
    return {"source": source, "batch_size": 4, "threads": threads, "prefetch": 2, **more}


def _take_all(feed: prefetch.Feed) -> tuple[list[int], BaseException | None]:
    """Return the records of an epoch's batches up to an error, which must end the feed."""
    taken: list[int] = []
    before = feed.stats().samples
    iterator = iter(feed)
    try:
        for batch in iterator:
            labels = batch.indices % NUM_RECORDS
            on_host = not batch.data.device.has_device_memory
            data = batch.data.numpy(writable=False) if on_host else peek(batch.data)
            if not (data.T == labels).all():
                pytest.fail(f"{batch} holds other records than {batch.indices}")
            taken += batch.indices.tolist()
            del batch
    except Exception as error:  # noqa: BLE001 - whatever the consumer is told
        if not feed.closed:
            pytest.fail(f"the feed goes on after {error}")
        assert feed.stats().samples - before == len(taken)
        with pytest.raises(prefetch.FeedClosedError):
            next(iterator)
        return taken, error.with_traceback(None)
    return taken, None


def _check_law(feed: prefetch.Feed, options: dict[str, Any]) -> tuple[int, BaseException | None]:
    """Run a feed into its fault; then let a sound one go on with the rest.

    Returns:
        How many batches were served, and the error.
    """
    taken, error = _take_all(feed)
    state = feed.state_dict()
    order = feed._prefetcher.components.order
    feed.close()
    plans = [order.plan(number) for number in range(order.batches_per_epoch)]
    expected = [record for plan in plans if plan for record in plan.records.tolist()]
    with prefetch.open(options) as sound:
        sound.load_state_dict(state)
        rest = [] if error is None else _take_all(sound)[0]
    assert expected == taken + rest
    return len(taken) // 4, error


# The device -------------------------------------------------------------------------------------

DEVICE_ERRORS: dict[str, type[Exception]] = {
    "alloc_host": HostMemoryError,
    "alloc_device": DeviceMemoryError,
    "make_stream": DeviceError,
    "copy_to_device": DeviceError,
    "record": DeviceError,
    "wait": DeviceError,
}


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("operation", DEVICE_ERRORS)
def test_the_nth_call_of_the_device_that_fails_is_the_consumers_error(
    source: Path, operation: str, number: int, threads: int
) -> None:
    options = _options(source, threads)
    with FailingDevice(open_device("simulated"), fail={operation: number}) as device:
        num_served, error = _check_law(prefetch.open(options, device=device), options)
        if error is None:  # no more were asked for, or a batch of the next epoch needed it
            assert operation in {"make_stream", "alloc_host", "alloc_device"}
            assert number > 1
        else:
            assert type(error) is DEVICE_ERRORS[operation]
            assert device.num_failures == 1
        if operation == "wait":  # the consumer's own: one a batch
            assert num_served == number - 1
        if operation.startswith("alloc") and number == 1 and threads == 1:
            assert num_served == 0


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("number", [1, 6])
def test_a_copy_that_fails_as_it_runs_is_told_by_its_batch_and_by_the_stream_behind_it(
    source: Path, number: int, threads: int
) -> None:
    """There are no other bytes of the data: it is told whenever they are asked for."""
    inner = open_device("simulated")
    with FailingDevice(inner, fail={"copy_to_device": number}, when="run") as device:
        failed: list[int] = []
        # Of one epoch: the copy may be none of a batch that is read ahead for the next.
        with prefetch.open(_options(source, threads, epochs=1), device=device) as feed:
            for batch in feed:
                event = batch.data.push_event
                try:
                    if event is not None:
                        event.synchronize()
                except DeviceError:
                    failed.append(batch.number)
                    for _ in range(2):
                        with pytest.raises(DeviceError, match="on command"):
                            batch.data.numpy()
                    with pytest.raises(DeviceError, match="on command"):
                        batch.label.numpy()  # told once: the host has them
                else:
                    assert (peek(batch.data).T == batch.indices).all()
                assert (batch.label.numpy() == batch.indices).all()
                del batch, event
        with pytest.raises(DeviceError, match="on command"):
            device.current_stream().synchronize()
        assert device.num_failures == 1
        assert failed


@pytest.mark.parametrize("threads", THREADS)
async def test_a_batch_whose_handing_over_fails_is_not_lost(source: Path, threads: int) -> None:
    """The state says what the consumer got: the batch whose next() raised is not among it."""
    with FailingDevice(open_device("simulated"), fail={"wait": 3}) as device:
        feed = prefetch.open(_options(source, threads), device=device)
        iterator = aiter(feed)
        for number in range(2):
            assert (await anext(iterator)).number == number
        with pytest.raises(DeviceError):
            await anext(iterator)
        assert feed.closed
        assert (8, 8) == (feed.state_dict()["served"], feed.stats().samples)
        del feed, iterator


# The database -----------------------------------------------------------------------------------


class _Nth:
    """Lets the nth call of a method raise.

    Args:
        owner: The class.
        name: The method.
        number: Which call, counted from 1 over all threads.
        error: What it raises.
        and_later: Whether those behind it do so too.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        owner: type | ModuleType,
        name: str,
        *,
        number: int,
        error: BaseException,
        and_later: bool = False,
    ) -> None:
        real: Callable[..., Any] = getattr(owner, name)
        lock = threading.Lock()
        self.calls = 0

        def method(*args: Any, **kwargs: Any) -> Any:
            with lock:
                self.calls += 1
                fails = self.calls == number or (and_later and self.calls > number)
            if fails:
                raise error
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, method)


EFFECTS: dict[str, tuple[type, str, str, dict[str, Any]]] = {
    "walk": (Walker, "take", "plan", {}),
    "look-up": (RecordReader, "locate_lazily", "read or fill", {"shuffle": True}),
    "find": (MappedPages, "fill", "fill", {"shuffle": True}),
    "parse or decode": (RecordTransformer, "fill", "fill", {}),
    "shape": (RecordTransformer, "sample_shape", "read", {}),
    "walk of a second database": (Walker, "_take", "plan", {}),
    "growing index": (LmdbDatabase, "cover", "plan", {}),
    "memory": (Slot, "bind", "allocate", {}),
}


def _refuse_mapping(*_: object, **__: object) -> None:
    raise OSError(12, "Cannot allocate memory")


# A file that is mapped is not walked, and the shape of its batches is not asked for but once.
UNMAPPED = {"walk", "walk of a second database", "shape"}


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("effect", EFFECTS)
def test_the_nth_reading_that_fails_is_the_consumers_error(
    source: Path, effect: str, number: int, threads: int
) -> None:
    owner, name, stage, more = EFFECTS[effect]
    if effect == "walk of a second database":
        more = {"source": [source, source]}
    options = {**_options(source, threads), **more}
    error = MemoryError("no memory, on command")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prefetch._source.source._MOST_INDEXING_S", -1)  # no index at the start
        if effect in UNMAPPED:
            patch.setattr(MappedPages, "__init__", _refuse_mapping)
        feed = prefetch.open(options)
        nth = _Nth(patch, owner, name, number=number, error=error)
        taken, told = _take_all(feed)
    assert nth.calls >= number
    assert isinstance(told, prefetch.OutOfMemoryError)
    assert told.__cause__ is error
    assert told.database == str(source)
    assert told.stage in stage
    assert (told.epoch, told.batch) == (0, len(taken) // 4)
    for part in (
        str(source),
        f"batch {told.batch}",
        f"stage {told.stage}",
        str(error),
        "ulimit -v",
    ):
        assert part in str(told)
    served = len(taken) // 4
    if stage == "plan":  # by one reader at a time: the place is the same for any threads
        assert served == number - 1
    elif effect == "look-up":  # the shape of the first record of all, then each batch
        assert served == max(number - 2, 0) if threads == 1 else served < number
    else:  # each of the other threads may be late with a batch before
        assert served == number - 1 if threads == 1 else served < number + threads - 1
    state = feed.state_dict()
    expected = list(range(NUM_RECORDS * len(more.get("source", [0]))))
    feed.close()
    del feed
    with prefetch.open(options) as sound:
        sound.load_state_dict(state)
        rest, none = _take_all(sound)
        assert none is None
    together = taken + rest
    assert expected == (sorted(together) if "shuffle" in more else together)


def test_an_opening_that_finds_no_memory_says_of_which_database(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Nth(monkeypatch, Walker, "take", number=2, error=MemoryError())
    with pytest.raises(prefetch.OutOfMemoryError, match=r"stage open: .*ulimit -v") as caught:
        prefetch.open(_options(source, 1))
    assert (caught.value.database, caught.value.batch) == (str(source), None)


@pytest.mark.parametrize(
    ("operation", "stage"), [("alloc_host", "allocate"), ("copy_to_device", "push")]
)
def test_an_error_of_the_device_has_a_note_of_database_batch_and_stage(
    source: Path, operation: str, stage: str
) -> None:
    """It knows nothing of them itself."""
    with (
        FailingDevice(open_device("simulated"), fail={operation: 1}) as device,
        prefetch.open(_options(source, 1), device=device) as feed,
    ):
        with pytest.raises(DEVICE_ERRORS[operation]) as caught:
            next(iter(feed))
        assert caught.value.__notes__ == [f"{source}: epoch 0, batch 0, stage {stage}"]
        del caught


BETWEEN_STEPS: dict[str, tuple[type, str]] = {
    "next job": (Coordinator, "next_job"),
    "another opening": (Coordinator, "next_opening"),
    "shaped": (Coordinator, "split_into_parts"),
    "filling ahead": (LightBatches, "fill_together"),
    "counting": (Coordinator, "parts_done"),
    "a reader's beginning": (Filler, "__init__"),
}


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("between", BETWEEN_STEPS)
@pytest.mark.parametrize("split", [False, True])
def test_a_reader_that_dies_with_a_batch_in_its_hands_is_the_consumers_error_and_no_hang(
    source: Path, between: str, number: int, threads: int, *, split: bool
) -> None:
    """There is hardly a step of Python's that asks for no memory."""
    owner, name = BETWEEN_STEPS[between]
    options = _options(source, threads, prefetch=4, epochs=1)
    error = MemoryError("no memory, on command")
    with pytest.MonkeyPatch.context() as patch:
        if split:  # batches are filled in parts, by several readers
            patch.setattr("prefetch._pipeline.reader_jobs._MIN_BYTES_TO_SPLIT", 0)
            patch.setattr("prefetch._pipeline.light_batches._MIN_RAW_BYTES_TO_SPLIT", 0)
        feed = prefetch.open(options)
        nth = _Nth(patch, owner, name, number=number, error=error)
        taken, told = _take_all(feed)
        state = feed.state_dict()
        feed.close()
        del feed
    assert taken == list(range(len(taken)))
    if told is None:  # the others did it all, or it struck behind the last batch, if at all
        assert threads > 1 or nth.calls < number or name == "next_job"
    else:
        assert isinstance(told, prefetch.OutOfMemoryError)
        assert told.__cause__ is error
        assert (told.database, told.stage) == (str(source), "reader")
    with prefetch.open(options) as sound:
        sound.load_state_dict(state)
        rest = [] if told is None else _take_all(sound)[0]
    assert list(range(NUM_RECORDS)) == taken + rest


@pytest.mark.parametrize("threads", [2, 8])
@pytest.mark.parametrize("between", ["next job", "shaped", "filling ahead", "counting"])
def test_readers_that_all_die_with_parts_of_a_batch_left_are_an_error_and_no_hang(
    source: Path, between: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name = BETWEEN_STEPS[between]
    monkeypatch.setattr("prefetch._pipeline.reader_jobs._MIN_BYTES_TO_SPLIT", 0)
    monkeypatch.setattr("prefetch._pipeline.light_batches._MIN_RAW_BYTES_TO_SPLIT", 0)
    feed = prefetch.open(_options(source, threads))
    _Nth(monkeypatch, owner, name, number=3, error=MemoryError("on command"), and_later=True)
    taken, told = _take_all(feed)
    assert taken == list(range(len(taken)))
    assert isinstance(told, prefetch.OutOfMemoryError)
    del feed, told


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same records as PNGs."""
    records = []
    for index, (key, _) in enumerate(fingerprinted_images(NUM_RECORDS)):
        image = np.full((8, 8, 3), index, np.uint8)
        png = cv2.imencode(".png", image)[1].tobytes()
        datum = Datum(data=png, encoded=True, label=index)
        records.append((key, datum.SerializeToString()))
    return write_database(tmp_path_factory.mktemp("encoded") / "db", records)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("number", [1, 6, 23])
@pytest.mark.parametrize("effect", ["decode", "pread"])
def test_the_nth_image_or_page_that_fails_is_the_consumers_error_behind_the_batches_before(
    encoded: Path, effect: str, number: int, threads: int
) -> None:
    options = _options(encoded, threads, epochs=1)
    error = OSError(5, "Input/output error, on command")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prefetch._source.source._MOST_INDEXING_S", -1)  # walk the first epoch
        feed = prefetch.open(options)
        if effect == "decode":
            nth = _Nth(patch, ImageDecoder, "decode", number=number, error=error)
        else:
            nth = _Nth(patch, os, "pread", number=number, error=error)
        taken, told = _take_all(feed)
        state = feed.state_dict()
        feed.close()
        del feed
    assert taken == list(range(len(taken)))
    if nth.calls < number:
        assert (effect, told, len(taken)) == ("pread", None, NUM_RECORDS)
        return
    if effect == "decode":
        assert told is error
        # The first record of a batch may be decoded once more, for the batch's shape.
        assert len(taken) < number + 4 * (threads > 1)
    else:
        assert isinstance(told, prefetch.SourceError)
        assert "cannot be read: Input/output error, on command" in str(told)
    with prefetch.open(options) as sound:
        sound.load_state_dict(state)
        rest, none = _take_all(sound)
    assert none is None
    assert list(range(NUM_RECORDS)) == taken + rest


@pytest.mark.parametrize("number", range(1, 11))
def test_a_device_that_fails_as_a_slot_comes_back_is_an_error_of_next_and_never_of_stats(
    source: Path, number: int
) -> None:
    """Some of the calls are those of a push, the others find out when a batch's use has ended."""

    def loop(feed: prefetch.Feed) -> None:
        for batch in feed:
            assert (peek(batch.data).T == batch.indices).all()
            del batch
            try:
                feed.stats()
            except DeviceError:
                pytest.fail("stats() raises the device's error")

    with FailingDevice(open_device("simulated"), fail={"record": number}) as device:
        feed = prefetch.open(_options(source, 1, prefetch=1), device=device)
        with pytest.raises(DeviceError) as caught:
            loop(feed)
        assert feed.closed
        feed.stats()
        assert device.num_failures == 1
        del caught, feed


@pytest.mark.parametrize("number", range(1, 30))
def test_a_device_that_fails_behind_the_last_batch_is_told_by_the_log_and_never_twice(
    source: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    with FailingDevice(open_device("simulated"), fail={"record": number}) as device:
        feed = prefetch.open(_options(source, 1, epochs=1), device=device)
        taken, error = _take_all(feed)
        feed.close()
        told = [record for record in caplog.records if record.name == "prefetch"]
        assert len(told) + (error is not None) == device.num_failures
        for record in told:
            assert taken == list(range(NUM_RECORDS))
            assert record.levelname == "ERROR"
            assert "had not been raised yet" in record.getMessage()
            assert f"call {number} fails on command" in record.getMessage()
        del feed, error


@pytest.mark.parametrize("threads", THREADS)
def test_of_several_faults_in_a_batch_the_first_in_its_order_is_told(
    tmp_path: Path, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parts of a large batch fail; the first one not before another has."""
    records = list(fingerprinted_images(32, (3, 128, 128)))
    large = write_database(tmp_path / "large", records)
    another_has_failed = threading.Event()

    def fill(_self: object, part: MappedRecords, *_: object) -> list[Any]:
        if bytes(part.values[0]) == records[0][1]:
            assert threads == 1 or another_has_failed.wait(timeout=20)
            raise ValueError("first")
        another_has_failed.set()
        raise ValueError("another")

    monkeypatch.setattr(RecordTransformer, "fill", fill)
    feed = prefetch.open({"source": large, "batch_size": 32, "threads": threads, "prefetch": 1})
    with pytest.raises(ValueError, match="first"):
        next(iter(feed))
    assert feed.closed
    assert another_has_failed.is_set() == (threads > 1)


@pytest.mark.parametrize("threads", THREADS)
def test_an_error_read_ahead_in_an_epoch_that_is_left_is_dropped_with_it(
    tmp_path: Path, threads: int
) -> None:
    """The next epoch is read, and meets the bad record in its own turn."""
    records = list(fingerprinted_images(40))
    records[30] = (records[30][0], b"\xff")
    source = write_database(tmp_path / "db", records)
    with prefetch.open(_options(source, threads, prefetch=9)) as feed:
        for epoch in range(2):
            iterator = iter(feed)
            next(iterator)
            while feed.stats().slots_filling or feed.stats().slots_ready < 7:
                threading.Event().wait(0.001)  # until the bad record has been met
            assert feed.epoch == epoch
        iterator = iter(feed)
        assert [0, 1, 2, 3, 4, 5, 6] == [next(iterator).number for _ in range(7)]
        with pytest.raises(prefetch.RecordError):
            next(iterator)


def test_a_lock_file_with_no_room_for_a_reader_is_an_error_of_the_opening(source: Path) -> None:
    """A feed takes one place in its table, however many threads it has."""
    with (
        lmdb.open(str(source), max_readers=1, readonly=True) as environment,
        prefetch.open(_options(source, 8, shuffle=True), source=environment) as feed,
    ):
        taken, error = _take_all(feed)
        assert (sorted(taken), error) == (list(range(NUM_RECORDS)), None)
    with (
        lmdb.open(str(source), max_readers=1, readonly=True) as environment,
        environment.begin(),
        pytest.raises(prefetch.SourceError, match=r"every place for a reader .* is taken"),
    ):
        prefetch.open(_options(source, 8), source=environment)


# Threads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("number", [1, 3])
def test_the_nth_thread_that_cannot_start_is_an_error(
    source: Path, number: int, threads: int, device: str
) -> None:
    """Of the readers, or of a device's streams."""
    options = _options(source, threads)
    error = RuntimeError("can't start new thread, on command")
    with open_device(device) as opened, pytest.MonkeyPatch.context() as patch:
        feed = prefetch.open(options, device=opened)
        nth = _Nth(patch, threading.Thread, "start", number=number, error=error)
        taken, told = _take_all(feed)
        state = feed.state_dict()
        feed.close()
        del feed
    if nth.calls < number:
        assert (taken, told) == (list(range(NUM_RECORDS)), None)
        return
    assert told is not None
    assert str(error) in str(told)
    assert "ulimit -u" in str(told)
    if type(told) is not prefetch.ThreadStartError:  # a stream's
        assert device == "simulated"
        assert type(told) is DeviceError
    else:
        assert taken == []
        assert (told.reason, told.threads) == (str(error), threads)
        # The threads of streams that readers start come in between.
        assert told.number == number - 1 if device == "cpu" else told.number < number
    with prefetch.open(options) as sound:
        sound.load_state_dict(state)
        rest, none = _take_all(sound)
    assert none is None
    assert list(range(NUM_RECORDS)) == taken + rest


# Room that the device's queue takes -------------------------------------------------------------


@pytest.mark.parametrize("threads", THREADS)
def test_batches_whose_copies_are_still_in_flight_are_not_held_by_the_consumer(
    source: Path, threads: int
) -> None:
    """A loop faster than the device is slowed down; it is not told to drop what it dropped."""
    with (
        open_device("simulated", latency_s=0.003) as device,
        prefetch.open(_options(source, threads, max_batches_held=2), device=device) as feed,
    ):
        numbers = []
        for batch in feed:
            numbers.append(batch.number)
            del batch
        assert numbers == list(range(6))


async def test_nor_are_they_for_an_event_loop(source: Path) -> None:
    with (
        open_device("simulated", latency_s=0.003) as device,
        prefetch.open(_options(source, 2, max_batches_held=2), device=device) as feed,
    ):
        numbers = []
        async for batch in feed:
            numbers.append(batch.number)
            del batch
        assert numbers == list(range(6))


def test_batches_that_are_held_while_their_copies_are_in_flight_still_count(source: Path) -> None:
    with (
        open_device("simulated", latency_s=0.01) as device,
        prefetch.open(_options(source, 2, max_batches_held=3), device=device) as feed,
    ):
        iterator = iter(feed)
        held = [next(iterator) for _ in range(3)]
        with pytest.raises(prefetch.BatchesHeldError):
            next(iterator)
        held.clear()
        assert next(iterator).number == 3


def test_a_device_that_stands_still_holds_nothing_up_for_ever(source: Path) -> None:
    """The consumer's stream is held: what it was handed drains when it goes on."""
    device = open_device("simulated")
    stream = device.make_stream("consumer")
    with (
        prefetch.open(_options(source, 2), device=device) as feed,
        device.use_stream(stream),
    ):
        with hold(stream):
            iterator = iter(feed)
            seen = [next(iterator).number for _ in range(3)]
        seen += [batch.number for batch in iterator]
        assert seen == list(range(6))
    stream.close()
    device.close()
