"""The transformation on the device: the kernel and what it needs.

A device that compiles CUDA C++ runs the kernel. One that has ``launch`` for Python functions on its
streams instead, as the simulated device does, runs the kernel's NumPy twin there: just as
asynchronously, from device memory to device memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from memory import NotImplementedDeviceError
from prefetch._kernels import device_arithmetic, device_boxes, device_kernel
from prefetch._kernels.box_places import MOST_BYTES, bytes_of_image, bytes_of_window
from prefetch._kernels.device_kernel import StagedBatch
from prefetch._transform.device_mixer import DeviceMixer

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from memory import Device, DeviceBuffer, Kernel, Stream
    from prefetch._transform.options import Transform
    from prefetch._transform.record_filler import StoredImage


class DeviceTransform:
    """A transformation on a device; shared between threads.

    The kernel is compiled, and the means and scales are on the device, when this is made.

    Args:
        transform: What is done to each record.
        device: Does it.
        resizes: Whether the device resizes images too, where that is all that makes pixels of
            other ones, and erases; otherwise the host resizes, and stages windows.

    Attributes:
        transform: As given.
        mixer: Mixes its batches; None where none are mixed.
        holds_boxes: Whether records are staged as boxes that the device resizes or erases from.

    Raises:
        NotImplementedDeviceError: The device runs no kernels, or none can be compiled here.
        NoDeviceMemoryError: The device has no memory of its own.
        DeviceError: The device fails.
        DeviceMemoryError: There is no room for the mean image.
    """

    def __init__(self, transform: Transform, device: Device, *, resizes: bool = False) -> None:
        self.transform = transform
        recipe = transform.recipe
        only_resized = recipe.resizing is not None and not recipe.pad and recipe.jitter is None
        # A mean image, which the configuration does not allow with either, has no place in a box.
        erases = recipe.erasing is not None and recipe.mean_image is None
        self.holds_boxes = resizes and (only_resized or erases)
        # Bytes of a place that holds a box; those of the feed's first image.
        self._box_bytes = 0
        # All else that makes pixels of other pixels is the host's.
        self._recipe = (
            recipe if self.holds_boxes else recipe._replace(resizing=None, pad=0, jitter=None)
        )
        self._kernel: Kernel | None = None
        self._constants: DeviceBuffer | None = None
        self._launch: Callable[..., None] | None = getattr(device, "launch", None)
        program = device_boxes if self.holds_boxes else device_kernel
        try:
            self._kernel = device.compile(program.SOURCE, program.kernel_name(transform.dtype))
        except NotImplementedDeviceError:
            if self._launch is None:
                raise
        else:
            self._constants = _on_device(device, device_arithmetic.constants(self._recipe))
        self.mixer = None if transform.mixing is None else DeviceMixer(transform, device)

    def choose_place(self, image: StoredImage) -> tuple[int, int, int]:
        """Choose whether a batch that begins with this image is staged whole or as windows.

        Returns:
            (channels, height, width) of each record's place in the staged batch; those of the
            image where it is staged as boxes.
        """
        channels, height, width, encoded = image
        recipe = self.transform.recipe
        whole, window = (channels, height, width), (channels, *recipe.window_size(height, width))
        if self.holds_boxes:
            return whole
        if recipe.makes_pixels:
            return window
        # A mean image is subtracted by the pixels' places in the whole record.
        if not recipe.crop_height or recipe.mean_image is not None:
            return whole
        # A decoded image is in the cache when it is cut, and later ones may have any size.
        if encoded:
            return window
        # The host merely copies whole images, unless they are more bytes than their windows become.
        window_bytes = math.prod(window[1:]) * self.transform.dtype.itemsize
        return window if height * width > window_bytes else whole

    def holds_windows(self, place: tuple[int, int, int]) -> bool:
        """Return whether places of this size hold windows, cut by the host."""
        recipe = self.transform.recipe
        if recipe.makes_pixels:
            return True
        crop = recipe.crop_height, recipe.crop_width
        return recipe.crop_height > 0 and recipe.mean_image is None and place[1:] == crop

    def staged_batch(self, num: int, place: tuple[int, int, int]) -> StagedBatch:
        """Return how a batch of places of some size, from `choose_place`, lies in memory."""
        if not self.holds_boxes:
            return StagedBatch(num, *place)
        recipe = self._recipe
        window_bytes = bytes_of_window((place[0], *recipe.window_size(*place[1:])))
        # Of the first image asked for, and not of each batch's: one that is far larger than the
        # others would take as much memory for all of them.
        if not self._box_bytes:
            self._box_bytes = min(bytes_of_image(place, recipe), MOST_BYTES - 1 & -16)
        return StagedBatch(num, *place, box_bytes=max(self._box_bytes, window_bytes))

    def sample_shape(self, place: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return the shape of the sample that is made from a place of this size."""
        return self._recipe.sample_shape(*place)

    def launch(
        self, staged: DeviceBuffer, out: DeviceBuffer, batch: StagedBatch, *, stream: Stream
    ) -> None:
        """Queue the transformation of a staged batch on a stream; returns before it has run.

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
            if self.holds_boxes:
                numbers = device_boxes.scalars(batch, self._recipe)
                where = batch.box_bytes
            else:
                numbers = device_kernel.scalars(batch, self._recipe)
                where = batch.pixels_at
            pointers = (staged, np.uint64(where), out, self._constants)
            self._kernel(blocks, threads, (*pointers, *numbers), stream=stream)
            return
        recipe, dtype = self._recipe, self.transform.row_dtype
        program = device_boxes if self.holds_boxes else device_kernel
        shape = (batch.num, *self.sample_shape(batch.image_shape))

        def twin(staged_bytes: NDArray[np.uint8], out_bytes: NDArray[np.uint8]) -> None:
            rows: NDArray[Any] = out_bytes.view(dtype).reshape(shape)
            program.transform_staged(staged_bytes, rows, batch, recipe)

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
