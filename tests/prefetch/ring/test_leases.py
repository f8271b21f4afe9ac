"""A batch is the consumer's for as long as anything of it is referenced."""

from __future__ import annotations

import gc
import sys
import threading
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import open_device
from memory.testing import peek

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType


source = images_fixture(40)


EXPORTS: dict[str, Callable[[prefetch.Batch], Any]] = {
    "array": lambda batch: batch.data.numpy(),
    "slice": lambda batch: batch.data.numpy()[1:],
    "reshape": lambda batch: batch.data.numpy().reshape(-1)[5:],
    "one plane": lambda batch: batch.data.numpy()[1, 2].T[::2],
    "const view": lambda batch: batch.data.numpy(writable=False),
    "asarray": lambda batch: np.asarray(batch.data),
    "from_dlpack": lambda batch: np.from_dlpack(batch.data),
    "dlpack capsule": lambda batch: _Capsule(batch.data),
    "memoryview": lambda batch: batch.data.numpy().data,
    "blob": lambda batch: batch.data,
    "label blob": lambda batch: batch.label,
    "label array": lambda batch: batch.label.numpy(),
    "synced memory": lambda batch: batch.data.data,
}


class _Capsule:
    """Holds nothing but a DLPack capsule; another consumer takes it later."""

    def __init__(self, blob: Any) -> None:
        self._capsule = blob.__dlpack__(max_version=(1, 0))

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def _first_value(export: Any) -> int:
    if isinstance(export, _Capsule):
        export = np.from_dlpack(cast("Any", export))
    if hasattr(export, "mutable_cpu_data") and not hasattr(export, "numpy"):
        return int(export.cpu_data()[:4].view(np.float32)[0])
    if hasattr(export, "numpy"):
        export = export.numpy()
    return int(np.asarray(export).reshape(-1)[0])


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("kind", EXPORTS)
def test_each_kind_of_export_outlives_array_batch_and_feed(
    source: Path, kind: str, device: str
) -> None:
    feed = prefetch.open({"source": source, "batch_size": 2, "prefetch": 1, "device": device})
    iterator = iter(feed)
    next(iterator)
    export = EXPORTS[kind](next(iterator))
    gc.collect()
    for batch in iterator:
        assert batch.number >= 2
        del batch
    # What the host is given of a device's batch is a copy.
    holds_slot = device == "cpu" or kind in {"blob", "label blob", "synced memory"}
    assert feed.stats().slots_leased == holds_slot
    feed.close()
    del feed, iterator
    gc.collect()
    expected = 3 if kind in {"slice", "one plane"} else 2
    assert _first_value(export) == expected


def test_list_of_a_feed_is_right(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4, "prefetch": 2}) as feed:
        batches = list(feed)
        assert len(batches) == 10
        for number, batch in enumerate(batches):
            assert batch.label.numpy().tolist() == list(range(4 * number, 4 * number + 4))
            assert (batch.data.numpy() == batch.label.numpy()[:, None, None, None]).all()
        assert feed.stats().slots_leased == 10


def test_holding_more_than_the_bound_is_an_error_that_names_them_and_can_be_recovered(
    source: Path,
) -> None:
    with prefetch.open(
        {"source": source, "batch_size": 4, "prefetch": 2, "max_batches_held": 3}
    ) as feed:
        iterator = iter(feed)
        held = [next(iterator) for _ in range(3)]
        for _ in range(2):
            with pytest.raises(prefetch.BatchesHeldError, match="epoch 0 batch 1") as caught:
                next(iterator)
            assert caught.value.batches == ((0, 0), (0, 1), (0, 2))
            assert caught.value.max_batches_held == 3
        del held[0]
        batch = next(iterator)
        assert batch.number == 3
        assert batch.label.numpy().tolist() == [12, 13, 14, 15]


def test_a_list_of_exactly_the_bound_is_no_error(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4, "max_batches_held": 10}) as feed:
        assert len(list(feed)) == 10


def test_batches_held_by_a_reference_cycle_only_do_not_count(source: Path) -> None:
    gc.disable()
    try:
        with prefetch.open({"source": source, "batch_size": 4, "max_batches_held": 2}) as feed:
            for batch in feed:
                cycle: list[Any] = [batch]
                cycle.append(cycle)
                del cycle
            assert feed.stats().batches == 10
            del batch
    finally:
        gc.enable()
        gc.collect()


def test_the_ring_starts_with_one_slot_more_than_prefetch_and_grows_with_what_is_held(
    source: Path,
) -> None:
    with prefetch.open({"source": source, "batch_size": 4, "prefetch": 3}) as feed:
        assert feed.stats().slots == 4
        for batch in feed:
            assert batch.number >= 0
        assert feed.stats().slots == 4
        held = []
        for batch in feed:
            held.append(batch)
            if len(held) == 6:
                break
        assert feed.stats().slots == 8  # five were held when the sixth was asked for
        del batch


def test_memory_that_the_ring_grew_by_is_given_back_when_it_has_not_been_needed_for_a_while(
    source: Path,
) -> None:
    with prefetch.open({"source": source, "batch_size": 4, "prefetch": 2, "threads": 1}) as feed:
        held = list(feed)
        assert len(held) == 10
        grown = feed.stats()
        assert grown.slots >= 11
        held.clear()
        for _ in range(8):
            for batch in feed:
                assert (batch.data.numpy().T == batch.indices).all()
                del batch
        small = feed.stats()
        assert small.slots <= 4  # one more while a batch is in use
        assert small.host_bytes < grown.host_bytes / 2


def test_release_ends_the_batchs_own_hold_and_its_accessors_raise(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4, "prefetch": 1}) as feed:
        iterator = iter(feed)
        batch = next(iterator)
        keys, indices = batch.keys, batch.indices
        batch.release()
        batch.release()
        assert batch.released
        for name in ("data", "label"):
            with pytest.raises(prefetch.BatchReleasedError, match="batch 0 of epoch 0"):
                getattr(batch, name)
        assert batch.keys is keys
        assert batch.indices is indices
        assert feed.stats().slots_leased == 0
        assert "released" in repr(batch)


def test_an_array_taken_before_release_stays_valid_after_it(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4, "prefetch": 1}) as feed:
        iterator = iter(feed)
        with next(iterator) as batch:
            array = batch.data.numpy()
        assert feed.stats().slots_leased == 1
        for later in iterator:
            assert later.number > 0
        assert (array[:, 0, 0, 0] == [0, 1, 2, 3]).all()


def test_a_batch_is_writable_and_what_is_written_reaches_no_other_batch(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4, "prefetch": 1}) as feed:
        for batch in feed:
            array = batch.data.numpy()
            assert (array[:, 0, 0, 0] == batch.label.numpy()).all()
            array[:] = -1


def test_a_dropped_batch_comes_back_even_when_collected_on_another_thread(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4, "prefetch": 1}) as feed:
        for batch in feed:
            box = [batch]
            del batch
            thread = threading.Thread(target=box.clear)
            thread.start()
            thread.join()
        assert feed.stats().slots == 2


def test_a_device_batch_stays_valid_while_its_device_buffer_is_held(source: Path) -> None:
    device = open_device("simulated")
    with prefetch.open({"source": source, "batch_size": 2, "prefetch": 1}, device=device) as feed:
        iterator = iter(feed)
        buffer = next(iterator).data.gpu_data()
        device.current_stream().synchronize()
        expected = peek(buffer).copy()
        for batch in iterator:
            assert batch.number > 0
            del batch
        assert feed.stats().slots_leased == 1
        assert (peek(buffer) == expected).all()
        assert expected.view(np.float32)[:192].tolist() == [0.0] * 192
    del iterator, feed, buffer
    device.close()


def test_no_python_code_runs_when_a_batch_is_dropped(source: Path) -> None:
    # Ctrl-C raises between two steps of Python code; in a finalizer that would be lost.
    called: list[str] = []

    def trace(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    with prefetch.open({"source": source, "batch_size": 4}) as feed:
        batch = next(iter(feed))
        array = batch.data.numpy()
        sys.setprofile(trace)
        del batch
        del array
        sys.setprofile(None)
        assert feed.stats().slots_leased == 0
    assert called == []
