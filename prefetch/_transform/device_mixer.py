"""Mixes batches on the device, behind the transformation; the counterpart of `DeviceTransform`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory import NotImplementedDeviceError
from prefetch._kernels import device_mixing

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from memory import Device, DeviceBuffer, Kernel, Stream
    from prefetch._plan.mixing import Mix
    from prefetch._transform.options import Transform


class DeviceMixer:
    """Mixes batches on a device; shared between threads. Its kernels are compiled when it is made.

    Args:
        transform: Has a mixing.
        device: Runs it.

    Raises:
        NotImplementedDeviceError: The device runs no kernels, or none can be compiled here.
        DeviceError: The device fails.
    """

    def __init__(self, transform: Transform, device: Device) -> None:
        mixing, dtype = transform.mixing, transform.dtype
        assert mixing is not None
        self._row_dtype = transform.row_dtype
        self._channels_last = transform.layout == "nhwc"
        self._launch: Callable[..., None] | None = getattr(device, "launch", None)
        self._mix: Kernel | None = None
        self._cut: Kernel | None = None
        try:
            if mixing.mixup is not None:
                name = device_mixing.mix_name(dtype)
                self._mix = device.compile(device_mixing.SOURCE, name)
            if mixing.cutmix is not None:
                name = device_mixing.cut_name(dtype)
                self._cut = device.compile(device_mixing.SOURCE, name)
        except NotImplementedDeviceError:
            if self._launch is None:
                raise

    def launch(
        self, out: DeviceBuffer, shape: tuple[int, ...], mix: Mix, *, stream: Stream
    ) -> None:
        """Queue the mixing of a batch on a stream, in place; returns before it has run.

        Args:
            out: The batch; of exactly its size, and kept alive until it is mixed.
            shape: The batch's.
            mix: How.
            stream: Runs it.

        Raises:
            DeviceError: The device refuses.
        """
        channels_last = self._channels_last
        kernel = self._mix if mix.box is None else self._cut
        if kernel is not None:
            task = device_mixing.launch_of(mix, shape, channels_last=channels_last)
            if task is not None:
                grid, block, numbers = task
                kernel(grid, block, (out, *numbers), stream=stream)
            return
        dtype = self._row_dtype

        def twin(out_bytes: NDArray[np.uint8]) -> None:
            rows: NDArray[Any] = out_bytes.view(dtype).reshape(shape)
            device_mixing.mix_staged(rows, mix, channels_last=channels_last)

        assert self._launch is not None
        self._launch(twin, out, stream=stream)
