"""The transformation by way of ``per_record``, people's own function.

Such a feed leaves the fused kernel: uint8 images are made first, the function is called with each,
and what is left of the transformation is done to what it returns.
"""

from __future__ import annotations

import dataclasses
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np

from prefetch._kernels import reference, selection
from prefetch._plan.random_words import NUM_WORDS
from prefetch._record.faults import BadRecordError, Fault, Reason
from prefetch._transform.host import RecordTransformer
from prefetch._transform.own_function import (
    describe_array,
    without_own_frames,
    write_out_traceback,
)
from prefetch._transform.record_filler import StoredImage, never_cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from prefetch._kernels.contract import Kernels
    from prefetch._source.mapped_records import MappedRecords
    from prefetch._transform.options import Transform


class FunctionTransformer:
    """Turns records into rows of a batch by way of ``per_record``; see `RecordFiller`.

    Args:
        transform: What to do; has a ``per_record``.
        kernels: As for `RecordTransformer`.
        check_cancelled: As for `RecordTransformer`; also called before each call of the function.
    """

    def __init__(
        self,
        transform: Transform,
        *,
        kernels: Kernels | None = None,
        check_cancelled: Callable[[], object] = never_cancelled,
    ) -> None:
        assert transform.per_record is not None
        self._kernels = selection.kernels if kernels is None else kernels
        self._check_cancelled = check_cancelled
        self._call = transform.per_record.caller()
        self._row_dtype = transform.row_dtype
        self._recipe = transform.recipe
        pixels = dataclasses.replace(
            transform,
            unit_range=False,
            mean_value=(),
            mean_image=None,
            scale=(1.0,),
            erasing=None,
            layout="nhwc",
            dtype=np.dtype(np.uint8),
            per_record=None,
        )
        self._pixel_recipe = pixels.recipe
        # A mean image belongs to whole records: their sizes are compared with its before they are
        # cut.
        self._mean_image = mean_image = transform.mean_image
        if mean_image is not None:
            pixels = dataclasses.replace(
                pixels, train=False, crop_size=0, mirror=False, channels="stored"
            )
        self._pixels = RecordTransformer(pixels, kernels=kernels, check_cancelled=check_cancelled)
        self._value_recipe = dataclasses.replace(
            transform,
            train=False,
            resizing=None,
            pad=0,
            jitter=None,
            crop_size=0,
            mirror=False,
            channels="stored",
            mean_image=None,
        ).recipe
        self._value_columns = self._choose_columns()
        self._keys: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None

    def sample_shape(
        self, records: Sequence[memoryview] | MappedRecords
    ) -> tuple[int, ...] | Fault:
        """Return the shape of the samples of a batch that begins with the first of some records."""
        found = self.stored_image(records)
        return found if isinstance(found, Fault) else self._recipe.sample_shape(*found[:3])

    def stored_image(self, records: Sequence[memoryview] | MappedRecords) -> StoredImage | Fault:
        """Return what the first of some records holds, or what is wrong with it."""
        found = self._pixels.stored_image(records)
        if isinstance(found, Fault):
            return self._renamed(found)
        try:
            reference.check_fit(found[:3], self._recipe)
        except BadRecordError as bad:
            return bad.at(0)
        return found

    def damage(self, records: Sequence[memoryview]) -> Fault | None:
        """Return what is wrong with the image that the first of some records holds, decoded."""
        return self._pixels.damage(records)

    def key_by(self, seed: int, epochs: NDArray[np.int64], records: NDArray[np.int64]) -> None:
        """Say which records the next `fill` gets; the functions' random numbers are keyed by them.

        Args:
            seed: The run's seed.
            epochs: (n,) the epoch of each place.
            records: (n,) the records' indices.
        """
        self._keys = seed, epochs, records

    def fill(
        self,
        records: Sequence[memoryview] | MappedRecords,
        words: NDArray[np.uint32],
        data: NDArray[Any],
        labels: NDArray[Any] | None,
    ) -> list[Fault]:
        """Fill part of a batch from its records; see `RecordTransformer.fill`, and `key_by`.

        A record is also bad where the function raises, or returns another kind of image.
        """
        if self._row_dtype is not data.dtype:
            data = data.view(self._row_dtype)
        shape = data.shape[1:]
        if not self._recipe.channels_last:
            shape = (*shape[1:], shape[0])
        stored = shape
        if self._mean_image is not None:
            channels, *size = self._mean_image.shape
            stored = (*size, channels)
        # Not scratch that is used again: a function may keep the image that it was given.
        images = np.empty((len(words), *stored), np.uint8)
        found = self._pixels.fill(records, words, images, labels)
        faults = {fault.position: self._renamed(fault) for fault in found}
        for position, image in enumerate(images):
            if position not in faults:
                self._check_cancelled()
                fault = self._finish(position, image, shape, words[position], data, labels)
                if fault is not None:
                    faults[position] = fault
        return list(faults.values())

    def _renamed(self, fault: Fault) -> Fault:
        """Return a fault of the pixels as one of the whole transformation."""
        if fault.reason is Reason.FLOATS_AS_UINT8:
            return dataclasses.replace(fault, reason=Reason.FLOATS_FOR_FUNCTION)
        if fault.reason is Reason.SIZE_DIFFERS and self._mean_image is not None:
            return dataclasses.replace(fault, reason=Reason.MEAN_IMAGE_DIFFERS)
        return fault

    def _finish(  # noqa: PLR0917 - the function's arguments, and where its results go
        self,
        position: int,
        image: NDArray[np.uint8],
        shape: tuple[int, ...],
        words: NDArray[np.uint32],
        data: NDArray[Any],
        labels: NDArray[Any] | None,
    ) -> Fault | None:
        """Call the function for one record, and finish what it returns."""
        recipe = self._value_recipe
        if self._mean_image is not None:
            whole, image = image, np.empty(shape, np.uint8)
            outcome = self._kernels.fill_image(whole, words, image, self._pixel_recipe, None)
            if outcome is not None:
                return Fault(position, Reason(outcome[0]), outcome[1])
            planes = np.empty((shape[2], *shape[:2]), np.float32)
            cut = self._pixel_recipe._replace(channels_last=False)
            reference.fill_pixels(self._mean_image, words, planes, cut)
            recipe = recipe._replace(mean_image=planes)
        result = self._called(position, image, labels)
        if isinstance(result, Fault):
            return result
        if self._value_columns is not None:
            words = words[self._value_columns]
        self._kernels.fill_image(np.ascontiguousarray(result), words, data[position], recipe, None)
        return None

    def _choose_columns(self) -> NDArray[np.intp] | None:
        """Return which columns of the words are those of what is done after the function.

        None where the first ones are.
        """
        recipe = self._value_recipe
        if not recipe.drawn_words:
            return None
        taken = [range(NUM_WORDS)]
        for words in recipe.drawn_words:
            columns = self._recipe.columns_of(words)
            taken.append(range(columns.start, columns.stop))
        return np.concatenate(taken)

    def _called(
        self, position: int, image: NDArray[np.uint8], labels: NDArray[Any] | None
    ) -> NDArray[np.uint8] | Fault:
        """Return the image that the function makes of one; its label is stored."""
        assert self._keys is not None
        seed, epochs, records = self._keys
        label = None if labels is None else labels[position].item()
        shape = image.shape
        try:
            result = self._call(
                image,
                label,
                seed=seed,
                epoch=int(epochs[position]),
                number=int(records[position]),
            )
            if isinstance(result, tuple) and len(result) == 2:
                result, label = result
            # An image of PIL, or a tensor on the host, is an array to NumPy.
            is_one = result is not None and not isinstance(result, tuple)
            made: NDArray[Any] = np.asarray(result) if is_one else np.empty(0)
            if made.dtype != np.uint8 or made.shape != shape:
                found = describe_array(made if is_one and made.dtype != object else result)
                return _returned(position, f"expected uint8 of shape {shape}, found {found}")
            wrong = _store_label(label, labels, position)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever people raise is their record's fault
            detail = traceback.format_exception_only(error)[0].strip()
            # At once, whatever the policy: a batch that is discarded meanwhile would stay alive by
            # its frames, and its slot would never come back.
            write_out_traceback(without_own_frames(error))
            return Fault(position, Reason.FUNCTION_RAISED, (), detail, cause=error)
        return made if wrong is None else _returned(position, wrong)


def _returned(position: int, detail: str) -> Fault:
    return Fault(position, Reason.FUNCTION_RETURNED, (), detail)


def _store_label(label: object, labels: NDArray[Any] | None, position: int) -> str | None:
    """Store a label that a function has returned; return what is wrong with it."""
    if labels is None:
        return None if label is None else "found a label, and labels is false"
    value = np.asarray(label)
    if value.shape != () or value.dtype.kind not in "biuf":
        found = describe_array(label if value.dtype == object else value)
        return f"expected a number for the label, found {found}"
    number = value.item()
    if isinstance(number, float) and labels.dtype.kind == "i" and not number.is_integer():
        return f"expected an integer for the label, found {number}; set label_dtype: float32"
    labels[position] = number
    return None


def make_transformer(
    transform: Transform, *, check_cancelled: Callable[[], object] = never_cancelled
) -> RecordTransformer | FunctionTransformer:
    """Return what fills rows on the host, for one thread."""
    if transform.per_record is None:
        return RecordTransformer(transform, check_cancelled=check_cancelled)
    return FunctionTransformer(transform, check_cancelled=check_cancelled)
