"""Open a device by its name.

Each kind of device is registered under its name with a function that opens one. That function
imports what it opens, so that a device that is not used costs nothing.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from memory._device.device import Device
from memory._errors import (
    DeviceOptionError,
    DeviceUnavailableError,
    SyncedMemoryError,
    UnknownDeviceError,
)
from memory.wording import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Opener: TypeAlias = Callable[[int | None, Mapping[str, Any]], Device]

_logger = logging.getLogger("memory")

_ALLOW_FILES: Final = "close what the process has open, or allow it more open files (ulimit -n)"


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is known of a registered kind of device."""

    open: Opener
    is_numbered: bool
    other_names: tuple[str, ...]


_kinds: Final[dict[str, _Kind]] = {}


def register_device(
    name: str, opener: Opener, *, is_numbered: bool = False, other_names: tuple[str, ...] = ()
) -> None:
    """Have ``open_device`` know a kind of device; see docs/design/0017-adding-a-device.md.

    Args:
        name: Its name, in lower case.
        opener: Opens one. Called with the number behind the colon, None if there is none, and the
            options, of which it refuses those that it does not take (``refuse_options``).
        is_numbered: Whether there may be several, as ``cuda:0`` and ``cuda:1``.
        other_names: Words that people use for it, for "did you mean".
    """
    _kinds[name] = _Kind(opener, is_numbered, other_names)


def refuse_options(
    device: str, options: Mapping[str, object], *, valid: tuple[str, ...] = ()
) -> None:
    """Refuse options that a device does not take.

    Raises:
        DeviceOptionError: If there are any.
    """
    unknown = tuple(name for name in options if name not in valid)
    if unknown:
        raise DeviceOptionError(device, unknown=unknown, valid=valid)


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
            raise UnknownDeviceError(spec, valid=_valid_specs())
        refuse_options(spec.name, options)
        return spec
    if spec == "auto":
        return _open_auto(options)
    name, colon, digits = spec.partition(":")
    kind = _kinds.get(name)
    # isdecimal() alone would take digits of other scripts too.
    is_number = digits.isascii() and digits.isdecimal()
    if kind is None or (colon and not (kind.is_numbered and is_number)):
        raise UnknownDeviceError(spec, valid=_valid_specs(), nearest=_nearest(spec))
    return kind.open(int(digits) if colon else None, options)


def _valid_specs() -> tuple[str, ...]:
    numbered = (f"{name}:N" for name, kind in _kinds.items() if kind.is_numbered)
    return ("auto", *_kinds, *numbered)


def _nearest(spec: str) -> str | None:
    word = spec.strip().lower().partition(":")[0]
    # First of all the words people use: difflib alone takes "gpu" for "cpu".
    for name, kind in _kinds.items():
        if word in kind.other_names:
            return name
    return nearest(word, ("auto", *_kinds))


@functools.cache
def _cpu() -> Device:
    from memory._device.cpu import CpuDevice  # noqa: PLC0415 - imported when it is used

    return CpuDevice()


def _open_cpu(_: int | None, options: Mapping[str, Any]) -> Device:
    refuse_options("cpu", options)
    return _cpu()


def _open_simulated(_: int | None, options: Mapping[str, Any]) -> Device:
    from memory._simulated.device import SimulatedDevice  # noqa: PLC0415 - imported when it is used

    refuse_options("simulated", options, valid=tuple(inspect.signature(SimulatedDevice).parameters))
    return SimulatedDevice(**options)


def _open_cuda(ordinal: int | None, options: Mapping[str, Any]) -> Device:
    try:
        backend = importlib.import_module("memory._cuda.open")
    except ModuleNotFoundError as error:
        if error.name != "memory._cuda.open":
            raise
        raise DeviceUnavailableError(
            "cuda" if ordinal is None else f"cuda:{ordinal}",
            reason="this version of ringfeed has no CUDA device",
            cure="use 'cpu' to train in host memory, or 'simulated' to try device code without one",
        ) from None
    return cast("Device", backend.open_cuda(ordinal, **options))


def _open_auto(options: Mapping[str, Any]) -> Device:
    try:
        return _kinds["cuda"].open(None, options)
    except DeviceUnavailableError as error:
        refuse_options("cpu", options)
        _log_once(error.reason)
        return _cpu()


@functools.cache
def _log_once(reason: str) -> None:
    _logger.info("device auto is cpu: %s", reason)


register_device("cpu", _open_cpu, other_names=("host",))
register_device("simulated", _open_simulated, other_names=("fake", "sim"))
register_device("cuda", _open_cuda, is_numbered=True, other_names=("gpu",))
