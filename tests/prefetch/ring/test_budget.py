"""What a ring takes is known, said and checked before anything is allocated."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

import prefetch
from prefetch._process.resource_limits import MemoryLimit
from prefetch._ring.budget import RingBudget
from prefetch.caffe import Datum
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def ring(**changes: Any) -> RingBudget:
    given: dict[str, Any] = {
        "label_dtype": np.dtype("i8"),
        "rows": 10,
        "num_batches": 5,
        "on_device": True,
        **changes,
    }
    return RingBudget.of((3, 4, 4), np.dtype("f4"), **given)


def test_it_is_the_slots_times_data_and_labels_of_the_largest_batch() -> None:
    found = ring(on_device=False)
    assert found.host_batch_bytes == 10 * (3 * 4 * 4 * 4 + 8)
    assert (found.host_bytes, found.device_bytes) == (5 * found.host_batch_bytes, 0)
    assert ring(label_dtype=None).host_batch_bytes == 10 * 3 * 4 * 4 * 4


def test_where_the_device_has_memory_three_batches_are_on_the_host_at_a_time() -> None:
    found = ring()
    # The labels begin at a multiple of 256 bytes.
    assert found.host_batch_bytes == found.device_batch_bytes == 2048 + 10 * 8
    assert found.host_bytes == 3 * found.host_batch_bytes
    assert found.device_bytes == 5 * found.device_batch_bytes
    assert ring(num_batches=2).host_bytes == 2 * found.host_batch_bytes


def test_the_machine_and_the_device_have_to_hold_it_and_just_enough_is_enough() -> None:
    found = ring(num_batches=3)
    enough = found.host_bytes
    found.refuse_too_large(
        host=MemoryLimit("this machine has", enough), device="cuda:0", device_limit_bytes=enough
    )
    found.refuse_too_large(
        host=MemoryLimit("this machine has", enough), device="simulated", device_limit_bytes=None
    )
    with pytest.raises(prefetch.RingTooLargeError, match=f"needs {enough} bytes.*this machine"):
        found.refuse_too_large(
            host=MemoryLimit("this machine has", enough + 9, 10),
            device="cuda:0",
            device_limit_bytes=None,
        )
    with pytest.raises(prefetch.RingTooLargeError, match=f"needs {enough} bytes.*device cuda:0"):
        found.refuse_too_large(
            host=MemoryLimit("this machine has", enough),
            device="cuda:0",
            device_limit_bytes=enough - 1,
        )


@pytest.mark.parametrize(("device", "on_device"), [("cpu", 0), ("simulated", 1)])
def test_stats_and_log_tell_it_before_the_first_batch(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    until: Callable[[Callable[[], bool]], None],
    device: str,
    on_device: int,
) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(32, (3, 8, 8)))
    batch_bytes = 1792 + 4 * 8 if on_device else 4 * (3 * 6 * 6 * 4 + 8)
    on_host = 3 if on_device else 5
    few = ", 3 of them on the host at a time" if on_device else ""
    with (
        caplog.at_level(logging.INFO, logger="prefetch"),
        prefetch.open(
            {"source": source, "batch_size": 4, "epochs": 1, "transform": {"crop_size": 6}},
            device=device,
        ) as feed,
    ):
        before = feed.stats()
        assert before.ring_host_bytes == on_host * batch_bytes
        assert before.ring_device_bytes == on_device * 5 * batch_bytes
        assert (0, 0) == (before.host_bytes, before.device_bytes)
        assert (
            f"the ring takes {on_host * batch_bytes} bytes of host memory and "
            f"{on_device * 5 * batch_bytes} bytes of the device's, for 5 batches{few}"
            in caplog.messages
        )
        # All of the epoch is in memory at once: what is held, and what the readers fill behind it.
        held = [batch for _, batch in zip(range(5), feed, strict=False)]
        until(lambda: feed.stats().slots_leased + feed.stats().slots_ready == 8)
        stats = feed.stats()
        assert stats.host_bytes == (3 if on_device else 8) * batch_bytes
        assert stats.device_bytes == on_device * 8 * batch_bytes
        del held


def test_a_batch_is_no_larger_than_an_epoch(tmp_path: Path) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(6, (1, 8, 8)))
    with prefetch.open({"source": source, "batch_size": 1000, "prefetch": 1}) as feed:
        assert feed.stats().ring_host_bytes == 2 * 6 * (8 * 8 * 4 + 8)


def test_of_an_encoded_image_the_size_is_known_too(tmp_path: Path) -> None:
    png = cv2.imencode(".png", np.zeros((12, 10, 3), np.uint8))[1].tobytes()
    datum = Datum(data=png, encoded=True, label=0)
    source = write_database(tmp_path / "db", [(b"0", datum.SerializeToString())])
    with prefetch.open({"source": source, "prefetch": 1, "transform": {"dtype": "uint8"}}) as feed:
        assert feed.stats().ring_host_bytes == 2 * (3 * 12 * 10 + 8)


def test_where_the_first_record_is_bad_it_shows_with_the_first_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = list(fingerprinted_images(4, (1, 8, 8)))
    source = write_database(tmp_path / "db", [(b"!", b"\xff"), *good])
    shard = {"rank": 1, "world_size": 2, "policy": "drop"}  # the others' first record
    with (
        caplog.at_level(logging.INFO, logger="prefetch"),
        prefetch.open({"source": source, "batch_size": 2}, shard=shard) as feed,
    ):
        assert feed.stats().ring_host_bytes is None
        assert "what the ring takes shows with the first batch" in caplog.text
        assert next(iter(feed)).data.shape == (2, 1, 8, 8)
        assert feed.stats().host_bytes > 0


def test_where_bad_records_are_replaced_the_first_good_one_says_what_the_ring_takes(
    tmp_path: Path,
) -> None:
    good = list(fingerprinted_images(4, (1, 8, 8)))
    source = write_database(tmp_path / "db", [(b"!", b"\xff"), *good])
    with prefetch.open({"source": source, "on_bad_record": "skip"}) as feed:
        expected = feed.stats().ring_host_bytes
        batch = next(iter(feed))
        assert batch.data.shape == (5, 1, 8, 8)
        assert expected == 5 * (batch.data.numpy().nbytes + batch.label.numpy().nbytes)
