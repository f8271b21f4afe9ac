"""A GPU's device object, as the parts that it is made of know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from memory._device.device import Device

if TYPE_CHECKING:
    from memory._cuda.context import CudaContext
    from memory._cuda.stream import CudaStream


class CudaOwner(Device, Protocol):
    """What kernels and exports need of the ``CudaDevice`` that they belong to."""

    context: CudaContext

    def stream_from(self, stream: object) -> CudaStream:
        """Adopt a stream of another library."""
        ...

    def own_stream(self, stream: object) -> CudaStream:
        """Return a stream of this device as what it is."""
        ...

    def check_buffer(self, what: str, buffer: object) -> None:
        """Raise DeviceMismatchError for a buffer that is not this device's."""
        ...
