"""Failures of the device around ``per_batch``: the right error, no hang, no leak, and a resume."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
from databases import images_fixture

import prefetch
from memory import SyncedMemoryError, open_device
from memory.testing import FailingDevice, live_buffers

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

NUM = 16
source = images_fixture(NUM)


def negate(images: NDArray[Any], labels: NDArray[Any], rng: np.random.Generator) -> None:
    images *= -1


def take_all(feed: prefetch.Feed) -> tuple[list[int], bool]:
    """Return the records of an epoch up to the first error of the device, and whether it came."""
    taken = []
    try:
        for batch in feed:
            indices = batch.indices.tolist()
            assert (batch.data.numpy()[:, 0, 0, 0] == -batch.label.numpy()).all()
            taken += indices
            del batch
    except SyncedMemoryError:
        return taken, True
    return taken, False


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize(
    "operation",
    ["alloc_host", "alloc_device", "copy_to_device", "copy_to_host", "record", "wait"],
)
def test_the_nth_call_of_the_device_that_fails_is_the_consumers_error(
    source: Path, operation: str, number: int, where: str
) -> None:
    options: dict[str, Any] = {
        "source": source,
        "batch_size": 4,
        "threads": 2,
        "epochs": 1,
        "transform": {"where": where},
        "per_batch": negate,
    }
    with FailingDevice(open_device("simulated"), fail={operation: number}) as device:
        feed = prefetch.open(options, device=device)
        taken, failed = take_all(feed)
        state = feed.state_dict()
        feed.close()
        del feed
        assert failed == bool(device.num_failures)
    if taken != list(range(NUM)):
        assert failed
        with prefetch.open(options, device="simulated") as sound:
            sound.load_state_dict(state)
            rest, _ = take_all(sound)
        # A batch may have been served whose bytes the consumer then could not have.
        assert (taken + rest)[-len(rest) :] == list(range(NUM))[-len(rest) :]
    gc.collect()  # frames of errors
    assert live_buffers() == ()
