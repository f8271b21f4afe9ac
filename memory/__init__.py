"""Where bytes live: on the host, on a device, and when they are copied between the two.

::

    open_device()            opens a Device: "cpu", "simulated", "cuda:0", or whichever there is
    SyncedMemory             bytes on both sides, copied only when needed (Caffe's SyncedMemory)
    Blob                     an array with its gradient over two of those (Caffe's Blob)
    bfloat16()               the dtype of that name
    memory.testing           holds, peeks, failing devices and other tools for tests

The root of all errors is SyncedMemoryError. The package logs to the logger ``memory``.
"""

from __future__ import annotations

import logging

from memory._blob.blob import Blob as Blob
from memory._device.accounting import DeviceMemory as DeviceMemory
from memory._device.bfloat16 import bfloat16 as bfloat16
from memory._device.cpu import CpuDevice as CpuDevice
from memory._device.device import Device as Device
from memory._device.device import DeviceBuffer as DeviceBuffer
from memory._device.device import Kernel as Kernel
from memory._device.device import Stream as Stream
from memory._device.device import UseObserver as UseObserver
from memory._device.event import Event as Event
from memory._device.host_memory import HostBuffer as HostBuffer
from memory._errors import AxisError as AxisError
from memory._errors import BlobProtoError as BlobProtoError
from memory._errors import BufferMismatchError as BufferMismatchError
from memory._errors import ClosedError as ClosedError
from memory._errors import DeviceError as DeviceError
from memory._errors import DeviceMemoryError as DeviceMemoryError
from memory._errors import DeviceMismatchError as DeviceMismatchError
from memory._errors import DeviceOptionError as DeviceOptionError
from memory._errors import DeviceUnavailableError as DeviceUnavailableError
from memory._errors import DtypeError as DtypeError
from memory._errors import HeadError as HeadError
from memory._errors import HostMemoryError as HostMemoryError
from memory._errors import MissingPackageError as MissingPackageError
from memory._errors import NoDataError as NoDataError
from memory._errors import NoDeviceMemoryError as NoDeviceMemoryError
from memory._errors import NotImplementedDeviceError as NotImplementedDeviceError
from memory._errors import OffsetError as OffsetError
from memory._errors import OptionValueError as OptionValueError
from memory._errors import ShapeError as ShapeError
from memory._errors import ShapeMismatchError as ShapeMismatchError
from memory._errors import SyncedMemoryError as SyncedMemoryError
from memory._errors import UnknownDeviceError as UnknownDeviceError
from memory._open_device import open_device as open_device
from memory._shape import ShapeLike as ShapeLike
from memory._simulated.device import SimulatedDevice as SimulatedDevice
from memory._synced.head_transitions import Head as Head
from memory._synced.memory import SyncedMemory as SyncedMemory

__all__ = [
    "AxisError",
    "Blob",
    "BlobProtoError",
    "BufferMismatchError",
    "ClosedError",
    "CpuDevice",
    "Device",
    "DeviceBuffer",
    "DeviceError",
    "DeviceMemory",
    "DeviceMemoryError",
    "DeviceMismatchError",
    "DeviceOptionError",
    "DeviceUnavailableError",
    "DtypeError",
    "Event",
    "Head",
    "HeadError",
    "HostBuffer",
    "HostMemoryError",
    "Kernel",
    "MissingPackageError",
    "NoDataError",
    "NoDeviceMemoryError",
    "NotImplementedDeviceError",
    "OffsetError",
    "OptionValueError",
    "ShapeError",
    "ShapeLike",
    "ShapeMismatchError",
    "SimulatedDevice",
    "Stream",
    "SyncedMemory",
    "SyncedMemoryError",
    "UnknownDeviceError",
    "UseObserver",
    "bfloat16",
    "open_device",
]

# Tracebacks and reprs name things as people import them.
for _name in __all__:
    if _name != "ShapeLike":  # a type alias, which belongs to no module
        globals()[_name].__module__ = __name__
del _name

logging.getLogger(__name__).addHandler(logging.NullHandler())
