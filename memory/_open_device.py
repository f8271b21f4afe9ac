"""Open a device by its name."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import re
from typing import TYPE_CHECKING, Any, cast

from memory._device.protocols import Device
from memory._errors import (
    DeviceOptionError,
    DeviceUnavailableError,
    SyncedMemoryError,
    UnknownDeviceError,
)
from memory.wording import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping


_logger = logging.getLogger("memory")


_VALID_SPECS = ("auto", "cpu", "simulated", "cuda", "cuda:N")


# Words people use for a device; by its spelling alone "gpu" is nearest to "cpu".
_OTHER_NAMES = {"gpu": "cuda", "host": "cpu", "fake": "simulated", "sim": "simulated"}


_ALLOW_FILES = "close what the process has open, or allow it more open files (ulimit -n)"


_CUDA_SPEC = re.compile(r"cuda(?::([0-9]+))?")


def open_device(spec: str | Device = "auto", **options: Any) -> Device:
    """Open a device by its name.

    Example:
        >>> with open_device("simulated", limit_bytes=1 << 20) as device:
        ...     device.has_device_memory
        True

    Args:
        spec: ``cpu``; ``simulated``; ``cuda`` (the current one) or ``cuda:N``; ``auto`` for a GPU
            if one can be used, else ``cpu``, which the log then says once with the reason. A
            Device is returned unchanged. Every ``cpu`` is the same object.
        **options: Keyword arguments of the device; see ``SimulatedDevice``.

    Raises:
        UnknownDeviceError: If there is no such device.
        DeviceUnavailableError: If it cannot be used here, with the reason and what to do.
        DeviceOptionError: If it does not take such an option.
    """
    try:
        return _open(spec, options)
    except OSError as error:
        # A module or a library could not be loaded. For auto it is no sign of a missing GPU.
        if isinstance(error, SyncedMemoryError):
            raise
        where = f" at {error.filename}" if error.filename else ""
        raise DeviceUnavailableError(
            str(spec), reason=f"{error.strerror or error}{where}", cure=_ALLOW_FILES
        ) from error


def _open(spec: str | Device, options: Mapping[str, Any]) -> Device:
    if not isinstance(spec, str):
        if not isinstance(spec, Device):
            raise UnknownDeviceError(spec, valid=_VALID_SPECS)
        _refuse_options(spec.name, options)
        return spec
    if spec == "auto":
        return _open_auto(options)
    if spec == "cpu":
        _refuse_options(spec, options)
        return _cpu()
    if spec == "simulated":
        return _open_simulated(options)
    cuda = _CUDA_SPEC.fullmatch(spec)
    if cuda is not None:
        return _open_cuda(spec, None if cuda[1] is None else int(cuda[1]), options)
    raise UnknownDeviceError(spec, valid=_VALID_SPECS, nearest=_nearest(spec))


def _nearest(spec: str) -> str | None:
    word = spec.strip().lower().partition(":")[0]
    names = [name for name in _VALID_SPECS if ":" not in name]
    return _OTHER_NAMES.get(word) or nearest(word, names)


def _refuse_options(
    device: str, options: Mapping[str, object], *, valid: tuple[str, ...] = ()
) -> None:
    unknown = tuple(name for name in options if name not in valid)
    if unknown:
        raise DeviceOptionError(device, unknown=unknown, valid=valid)


@functools.cache
def _cpu() -> Device:
    from memory._device.cpu import CpuDevice  # noqa: PLC0415 - the implementation imports this module

    return CpuDevice()


def _open_simulated(options: Mapping[str, Any]) -> Device:
    from memory._simulated.device import SimulatedDevice  # noqa: PLC0415 - the implementation imports this module

    valid = tuple(inspect.signature(SimulatedDevice).parameters)
    _refuse_options("simulated", options, valid=valid)
    return SimulatedDevice(**options)


def _open_cuda(spec: str, ordinal: int | None, options: Mapping[str, Any]) -> Device:
    try:
        backend = importlib.import_module("memory._cuda.open")
    except ModuleNotFoundError as error:
        if error.name != "memory._cuda.open":
            raise
        raise DeviceUnavailableError(
            spec,
            reason="this version of ringfeed has no CUDA device",
            cure="use 'cpu' to train in host memory, or 'simulated' to try device code without one",
        ) from None
    return cast("Device", backend.open_cuda(ordinal, **options))


def _open_auto(options: Mapping[str, Any]) -> Device:
    try:
        return _open_cuda("cuda", None, options)
    except DeviceUnavailableError as error:
        _refuse_options("cpu", options)
        _say_once(error.reason)
        return _cpu()


@functools.cache
def _say_once(reason: str) -> None:
    _logger.info("device auto is cpu: %s", reason)
