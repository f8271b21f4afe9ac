"""feed.into: batches in arrays that are always the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import BufferMismatchError, open_device
from memory.testing import hold

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memory import Device

BATCH = 4


source = images_fixture(18)  # four batches and a half


@pytest.fixture(params=["cpu", "simulated"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    with open_device(request.param) as device:
        yield device


@pytest.fixture
def images(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.full(shape, -1, np.float32)


@pytest.fixture
def shape(source: Path) -> tuple[int, ...]:
    with opened(source, "cpu") as feed:
        return next(iter(feed)).data.shape


def opened(source: Path, device: Any, **options: Any) -> prefetch.Feed:
    return prefetch.open(
        {"source": source, "batch_size": BATCH, "prefetch": 2, "threads": 1, **options},
        device=device,
    )


def settle(device: Device) -> None:
    if device.has_device_memory:
        device.current_stream().synchronize()


def is_filled(images: np.ndarray[Any, Any], filled: prefetch.Filled) -> bool:
    rows = images[: filled.n].reshape(filled.n, -1)
    return bool((rows == filled.indices[:, None]).all())


def test_every_batch_is_copied_into_the_same_arrays(
    source: Path, device: Device, images: np.ndarray[Any, Any]
) -> None:
    labels = np.full(BATCH, -1, np.int64)
    with opened(source, device) as feed:
        into, seen = feed.into(images, labels), []
        for epoch in range(2):
            for filled in into:
                settle(device)
                assert is_filled(images, filled)
                seen.append((epoch, filled.number, filled.n))
                assert (filled.epoch, list(filled.indices)) == (
                    epoch,
                    list(range(BATCH * filled.number, BATCH * filled.number + filled.n)),
                )
        assert feed.stats().samples == 36
    assert seen == [
        (epoch, number, 4 if number < 4 else 2) for epoch in (0, 1) for number in range(5)
    ]
    with opened(source, "cpu") as feed:
        *_, before, last = [batch.label.numpy().copy() for batch in feed]
    assert list(labels) == [*last, *before[2:]]  # rows behind the last batch's stay as they were


async def test_it_serves_asynchronously_too(
    source: Path, device: Device, images: np.ndarray[Any, Any]
) -> None:
    numbers = []
    with opened(source, device) as feed:
        async for filled in feed.into(images):
            settle(device)
            assert is_filled(images, filled)
            numbers.append(filled.number)
    assert numbers == [0, 1, 2, 3, 4]


def test_no_batch_is_held_and_a_stream_that_is_behind_is_waited_for(
    source: Path, images: np.ndarray[Any, Any]
) -> None:
    with (
        open_device("simulated") as device,
        device.make_stream("consumer") as stream,
        opened(source, device, max_batches_held=1) as feed,
    ):
        feed.to_stream(stream)
        batches = iter(feed.into(images))
        with hold(stream):
            for _ in range(3):
                next(batches)
            stats = feed.stats()
            assert (stats.slots_leased, stats.slots_draining, stats.slots) == (0, 3, 3)
            assert (images == -1).all()
        filled = next(batches)
        stream.synchronize()
        assert is_filled(images, filled)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda images: images.astype(np.float64), r"float64 of shape \(4, 3, "),
        (lambda images: images[:3].copy(), r"float32 of shape \(3, 3, "),
        (lambda images: images[..., :-1].copy(), r"float32 of shape \(4, 3, "),
        (lambda images: images.reshape(-1), r"float32 of shape \(\d+,\)"),
    ],
    ids=["dtype", "rows", "width", "dimensions"],
)
def test_another_dtype_or_shape_is_refused_and_the_batch_served_again(
    source: Path, device: Device, images: np.ndarray[Any, Any], change: Any, found: str
) -> None:
    with opened(source, device) as feed:
        batches = iter(feed.into(change(images)))
        what = rf"into\(\): data: expected float32 of shape \(4, 3, .*, found {found}"
        for _ in range(2):
            with pytest.raises(BufferMismatchError, match=what):
                next(batches)
        assert feed.state_dict() == opened_state(source)
        assert next(iter(feed.into(images))).number == 0


def opened_state(source: Path) -> dict[str, Any]:
    with opened(source, "cpu") as feed:
        return feed.state_dict()


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (None, "an object of type NoneType"),
        ([[1.0]], "an object of type list"),
        (np.zeros((4, 6))[:, ::2], "float64 of shape (4, 3), strides (48, 16)"),
        (np.broadcast_to(np.float32(0), (4, 3)), "read-only"),
    ],
    ids=["None", "list", "strided", "read-only"],
)
def test_what_nothing_can_be_copied_into_is_refused(
    source: Path, device: Device, array: Any, found: str
) -> None:
    with opened(source, device) as feed:
        with pytest.raises(
            BufferMismatchError, match="a writable, C-contiguous NumPy arr"
        ) as caught:
            feed.into(array)
        assert found in str(caught.value)


def test_labels_that_the_feed_does_not_make_are_refused(
    source: Path, device: Device, images: np.ndarray[Any, Any]
) -> None:
    with opened(source, device, labels=False) as feed:
        with pytest.raises(prefetch.LabelsNotProducedError):
            next(iter(feed.into(images, np.zeros(BATCH, np.int64))))
        assert next(iter(feed.into(images))).number == 0


def test_an_interrupted_copy_is_done_again(
    source: Path, device: Device, images: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with opened(source, device) as feed:
        batches = iter(feed.into(images))
        next(batches)
        before = feed.state_dict()
        with monkeypatch.context() as patch:
            patch.setattr("prefetch._feed.into.Filled", interrupt)  # when the copies are queued
            with pytest.raises(KeyboardInterrupt):
                next(batches)
        assert feed.state_dict() == before
        filled = next(batches)
        settle(device)
        assert filled.number == 1
        assert is_filled(images, filled)


def test_it_goes_on_where_a_loaded_state_was(source: Path, images: np.ndarray[Any, Any]) -> None:
    with opened(source, "simulated") as feed:
        into = feed.into(images)
        batches = iter(into)
        next(batches)
        feed.load_state_dict(feed.state_dict())  # which opens another device
        filled = next(iter(into))
        feed.device.current_stream().synchronize()
        assert filled.number == 1
        assert is_filled(images, filled)
        with pytest.raises(prefetch.StaleIteratorError):
            next(batches)


def test_a_tensor_on_the_host_is_taken_by_dlpack(
    source: Path, device: Device, images: np.ndarray[Any, Any]
) -> None:
    class Tensor:
        __dlpack__, __dlpack_device__ = images.__dlpack__, images.__dlpack_device__

    with opened(source, device) as feed:
        filled = next(iter(feed.into(Tensor())))
        settle(device)
        assert is_filled(images, filled)
