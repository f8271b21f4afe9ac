"""Arrays of CuPy, PyTorch, JAX and others in a GPU's memory, as buffers of ours to copy into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from memory._cuda.runtime import cupy
from memory._device.device import DeviceBuffer
from memory._errors import BufferMismatchError, DeviceMismatchError

if TYPE_CHECKING:
    import numpy as np

    from memory._cuda.owner import CudaOwner
    from memory._device.device import Device


_GPU_KINDS: Final = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged


def is_on_a_gpu(found: Any) -> bool:
    """Return whether something says that it is an array in a GPU's memory."""
    if hasattr(found, "__cuda_array_interface__"):
        return True
    return hasattr(found, "__dlpack_device__") and int(found.__dlpack_device__()[0]) in _GPU_KINDS


def buffer_of(device: CudaOwner, found: Any) -> tuple[DeviceBuffer, np.dtype[Any], tuple[int, ...]]:
    """View another library's array as a buffer, which keeps it; with its dtype and shape.

    Args:
        device: Where it has to be.
        found: Offers ``__cuda_array_interface__`` or DLPack; C-contiguous, and to be written to.

    Raises:
        BufferMismatchError: It is read-only, or not C-contiguous.
        DeviceMismatchError: It is on another GPU.
    """
    interface = getattr(found, "__cuda_array_interface__", None)
    with device.context.call("import_array"):
        array = cupy.from_dlpack(found) if interface is None else cupy.asarray(found)
    what = f"{array.dtype} of shape {array.shape}"
    # CuPy copies its own arrays over from another GPU, unasked.
    is_copy = interface is not None and interface["data"][0] != array.data.ptr
    if is_copy or array.device.id != device.context.ordinal:
        raise DeviceMismatchError("array", expected=device.name, found=f"{what} on another GPU")
    if interface is not None and interface["data"][1]:
        raise BufferMismatchError("array", expected="one to be written to", found="a read-only one")
    if not array.flags.c_contiguous:
        raise BufferMismatchError(
            "array", expected="one that is C-contiguous", found=f"{what}, strides {array.strides}"
        )
    owner = (array, found)
    buffer = DeviceBuffer(array.data.ptr, array.nbytes, device=cast("Device", device), owner=owner)
    return buffer, array.dtype, array.shape
