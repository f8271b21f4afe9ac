"""Where the transformation is done: resolves ``transform.where`` for a device."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from memory import DeviceError, NotImplementedDeviceError
from prefetch._errors.classes import ConfigError, ConfigFault
from prefetch._transform.device import DeviceTransform

if TYPE_CHECKING:
    from memory import Device
    from prefetch._record.layout import RecordKind
    from prefetch._transform.options import Transform

logger = logging.getLogger("prefetch")


def choose_placement(
    where: str, *, transform: Transform, device: Device, kind: RecordKind
) -> DeviceTransform | None:
    """Resolve ``transform.where``.

    ``auto`` takes the device where that is known to save time: raw uint8 records, a batch of
    floats, a GPU. The choice, and why, goes to the log.

    Args:
        where: ``auto``, ``host`` or ``device``.
        transform: Whose place it is.
        device: Where batches are pushed.
        kind: What the records hold, by the one that the feed is opened by.

    Returns:
        The transformation on the device; None for the host.

    Raises:
        ConfigError: It is ``device``, and this one cannot.
        SyncedMemoryError: The device can, and fails.
    """
    if where == "host":
        return None
    if where == "device":
        if not device.has_device_memory:
            raise _refusal(f"device {device.name} has no memory of its own to transform in")
        try:
            return DeviceTransform(transform, device, resizes=True)
        except NotImplementedDeviceError as error:
            raise _refusal(str(error)) from error
    reason = _reason_for_host(transform, device, kind)
    if reason is None:
        try:
            found = DeviceTransform(transform, device)
        except (NotImplementedDeviceError, DeviceError) as error:  # no NVRTC, or it cannot compile
            reason = str(error)
        else:
            logger.info(
                "transform.where: auto resolved to device (raw uint8 records, batches of %s, %s)",
                transform.dtype,
                device.name,
            )
            return found
    logger.info("transform.where: auto resolved to host (%s)", reason)
    return None


def _reason_for_host(transform: Transform, device: Device, kind: RecordKind) -> str | None:
    """Return why ``auto`` picks the host; None if it picks the device."""
    reasons = (
        (not device.has_device_memory, f"device {device.name} has no memory of its own"),
        (device.name.partition(":")[0] != "cuda", f"device {device.name} is no GPU"),
        (transform.per_record is not None, "per_record is called on the host"),
        (transform.erasing is not None, "random_erasing is not known to be faster on a device"),
        (transform.dtype == np.uint8, "batches of uint8 are pushed as they are"),
        (kind == "encoded", "the records are encoded images, which the host decodes"),
        (
            kind == "float",
            "the records hold float_data, which is no larger once it is transformed",
        ),
    )
    return next((reason for holds, reason in reasons if holds), None)


def _refusal(reason: str) -> ConfigError:
    message = (
        f"is device, but {reason}; use where: auto or host, or a device that can: "
        f"device: cuda with NVRTC installed, or simulated"
    )
    return ConfigError("transform", (ConfigFault("transform.where", message),))
