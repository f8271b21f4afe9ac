"""People's own functions and a GPU: CuPy arrays on the reader's stream, behind all else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest
from databases import images_fixture

import prefetch

if TYPE_CHECKING:
    from pathlib import Path

source = images_fixture(12)


@pytest.mark.parametrize("where", ["host", "device"])
def test_a_batch_gets_what_the_function_queues_on_the_readers_stream(
    source: Path, cuda: Any, where: str
) -> None:
    streams: list[Any] = []

    def function(images: Any, labels: Any, rng: np.random.Generator) -> None:
        assert isinstance(images, cupy.ndarray)
        assert (images.dtype, images.shape[1:]) == (np.float32, (3, 8, 8))
        streams.append(cupy.cuda.get_current_stream().ptr)
        # Every second image anew, so that the copy and the kernel have to come first.
        half = images[len(images) // 2 :]
        half.data.memset_async(0, half.nbytes)
        labels.data.memset_async(0, labels.nbytes // 2)
        assert rng.random() < 1

    options = {"source": source, "batch_size": 4, "device": cuda, "threads": 1}
    with prefetch.open(options, transform={"where": where}, per_batch=function) as feed:
        for _ in range(5):
            for batch in feed:
                first = 4 * batch.number
                images, labels = batch.data.numpy(), batch.label.numpy()
                expected = [first, first + 1, 0, 0]
                assert (images == np.reshape(expected, (4, 1, 1, 1))).all()
                assert labels.tolist() == [0, 0, first + 2, first + 3]
                del batch, images, labels
    assert len(set(streams)) == 1
    assert streams[0] != cupy.cuda.Stream.null.ptr


def test_a_slot_waits_for_its_own_work_and_no_stream_of_the_reader(source: Path, cuda: Any) -> None:
    options = {"source": source, "batch_size": 4, "device": cuda}
    with prefetch.open(options, per_batch=lambda *_: None) as feed:
        batches = list(feed)
        held = [slot for slot in feed._prefetcher.coordinator.ring.slots if slot.is_held]
        assert len(held) == 3
        noted = [stream.name for slot in held for stream in slot.streams]
        assert not [name for name in noted if name.startswith("ringfeed-reader")]
        assert [batch.number for batch in batches] == [0, 1, 2]


@pytest.mark.parametrize("where", ["host", "device"])
def test_what_it_raises_is_raised_with_its_batch_and_its_work_is_waited_for(
    source: Path, cuda: Any, where: str
) -> None:
    def function(images: Any, labels: Any, rng: np.random.Generator) -> None:
        images.data.memset_async(0, images.nbytes)
        raise LookupError

    options = {"source": source, "batch_size": 4, "device": cuda}
    with (
        prefetch.open(options, transform={"where": where}, per_batch=function) as feed,
        pytest.raises(LookupError) as caught,
    ):
        next(iter(feed))
    assert "epoch 0, batch 0, stage per_batch" in caught.value.__notes__[0]


def test_an_array_of_another_kind_is_refused(source: Path, cuda: Any) -> None:
    with (
        prefetch.open(
            {"source": source, "device": cuda}, per_batch=lambda images, *_: images[1:]
        ) as feed,
        pytest.raises(ValueError, match="images of another kind: expected float32 of shape"),
    ):
        next(iter(feed))


def test_a_function_of_each_record_is_called_on_the_host(
    source: Path, cuda: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "prefetch")

    def function(image: Any, label: int, rng: np.random.Generator) -> Any:
        assert isinstance(image, np.ndarray)
        return image + np.uint8(1)

    with prefetch.open({"source": source, "device": cuda}, per_record=function) as feed:
        images = next(iter(feed)).data.numpy()
        assert (images[:, 0, 0, 0] == np.arange(12) + 1).all()
    assert "auto resolved to host (per_record is called on the host)" in caplog.text
