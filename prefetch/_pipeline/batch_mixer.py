"""Mixes the batches that a reader has completed with themselves, and fills their other fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefetch._kernels.mixing import mix_batch
from prefetch._plan.mixing import draw_mix
from prefetch._process.nvtx import ranged
from prefetch._transform.staged_rows import StagedRows

if TYPE_CHECKING:
    from prefetch._pipeline.components import Components
    from prefetch._plan.mixing import Mix
    from prefetch._plan.order import PlannedBatch
    from prefetch._ring.filling import Filling


class BatchMixer:
    """Does mixup or cutmix, and makes labels of the form that is asked for. Thread-safe.

    A sample's partner is that at the same place from the end of its batch, as it is served: where a
    bad record was replaced, the substitute.

    Args:
        components: The order, the transformation and the form of the labels.
    """

    def __init__(self, components: Components) -> None:
        self._order = components.order
        self._mixing = components.transform.mixing
        self._channels_last = components.transform.layout == "nhwc"
        self._device_transform = components.device_transform
        self._form = components.label_form

    @ranged("mix")
    def mix(self, filling: Filling) -> None:
        """Mix a batch that is filled and not pushed yet."""
        assert filling.planned is not None
        assert filling.contents is not None
        data, labels = filling.contents
        mix = None
        if self._mixing is not None:
            mix = self._draw(filling.planned, self._sample_shape(data))
            if isinstance(data, StagedRows):
                data.mix = mix
            else:
                mix_batch(data, mix, channels_last=self._channels_last)
        if self._form is not None:
            arrays = filling.slot.memory.field_arrays(self._form.fields, rows=filling.size)
            filling.add_fields(self._form.fill(arrays, labels, None if mix is None else mix.lam))

    def _sample_shape(self, data: Any) -> tuple[int, ...]:
        if isinstance(data, StagedRows):
            assert self._device_transform is not None
            return self._device_transform.sample_shape(data.place)
        shape: tuple[int, ...] = data.shape[1:]
        return shape

    def _draw(self, planned: PlannedBatch, sample: tuple[int, ...]) -> Mix:
        assert self._mixing is not None
        height, width = sample[:2] if self._channels_last else sample[1:]
        return draw_mix(
            self._mixing,
            seed=self._order.seed,
            epoch=planned.epoch,
            number=self._order.global_number(planned),
            height=height,
            width=width,
        )
