"""A batch's blobs keep their values, whatever shape they are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import Blob, Head, ShapeError, ShapeMismatchError, open_device
from prefetch._ring.batch_blob import BatchBlob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

source = images_fixture(4)


@pytest.fixture(params=["cpu", "simulated"])
def batch(source: Path, request: pytest.FixtureRequest) -> Iterator[prefetch.Batch]:
    with prefetch.open(source, batch_size=4, device=request.param) as feed:
        yield next(iter(feed))


def test_a_reshape_to_another_number_of_values_is_refused(batch: prefetch.Batch) -> None:
    shape, before = batch.data.shape, batch.data.copy()
    other = (2, *shape[1:])
    with pytest.raises(ShapeMismatchError, match=r"batch\.data\.numpy\(\)\.reshape"):
        batch.data.reshape(64, *shape[1:])
    with pytest.raises(ShapeMismatchError, match=f"keeps its {before.size} values"):
        batch.data.reshape(other)
    with pytest.raises(ShapeMismatchError):
        batch.data.reshape_like(Blob(other))
    with pytest.raises(ShapeMismatchError, match="keeps its 4 values"):
        batch.label.reshape(2)
    images, labels = batch
    assert images.shape == shape
    assert (images == before).all()
    assert len(labels) == 4


def test_a_reshape_to_as_many_values_is_caffes(batch: prefetch.Batch) -> None:
    before = batch.data.copy()
    batch.data.reshape(4, before[0].size)
    assert (batch.data.numpy() == before.reshape(4, -1)).all()


def test_what_is_no_shape_is_refused_as_ever(batch: prefetch.Batch) -> None:
    with pytest.raises(ShapeError, match=r"write blob\.numpy\(\)\.reshape"):
        batch.data.reshape(4, -1)


def test_labels_are_shown_with_their_values(batch: prefetch.Batch) -> None:
    head = batch.label.data.head
    assert f": {batch.label.tolist()}>".replace(",", "") in repr(batch.label)
    assert repr(batch.label).startswith("<Blob (4,) int64 on ")
    assert batch.label.data.head is head
    assert "[" not in repr(batch.data)


def test_of_many_labels_the_first_and_the_last_are_shown() -> None:
    blob = BatchBlob.over(np.arange(1000))
    assert repr(blob).endswith(": [  0   1   2 ... 997 998 999]>")


def test_what_is_newer_on_the_device_is_not_fetched_to_be_shown() -> None:
    blob = BatchBlob((4,), np.int64, device=open_device("simulated"))
    blob.mutable_gpu_data()
    assert "[" not in repr(blob)
    assert blob.data.head is Head.HEAD_AT_GPU
    blob.close()
    assert "closed" in repr(blob)
