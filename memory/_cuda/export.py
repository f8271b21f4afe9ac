"""How a GPU's memory is handed to CuPy, PyTorch, JAX and other libraries with their protocols.

Nothing is copied. Every array and capsule keeps the buffer, and with it the buffer's owner, a
feed's lease for one. Work is ordered by the buffer: when it was handed out, the calling thread's
current stream was put behind the work that fills it, so the current stream is the one to name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory._cuda import foreign_arrays
from memory._cuda.owner import CudaOwner
from memory._cuda.runtime import cupy
from memory._device.bfloat16 import BITS, is_bfloat16, named_bfloat16

if TYPE_CHECKING:
    import numpy as np

    from memory._device.device import DeviceBuffer

_KDL_CUDA: Final = 2  # DLPack's number of the kind of device


class CudaExports(CudaOwner):
    """The part of a device that hands its memory out; see ``DeviceExporter``."""

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's name of the GPU."""
        return (_KDL_CUDA, self.ordinal)

    def export_array(
        self, buffer: DeviceBuffer, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> Any:
        """View a buffer as a CuPy array, which keeps the buffer and its owner alive.

        Args:
            buffer: Of this device; at least as many bytes as the array needs.
            dtype: Of the array.
            shape: Of the array; C-contiguous.
        """
        self.check_buffer("buffer", buffer)
        memory = cupy.cuda.UnownedMemory(buffer.ptr, buffer.nbytes, buffer, self.ordinal)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))

    def export_interface(
        self, buffer: DeviceBuffer, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> dict[str, Any]:
        """Describe a buffer by version 3 of the CUDA array interface.

        It names the current stream, which the consumer has to wait for.
        """
        array = self.export_array(buffer, dtype, shape)
        with self.context.call("__cuda_array_interface__"):
            interface: dict[str, Any] = array.__cuda_array_interface__
        return interface

    def export_dlpack(
        self,
        buffer: DeviceBuffer,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        *,
        stream: Any,
        **wishes: Any,
    ) -> Any:
        """Export a buffer by DLPack; the consumer's stream is put behind the current one.

        Args:
            buffer: The memory.
            dtype: Of the tensor.
            shape: Of the tensor; C-contiguous.
            stream: The consumer's, as DLPack counts: None or 1 for the null stream, 2 for the
                thread's default stream, -1 for none: the consumer orders its work itself.
            **wishes: The consumer's other arguments of ``__dlpack__``.

        Raises:
            BufferError: If it wants the data elsewhere, or a copy.
        """
        self.check_buffer("buffer", buffer)
        if stream != -1:
            # It is on this stream that the consumer will work.
            theirs = self.stream_from(0 if stream is None else stream)
            with self.context.call("dlpack"):
                theirs.state.refuse_capture("dlpack")
            buffer.note_use(theirs)
        renamed = is_bfloat16(dtype)  # whose name only the later of CuPy's versions give
        array = self.export_array(buffer, BITS if renamed else dtype, shape)
        with self.context.call("dlpack"):
            # 0 is what PyTorch passes for the null stream, against the protocol: CuPy would warn.
            capsule = array.__dlpack__(stream=stream or None, **wishes)
        return named_bfloat16(capsule) if renamed else capsule

    def import_array(
        self, found: object
    ) -> tuple[DeviceBuffer, np.dtype[Any], tuple[int, ...]] | None:
        """View another library's array in this GPU's memory as a buffer, which keeps it.

        Returns:
            The buffer, dtype and shape; None if ``found`` is no array on a GPU.

        Raises:
            BufferMismatchError: It is read-only, or not C-contiguous.
            DeviceMismatchError: It is on another GPU.
        """
        self._check_open("import_array")
        return foreign_arrays.buffer_of(self, found) if foreign_arrays.is_on_a_gpu(found) else None
