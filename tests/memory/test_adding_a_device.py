"""The seam that docs/design/0017-adding-a-device.md describes, tried with a device of the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from inline_device import InlineDevice, open_inline

import prefetch
from memory import DeviceOptionError, UnknownDeviceError, _open_device, open_device
from memory.testing import peek
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_open_device, "_kinds", dict(_open_device._kinds))
    _open_device.register_device("inline", open_inline, other_names=("here",))


def test_a_registered_device_is_opened_by_its_name() -> None:
    with open_device("inline") as device:
        assert isinstance(device, InlineDevice)


def test_a_device_that_is_not_numbered_has_no_number() -> None:
    with pytest.raises(
        UnknownDeviceError, match="one of auto, cpu, simulated, cuda, inline, cuda:N"
    ):
        open_device("inline:0")


@pytest.mark.parametrize("slip", ["inlined", "here"])
def test_a_slip_in_its_name_is_answered_with_it(slip: str) -> None:
    with pytest.raises(UnknownDeviceError, match="did you mean 'inline'"):
        open_device(slip)


def test_its_options_are_checked_by_what_opens_it() -> None:
    with pytest.raises(DeviceOptionError, match="does not take latency"):
        open_device("inline", latency=1)


def test_a_feed_delivers_to_it_what_it_delivers_to_the_host(tmp_path: Path) -> None:
    source = write_database(tmp_path / "ten", fingerprinted_images(10))
    options = {"source": source, "batch_size": 4, "shuffle": True, "seed": 5}
    with prefetch.open({**options, "device": "cpu"}) as feed:
        expected = [(batch.data.numpy().copy(), list(batch.keys)) for batch in feed]
    with open_device("inline") as device, prefetch.open({**options, "device": device}) as feed:
        for batch, (pixels, keys) in zip(feed, expected, strict=True):
            assert list(batch.keys) == keys
            assert batch.data.device is device
            assert np.array_equal(peek(batch.data), pixels)
