"""The transformation on the device: whoever runs its kernel, with what the kernel needs.

A device that compiles CUDA C++ runs the kernel. One that has ``launch`` for Python functions on its
streams instead, as the simulated device does, runs the kernel's NumPy twin there: just as
asynchronously, from device memory to device memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memory import NotImplementedDeviceError
from prefetch._kernels import device_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from memory import Device, DeviceBuffer, Kernel, Stream
    from prefetch._kernels.device_kernel import StagedBatch
    from prefetch._transform.options import Transform
    from prefetch._transform.record_filler import StoredImage


class DeviceTransform:
    """A transformation that a device does; shared between threads.

    The kernel is compiled, and the means and scales are on the device, when this is made.

    Args:
        transform: What to do.
        device: Who does it.

    Attributes:
        transform: What to do.

    Raises:
        NotImplementedDeviceError: The device runs no kernels, or none can be compiled here.
        NoDeviceMemoryError: The device has no memory of its own.
        DeviceError: The device fails.
        DeviceMemoryError: There is no room for the mean image.
    """

    def __init__(self, transform: Transform, device: Device) -> None:
        self.transform = transform
        self._recipe = transform.recipe
        self._kernel: Kernel | None = None
        self._constants: DeviceBuffer | None = None
        self._launch: Callable[..., None] | None = getattr(device, "launch", None)
        name = device_kernel.kernel_name(transform.dtype)
        try:
            self._kernel = device.compile(device_kernel.SOURCE, name)
        except NotImplementedDeviceError:
            if self._launch is None:
                raise
        else:
            self._constants = _on_device(device, device_kernel.constants(self._recipe))

    def place(self, image: StoredImage) -> tuple[int, int, int]:
        """Return the size of each record's place in a batch that begins with this image.

        Whole images are staged, which spares the host all but a copy. Only the windows are where an
        image has to be decoded, so that it is in the cache when it is cut and later ones may have
        any size, and where a whole image is more to copy than what becomes of its window. With a
        mean image all records are of its size, and it is subtracted by their place in it: whole.

        Returns:
            (channels, height, width).
        """
        channels, height, width, encoded = image
        crop = self.transform.crop_size
        if crop and self.transform.mean_image is None:
            window_bytes = crop * crop * self.transform.dtype.itemsize
            if encoded or height * width > window_bytes:
                return channels, crop, crop
        return channels, height, width

    def holds_windows(self, place: tuple[int, int, int]) -> bool:
        """Return whether records' places of this size have windows, cut by the host."""
        crop = self.transform.crop_size
        return bool(crop) and self.transform.mean_image is None and place[1:] == (crop, crop)

    def sample_shape(self, place: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return the shape of the sample that is made from a place of this size."""
        return self._recipe.sample_shape(*place)

    def launch(
        self, staged: DeviceBuffer, out: DeviceBuffer, batch: StagedBatch, *, stream: Stream
    ) -> None:
        """Give a stream the transformation of a staged batch; returns before it has run.

        Args:
            staged: The staged batch; kept alive until the kernel has run, as ``out`` is.
            out: Where the batch goes; of exactly its size.
            batch: How the staged batch lies there.
            stream: Runs it.

        Raises:
            DeviceError: The device refuses.
        """
        if self._kernel is not None:
            blocks, threads = device_kernel.grid(batch, self._recipe)
            numbers = device_kernel.scalars(batch, self._recipe)
            where = (staged, np.uint64(batch.pixels_at), out, self._constants)
            self._kernel(blocks, threads, (*where, *numbers), stream=stream)
            return
        recipe, dtype = self._recipe, self.transform.row_dtype
        shape = (batch.num, *self.sample_shape(batch.image_shape))

        def twin(staged_bytes: NDArray[np.uint8], out_bytes: NDArray[np.uint8]) -> None:
            rows: NDArray[Any] = out_bytes.view(dtype).reshape(shape)
            device_kernel.transform_staged(staged_bytes, rows, batch, recipe)

        assert self._launch is not None
        self._launch(twin, staged, out, stream=stream)


def _on_device(device: Device, values: NDArray[np.float32]) -> DeviceBuffer:
    """Copy values to the device; blocks until they are there."""
    host = device.alloc_host(values.nbytes)
    host.array[:] = values.view(np.uint8)
    buffer = device.alloc_device(values.nbytes)
    with device.make_stream("constants") as stream:
        device.copy_to_device(buffer, host.array, stream=stream)
        stream.synchronize()
    host.close()
    return buffer
