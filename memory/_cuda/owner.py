"""A GPU's device object as its parts know it: whose buffers and streams they are."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from memory._cuda.stream import CudaStream
from memory._device.checks import describe_owner
from memory._device.device import DeviceBuffer
from memory._errors import ClosedError, DeviceMismatchError

if TYPE_CHECKING:
    from memory._cuda.context import CudaContext
    from memory._cuda.stream_state import StreamState


class CudaOwner(abc.ABC):
    """What kernels, sums and exports need of the ``CudaDevice`` that they belong to."""

    def __init__(self, context: CudaContext) -> None:
        self.context = context
        self._closed = False

    @property
    def name(self) -> str:
        """``cuda:N``."""
        return self.context.name

    @property
    def ordinal(self) -> int:
        """Number of the GPU, as CUDA counts them in this process."""
        return self.context.ordinal

    @abc.abstractmethod
    def stream_from(self, stream: object) -> CudaStream:
        """Adopt a stream of another library."""

    def own_stream(self, stream: object) -> CudaStream:
        """Return a stream of this device as what it is.

        Raises:
            DeviceMismatchError: If it is not this device's.
        """
        owner: object = self
        if not isinstance(stream, CudaStream) or stream.device is not owner:
            raise DeviceMismatchError("stream", expected=repr(self), found=describe_owner(stream))
        return stream

    def check_buffer(self, what: str, buffer: object) -> None:
        """Raise DeviceMismatchError for a buffer that is not this device's."""
        owner: object = self
        if not isinstance(buffer, DeviceBuffer) or buffer.device is not owner:
            raise DeviceMismatchError(what, expected=repr(self), found=describe_owner(buffer))

    def _check_open(self, operation: str) -> None:
        if self._closed:
            raise ClosedError(f"device {self.name!r}", operation=operation)

    def _state(self, stream: object, operation: str) -> StreamState:
        self._check_open(operation)
        return self.own_stream(stream).state
