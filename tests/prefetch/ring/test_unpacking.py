"""A batch taken apart: ``for images, labels in feed``."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from databases import images_fixture

import prefetch

if TYPE_CHECKING:
    from pathlib import Path

source = images_fixture(40)

DEVICES = pytest.mark.parametrize("device", ["cpu", "simulated"])


def opened(source: Path, device: str = "cpu", **options: Any) -> prefetch.Feed:
    return prefetch.open({"source": source, "batch_size": 2, "device": device}, **options)


@DEVICES
def test_a_loop_takes_images_and_labels(source: Path, device: str) -> None:
    with opened(source, device) as feed:
        seen = []
        for images, labels in feed:
            assert np.ndarray is type(images) is type(labels)
            assert (2, 3, 8, 8) == images.shape
            assert (images[:, 0, 0, 0] == labels).all()
            seen += labels.tolist()
    assert list(range(40)) == seen


@DEVICES
def test_a_batch_unpacks_again_and_after_its_blobs_were_asked_for(
    source: Path, device: str
) -> None:
    with opened(source, device) as feed:
        batch = next(iter(feed))
        images, labels = batch
        expected = images.copy()
        assert (batch.label.numpy() == labels).all()
        for _ in range(2):
            again, labels = batch
            assert (expected == again).all()
            assert [0, 1] == labels.tolist()
            assert (expected == batch.data.numpy()).all()


@DEVICES
def test_labels_of_an_epoch_are_collected_and_hold_no_batch(source: Path, device: str) -> None:
    with opened(source, device, max_batches_held=1) as feed:
        collected = []
        images = None
        for images, labels in feed:
            del images
            collected.append(labels)
        assert list(range(40)) == np.concatenate(collected).tolist()
        assert all(labels.flags.writeable and labels.base is None for labels in collected)


def test_images_are_the_batchs_memory_and_keep_it(source: Path) -> None:
    with opened(source, max_batches_held=2) as feed:
        batches = iter(feed)
        batch = next(batches)
        images, _ = batch
        assert images.ctypes.data == batch.data.numpy().ctypes.data
        images[0] = 77
        assert (batch.data.numpy()[0] == 77).all()
        kept = images[1, 0]
        del batch, images
        gc.collect()
        for later, _ in batches:
            del later
        assert (kept == 1).all()


def test_images_that_are_kept_count_as_batches_held(source: Path) -> None:
    with opened(source, max_batches_held=3) as feed, pytest.raises(prefetch.BatchesHeldError):
        [images for images, _ in feed]


def test_without_labels_nothing_unpacks(source: Path) -> None:
    with opened(source, labels=False) as feed, pytest.raises(prefetch.LabelsNotProducedError):
        _, _ = next(iter(feed))


@DEVICES
def test_a_released_batch_does_not_unpack(source: Path, device: str) -> None:
    with opened(source, device) as feed:
        batch = next(iter(feed))
        batch.release()
        with pytest.raises(prefetch.BatchReleasedError):
            _, _ = batch


def test_a_batch_has_a_length_of_examples_and_is_no_sequence(source: Path) -> None:
    with opened(source, batch_size=7) as feed:
        batch = next(iter(feed))
        assert 7 == len(batch)
        assert 2 == len(list(batch))
        assert not isinstance(batch, Sequence)
        with pytest.raises(TypeError, match=r"batch\.data\.numpy\(\)\[i\]"):
            batch[0]


async def test_an_asynchronous_loop_unpacks_too(source: Path) -> None:
    with opened(source) as feed:
        seen = [label async for _, labels in feed for label in labels.tolist()]
    assert list(range(40)) == seen


def test_unpacked_bfloat16_images_keep_their_type(source: Path) -> None:
    pytest.importorskip("ml_dtypes")
    with opened(source, transform={"dtype": "bfloat16"}) as feed:
        images, _ = next(iter(feed))
        assert "bfloat16" == images.dtype.name
