"""Calls ``per_batch``, people's own function, with each batch that a reader has completed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memory import NotImplementedDeviceError
from prefetch._process.nvtx import ranged
from prefetch._ring.push_block import queue_work
from prefetch._transform.own_function import describe_array

if TYPE_CHECKING:
    from memory import Stream
    from prefetch._pipeline.components import Components
    from prefetch._plan.order import PlannedBatch
    from prefetch._ring.filling import Filling
    from prefetch._transform.own_function import OwnFunction


class BatchFunction:
    """Calls ``per_batch`` for one reader thread.

    On the host, and on a device that has no arrays of its own, it gets NumPy arrays; on a GPU CuPy
    arrays, with the reader's stream for the current one.

    Args:
        function: The function.
        components: The order and the device.
    """

    def __init__(self, function: OwnFunction, components: Components) -> None:
        self._call = function.caller()
        self._order = components.order
        self._device = components.device

    @ranged("per_batch")
    def apply(self, filling: Filling, stream: Stream | None) -> None:
        """Call it with a batch that is filled and, where the device has memory, pushed.

        Args:
            filling: The batch.
            stream: The one that it was pushed on; None where the device has no memory.

        Raises:
            ValueError: It has returned something else than arrays like those that it was given.
            Exception: What it raises.
        """
        planned, contents = filling.planned, filling.contents
        assert planned is not None
        assert contents is not None
        if filling.more:
            contents = (*contents, *filling.more.values())
        if stream is None:
            self._run(planned, *contents)
            return
        events = filling.slot.events
        with self._device.use_stream(stream):
            try:
                arrays = [None if blob is None else blob.cupy() for blob in contents]
            except NotImplementedDeviceError:
                self._run(planned, *[None if blob is None else blob.numpy() for blob in contents])
                for blob in contents:
                    if blob is not None:
                        blob.async_gpu_push(stream)
                        events.append(blob.push_event)
                return
            filled = queue_work(lambda: self._run(planned, *arrays), stream, events)
            for blob in contents:
                if blob is not None:
                    # Whoever asks for the bytes, on the host too, is put behind the function.
                    blob.set_gpu_data(blob.mutable_gpu_data(), filled=filled)
        # The event stands for the reader's stream, on which later batches follow.
        filling.slot.streams.clear()

    def _run(self, planned: PlannedBatch, images: Any, *fields: Any) -> None:
        """Call it, and store what it returns where that is not what it was given.

        Labels are one array, or with labels pairs a tuple of three.
        """
        labels = fields if len(fields) > 1 else fields[0]
        number = self._order.global_number(planned)
        seed, epoch = self._order.seed, planned.epoch
        try:
            result = self._call(images, labels, seed=seed, epoch=epoch, number=number)
        except (StopIteration, StopAsyncIteration) as error:
            # Out of next() it would end the loop without a word.
            raise RuntimeError(f"per_batch raised {type(error).__name__}") from error
        if result is None:
            return
        pair = result if isinstance(result, tuple) and len(result) == 2 else (result, labels)
        for name, new, target in zip(("images", "labels"), pair, (images, labels), strict=True):
            if new is not target:
                _store(name, new, target)


def _store(name: str, new: Any, target: Any) -> None:
    """Copy what the function has returned to where it belongs."""
    if isinstance(target, tuple):
        if not isinstance(new, tuple) or len(new) != len(target):
            raise ValueError(
                f"per_batch returned {name} of another kind: expected a tuple of {len(target)}, "
                "as with labels pairs it was given label, label2 and lam"
            )
        for one, place in zip(new, target, strict=True):
            if one is not place:
                _store(name, one, place)
        return
    if isinstance(target, np.ndarray) and new is not None:
        new = np.asarray(new)  # tensors on the host too
    if target is None or describe_array(new) != describe_array(target):
        expected = "none, since labels is false" if target is None else describe_array(target)
        raise ValueError(
            f"per_batch returned {name} of another kind: expected {expected}, found "
            f"{describe_array(new)}; return arrays of the type and shape that were given, or "
            f"change those in place and return None"
        )
    target[...] = new
