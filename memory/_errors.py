"""The errors of devices, synced memory and blobs.

::

    SyncedMemoryError
    ├── UnknownDeviceError         (ValueError)           no device has that name
    ├── DeviceOptionError          (TypeError)            the device takes no such option
    ├── OptionValueError           (ValueError)           an option's value cannot be
    ├── DeviceUnavailableError     (RuntimeError)         the device exists in principle, not here
    ├── NoDeviceMemoryError        (RuntimeError)         the cpu device has no second memory
    ├── NotImplementedDeviceError  (NotImplementedError)  the device cannot do this, by design
    ├── DeviceMemoryError          (MemoryError)          the device's memory is used up
    ├── HostMemoryError            (MemoryError)          the host's memory is used up
    ├── DeviceError                (RuntimeError)         a copy or a computation failed
    ├── DeviceMismatchError        (ValueError)           a buffer or stream of another device
    ├── BufferMismatchError        (ValueError)           a buffer of the wrong size, kind or layout
    ├── ClosedError                (RuntimeError)         it was closed before
    ├── HeadError                  (RuntimeError)         not in this state of the head
    ├── DtypeError                 (TypeError)            no such dtype, or no such maths on it
    ├── MissingPackageError        (ImportError)          an optional package is not installed
    ├── ShapeError                 (ValueError)           dimensions that no blob can have
    │   └── ShapeMismatchError                            two shapes that ought to agree
    ├── AxisError                  (IndexError)           no such axis
    ├── OffsetError                (IndexError)           an index outside of the blob
    ├── NoDataError                (RuntimeError)         there is no memory to look at yet
    └── BlobProtoError             (ValueError)           a BlobProto that contradicts itself

Where Caffe prints a failed CHECK and aborts the process, one of these is raised and nothing has
changed. Each inherits the built-in that a caller would expect, says what was expected and what was
found, and carries the same facts as attributes.
"""

from __future__ import annotations

from typing import Any

from memory.wording import pip_install


class SyncedMemoryError(Exception):
    """Root of everything that this package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Constructors take keywords, which BaseException's own pickling would drop.
        return (_restore, (type(self), self.args, dict(self.__dict__)))


def _restore(
    kind: type[SyncedMemoryError], args: tuple[object, ...], state: dict[str, object]
) -> SyncedMemoryError:
    error = SyncedMemoryError.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class UnknownDeviceError(SyncedMemoryError, ValueError):
    """Raised for a name that no device has.

    Attributes:
        spec: What was asked for.
        valid: Every form of name there is.
        nearest: The one that was probably meant; None where none is near.
    """

    def __init__(self, spec: object, *, valid: tuple[str, ...], nearest: str | None = None) -> None:
        self.spec = spec
        self.valid = valid
        self.nearest = nearest
        hint = "" if nearest is None else f"; did you mean {nearest!r}?"
        super().__init__(
            f"there is no device {spec!r}: expected a Device or one of {', '.join(valid)}{hint}"
        )


class DeviceOptionError(SyncedMemoryError, TypeError):
    """Raised for an option that the device does not take.

    Attributes:
        device: Name of the device.
        unknown: The options that it does not take.
        valid: The options that it takes.
    """

    def __init__(self, device: str, *, unknown: tuple[str, ...], valid: tuple[str, ...]) -> None:
        self.device = device
        self.unknown = unknown
        self.valid = valid
        takes = ", ".join(valid) if valid else "none"
        super().__init__(
            f"device {device!r} does not take {', '.join(unknown)}: its options are: {takes}"
        )


class OptionValueError(SyncedMemoryError, ValueError):
    """Raised for the value of an option or argument that cannot be.

    Attributes:
        option: Name of the option.
        expected: What it may be.
        found: What it is.
    """

    def __init__(self, option: str, *, expected: str, found: object) -> None:
        self.option = option
        self.expected = expected
        self.found = found
        super().__init__(f"{option}: expected {expected}, found {found!r}")


class DeviceUnavailableError(SyncedMemoryError, RuntimeError):
    """Raised for a device that cannot be used on this machine or in this installation.

    Attributes:
        device: Name of the device.
        reason: What is missing.
        cure: What to do about it.
    """

    def __init__(self, device: str, *, reason: str, cure: str) -> None:
        self.device = device
        self.reason = reason
        self.cure = cure
        super().__init__(f"device {device!r} cannot be used: {reason}; {cure}")


class NoDeviceMemoryError(SyncedMemoryError, RuntimeError):
    """Raised by the cpu device for what needs a second memory, as Caffe's CPU_ONLY build does.

    Attributes:
        device: Name of the device.
        operation: What was asked of it.
    """

    def __init__(self, device: str, *, operation: str) -> None:
        self.device = device
        self.operation = operation
        super().__init__(
            f"{device} device has no second memory: {operation} needs one; use the host's side of "
            f"the data (cpu_data, numpy()), or open_device('cuda') where there is a GPU, or "
            f"open_device('simulated') to run device code without one"
        )


class NotImplementedDeviceError(SyncedMemoryError, NotImplementedError):
    """Raised for an operation that this kind of device does not offer.

    Attributes:
        device: Name of the device.
        operation: What was asked of it.
        missing: What would be needed, and what to use instead.
    """

    def __init__(self, device: str, *, operation: str, missing: str) -> None:
        self.device = device
        self.operation = operation
        self.missing = missing
        super().__init__(f"device {device!r} does not offer {operation}: {missing}")


class DeviceMemoryError(SyncedMemoryError, MemoryError):
    """Raised when a device's memory is used up.

    Attributes:
        device: Name of the device.
        requested_bytes: What was asked for.
        used_bytes: What was allocated at that time.
        limit_bytes: What the device has in all; None where it is not known.
    """

    def __init__(
        self, device: str, *, requested_bytes: int, used_bytes: int, limit_bytes: int | None
    ) -> None:
        self.device = device
        self.requested_bytes = requested_bytes
        self.used_bytes = used_bytes
        self.limit_bytes = limit_bytes
        limit = "an unknown number of" if limit_bytes is None else str(limit_bytes)
        super().__init__(
            f"device {device!r} is out of memory: {requested_bytes} bytes were asked for, "
            f"{used_bytes} bytes are used of {limit} bytes; drop buffers that are no longer "
            f"needed, or use smaller or fewer batches"
        )


class HostMemoryError(SyncedMemoryError, MemoryError):
    """Raised when the host has no memory, or no more memory that can be pinned, for a buffer.

    Attributes:
        device: Name of the device whose host buffer was asked for.
        requested_bytes: What was asked for.
        used_bytes: What this device's host buffers took at that time.
    """

    def __init__(
        self,
        device: str,
        *,
        requested_bytes: int,
        used_bytes: int,
        cure: str = "drop buffers that are no longer needed, or use smaller or fewer batches",
    ) -> None:
        self.device = device
        self.requested_bytes = requested_bytes
        self.used_bytes = used_bytes
        super().__init__(
            f"the host is out of memory: {requested_bytes} bytes were asked for, {used_bytes} "
            f"bytes are used by the host buffers of device {device!r}; {cure}"
        )


class DeviceError(SyncedMemoryError, RuntimeError):
    """Raised where the failure of a copy or computation shows; its cause is what happened.

    Work on a stream is asynchronous: the failure shows where its event or its stream is waited for.

    Attributes:
        device: Name of the device.
        operation: What failed, such as ``copy_to_device of 64 bytes``.
        reason: Why, in words.
    """

    def __init__(self, device: str, *, operation: str, reason: str) -> None:
        self.device = device
        self.operation = operation
        self.reason = reason
        super().__init__(f"device {device!r}: {operation} failed: {reason}")


class DeviceMismatchError(SyncedMemoryError, ValueError):
    """Raised for a buffer or a stream that belongs to another device than the one asked.

    Attributes:
        what: The argument, such as ``dst`` or ``stream``.
        expected: Name of the device that was asked.
        found: Name of the device, or the kind of object, that it belongs to.
    """

    def __init__(self, what: str, *, expected: str, found: str) -> None:
        self.what = what
        self.expected = expected
        self.found = found
        super().__init__(
            f"{what} belongs to {found}, not to this device {expected!r}: "
            f"allocate it there, or copy through host memory"
        )


class BufferMismatchError(SyncedMemoryError, ValueError):
    """Raised for a buffer of the wrong size, dtype, layout or kind.

    Attributes:
        what: The argument, such as ``src``.
        expected: What it should have been.
        found: What it is.
    """

    def __init__(self, what: str, *, expected: str, found: str, cure: str = "") -> None:
        self.what = what
        self.expected = expected
        self.found = found
        hint = f"; {cure}" if cure else ""
        super().__init__(f"{what}: expected {expected}, found {found}{hint}")


class ClosedError(SyncedMemoryError, RuntimeError):
    """Raised for the use of something that was closed.

    Attributes:
        what: What was closed.
        operation: What was asked of it.
    """

    def __init__(self, what: str, *, operation: str) -> None:
        self.what = what
        self.operation = operation
        super().__init__(f"{what} is closed: {operation} is no longer possible")


class HeadError(SyncedMemoryError, RuntimeError):
    """Raised for an operation that the state of the head does not allow.

    Attributes:
        operation: What was asked, such as ``async_gpu_push``.
        expected: The states, or the state, in which it is allowed.
        found: The state of the head.
    """

    def __init__(self, operation: str, *, expected: str, found: str, cure: str = "") -> None:
        self.operation = operation
        self.expected = expected
        self.found = found
        hint = f"; {cure}" if cure else ""
        super().__init__(f"{operation}: expected head {expected}, found {found}{hint}")


class DtypeError(SyncedMemoryError, TypeError):
    """Raised for a dtype that cannot be stored, or on which there is no such maths.

    Attributes:
        operation: What was asked, such as ``Blob`` or ``asum_data``.
        dtype: The dtype found, as text.
        valid: The dtypes for which it is possible.
    """

    def __init__(self, operation: str, *, dtype: str, valid: tuple[str, ...]) -> None:
        self.operation = operation
        self.dtype = dtype
        self.valid = valid
        super().__init__(f"{operation}: expected dtype {' or '.join(valid)}, found {dtype}")


class MissingPackageError(SyncedMemoryError, ImportError):
    """Raised for what needs an optional package that is not installed.

    Attributes:
        what: What needs it.
        package: Its name.
        extra: What to install of this library to have it.
    """

    def __init__(self, what: str, *, package: str, extra: str) -> None:
        self.what = what
        self.package = package
        self.extra = extra
        super().__init__(
            f"{what} needs the package {package}, which is not installed: {pip_install(extra)}"
        )


class ShapeError(SyncedMemoryError, ValueError):
    """Raised for dimensions that no blob can have: too many, negative, or too large together.

    Attributes:
        shape: The dimensions that were asked for, as they were given.
    """

    def __init__(self, message: str, *, shape: tuple[object, ...] = ()) -> None:
        self.shape = shape
        super().__init__(message)


class ShapeMismatchError(ShapeError):
    """Raised where two shapes or element counts ought to agree and do not.

    Attributes:
        operation: What was asked, such as ``copy_from``.
        expected: The shape needed.
        found: The shape given.
    """

    def __init__(
        self,
        operation: str,
        *,
        expected: tuple[int, ...],
        found: tuple[int, ...],
        cure: str = "",
    ) -> None:
        self.operation = operation
        self.expected = expected
        self.found = found
        hint = f"; {cure}" if cure else ""
        super().__init__(
            f"{operation}: expected shape {expected}, found {found}{hint}", shape=found
        )


class AxisError(SyncedMemoryError, IndexError):
    """Raised for an axis that the blob does not have.

    Attributes:
        axis: The axis asked for.
        shape: The blob's shape.
    """

    def __init__(self, message: str, *, axis: int, shape: tuple[int, ...]) -> None:
        self.axis = axis
        self.shape = shape
        super().__init__(message)


class OffsetError(SyncedMemoryError, IndexError):
    """Raised for an index outside of a blob, or one with more numbers than the blob has axes.

    Attributes:
        index: The index asked for.
        shape: The blob's shape.
    """

    def __init__(self, message: str, *, index: tuple[int, ...], shape: tuple[int, ...]) -> None:
        self.index = index
        self.shape = shape
        super().__init__(message)


class NoDataError(SyncedMemoryError, RuntimeError):
    """Raised where there is no memory to look at: by a blob that was never given a shape.

    Attributes:
        operation: What was asked, such as ``cpu_data``.
        reason: Why there is none.
    """

    def __init__(
        self, operation: str, *, reason: str = "the blob has no data yet: reshape it first"
    ) -> None:
        self.operation = operation
        self.reason = reason
        super().__init__(f"{operation}: {reason}")


class BlobProtoError(SyncedMemoryError, ValueError):
    """Raised for a BlobProto whose values do not fit its shape, or whose shape is no blob's.

    Attributes:
        field: The field at fault, such as ``double_data``; empty for the message as a whole.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        self.field = field
        super().__init__(message)
