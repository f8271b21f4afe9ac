"""Transforms records into rows of a batch on the host.

A record's pixels go through `prefetch._transform.operation.OPERATIONS`, as in Caffe's transformer:

- The crop is a square; its place is drawn in phase train and the centre, rounded down, in phase
  test. The mirror's coin is thrown in either phase.
- A mean image belongs to the uncropped record: each pixel has the mean of its own place in the
  record subtracted, wherever it ends up. One mean value serves all channels of any record;
  Caffe's habit of freezing the number of channels at the first is not kept.
- Random words come from outside (`prefetch._plan.random_words`). They are reduced here because the
  ranges depend on the record's size: ``reduce(word, 2)``, 1 for mirrored, then ``reduce(word,
  height - crop + 1)`` and ``reduce(word, width - crop + 1)``.

Channels: encoded images are decoded blue first, and Caffe's tools write raw records in that order
too, so ``stored`` and ``bgr`` deliver what is stored, and ``rgb`` turns the first three channels of
3 or 4 around (a fourth is alpha and stays last); other numbers of channels have no colours and stay
as they are. ``mean_value`` and a ``scale`` of one a channel are in the order of the *delivered*
channels; a mean image is, like the records that it was made from, in the *stored* order.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from prefetch._kernels import reference, selection
from prefetch._kernels.boxes import needed_box, needs_box
from prefetch._kernels.contract import ENCODED, Kernels
from prefetch._kernels.digest import digest
from prefetch._record.decode import ImageDecoder
from prefetch._record.faults import BadRecordError, Fault, Reason
from prefetch._source.mapped_records import MappedRecords, fill_together, views
from prefetch._transform.record_filler import StoredImage, never_cancelled
from prefetch._transform.shorter_images import ShorterImages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from prefetch._kernels.contract import Outcome, Part
    from prefetch._source.mapped_records import FillResult, Request
    from prefetch._transform.options import Transform

logger = logging.getLogger("prefetch")


class RecordTransformer:
    """Turns records into rows of a batch, for one thread; owns its scratch memory.

    Args:
        transform: What to do; shared with other threads.
        kernels: By default the C extension, or its NumPy twin where that is missing.
        check_cancelled: Called before each encoded record of a `fill`; what it raises ends that.
        fill_values: Instead of the kernels' `fill`; reads records of any layout.
    """

    def __init__(
        self,
        transform: Transform,
        *,
        kernels: Kernels | None = None,
        check_cancelled: Callable[[], object] = never_cancelled,
        fill_values: Callable[..., list[Outcome]] | None = None,
    ) -> None:
        if kernels is None:
            selection.announce()
            kernels = selection.kernels
        self._kernels = kernels
        self._check_cancelled = check_cancelled
        self._recipe = transform.recipe
        self._dtype = transform.dtype
        self._row_dtype = transform.row_dtype
        self._takes_bytes_only = self._dtype == np.uint8 or self._recipe.resizing is not None
        self._decoding = decoding = transform.decoding
        self._layout = layout = decoding.record_layout
        # A kernel that does not know the layout would take its values for damaged Datums.
        self._fill_values = fill_values or (
            kernels.fill if layout.is_native else partial(reference.fill, read=layout.read)
        )
        self._decoder = ImageDecoder(
            force_color=decoding.force_color,
            force_gray=decoding.force_gray,
            max_pixels_per_byte=decoding.max_pixels_per_byte,
            splice=None if selection.native is None else selection.native.splice_jpeg,
        )
        self._takes_parts = needs_box(self._recipe)
        shorter = decoding.shorter
        self._shorten = None if shorter is None else ShorterImages(shorter, kernels)
        self._warns_of_raw = decoding.force_color or decoding.force_gray

    def sample_shape(
        self, records: Sequence[memoryview] | MappedRecords
    ) -> tuple[int, ...] | Fault:
        """Return the shape of the samples of a batch that begins with the first of some records.

        Args:
            records: As for `fill`; at least one.

        Returns:
            (channels, height, width), or (height, width, channels) for layout nhwc, after the
            crop; or what is wrong with the record, at position 0. Of a JPEG only the header is
            read, so fill() may still find it bad.
        """
        found = self.stored_image(records)
        if isinstance(found, Fault):
            return found
        return self._recipe.sample_shape(*found[:3])

    def stored_image(self, records: Sequence[memoryview] | MappedRecords) -> StoredImage | Fault:
        """Return what the first of some records holds, or what is wrong with it.

        As `sample_shape`, before the crop.
        """
        try:
            image = self._find_stored(records)
            reference.check_fit(image[:3], self._recipe)
        except BadRecordError as bad:
            return bad.at(0)
        return image

    def _find_stored(self, records: Sequence[memoryview] | MappedRecords) -> StoredImage:
        """Return what the first record holds.

        Raises:
            BadRecordError: There is something wrong with it.
        """
        if isinstance(records, MappedRecords):
            shape = records.first_raw_shape(is_uint8=self._takes_bytes_only)
            if shape is not None:
                return StoredImage(*shape, encoded=False)
        content = self._layout.read(views(records)[0])
        if content.kind == "encoded":
            height, width, channels = self._decoded_shape(content.image_bytes())
            return StoredImage(channels, height, width, encoded=True)
        pixels = content.pixels(self._dtype)
        channels, height, width = pixels.shape
        reference.check_fit(pixels.shape, self._recipe, is_uint8=pixels.dtype == np.uint8)
        return StoredImage(channels, height, width, encoded=False)

    def damage(self, records: Sequence[memoryview]) -> Fault | None:
        """Return what is wrong with the image that the first of some records holds, decoded."""
        try:
            self._decoder.decode(self._layout.read(records[0]).image_bytes())
        except BadRecordError as bad:
            return bad.at(0)
        return None

    def fill(
        self,
        records: Sequence[memoryview] | MappedRecords,
        words: NDArray[np.uint32],
        data: NDArray[Any],
        labels: NDArray[Any] | None,
        result: FillResult | None = None,
    ) -> list[Fault]:
        """Fill part of a batch from its records; bad bytes never raise.

        Nothing refers to the records after it returns.

        Args:
            records: The records: the bytes of each, or, of a layout that the C kernel knows, where
                they are in a mapped database.
            words: uint32 (n, k), the raw random words of each: mirror, row and column of the crop,
                then those of the operations that draw more.
                Those that the transformation does not draw are ignored.
            data: (n, *sample_shape) of the transform's dtype, C-contiguous; the rows to fill.
            labels: (n,) of any integer or float type, or None for no labels. Labels are int32
                numbers, converted: 16777217 becomes 16777216 in float32, as in Caffe.
            result: What `fill_together` has returned for these records, if it has filled raw rows
                and labels: what is left is to find the faults, and to decode.

        Returns:
            The bad records, by position. Their rows and labels are unspecified; all others are
            complete.

        Raises:
            SourceError: A mapped database is damaged, or was changed or truncated.
        """
        if self._row_dtype is not self._dtype:
            data = data.view(self._row_dtype)  # buffers have no name for bfloat16
        if isinstance(records, MappedRecords):
            if result is None:
                outcomes = records.fill(words, data, labels, self._recipe)
            else:
                outcomes = records.outcomes_of(result)
        else:
            # Those of a file that is not mapped are read at each access.
            records = list(records)
            outcomes = self._fill_values(records, words, data, labels, self._recipe)
        faults: list[Fault] = []
        values = views(records) if outcomes else ()
        for position, code, numbers in outcomes:
            fault: Fault | None
            if code == ENCODED:
                # Between images: one takes long enough that a feed that closes should not wait.
                self._check_cancelled()
                # Read a second time for its bytes: decoding takes a hundred times as long.
                encoded = self._layout.read(values[position]).image_bytes()
                fault = self._fill_encoded(encoded, words[position], data, position)
            elif code < Reason.NO_PIXELS:
                fault = self._layout.unreadable(code, numbers, values[position]).at(position)
            else:
                fault = Fault(position, Reason(code), numbers)
            if fault is not None:
                faults.append(fault)
        # Fewer outcomes than records: some were raw, and sound.
        if self._warns_of_raw and len(outcomes) < len(records):
            self._warns_of_raw = False  # this thread need not look again
            if self._decoding.raw_warning.take():
                logger.warning(
                    "force_color and force_gray apply to encoded images only; "
                    "raw records, which this source holds, keep the channels that they have"
                )
        return faults

    def fill_together(self, requests: Sequence[Request]) -> list[FillResult]:
        """Fill the rows of several batches in one native call; `fill` has to follow for each.

        Args:
            requests: Records, all of one database, and the words, data and labels for each batch.

        Raises:
            SourceError: The database was changed or truncated.
        """
        if self._row_dtype is not self._dtype:
            requests = [
                (records, words, data.view(self._row_dtype), labels)
                for records, words, data, labels in requests
            ]
        return fill_together(requests, self._recipe)

    def _fill_encoded(
        self, encoded: memoryview, words: NDArray[np.uint32], data: NDArray[Any], position: int
    ) -> Fault | None:
        try:
            image, part = self._decode(encoded, words)
        except BadRecordError as bad:
            return bad.at(position)
        if self._decoder.remark and self._decoding.image_warning.take():
            logger.warning(
                "libjpeg says of an encoded image '%s', which leaves its pixels as they are: it is "
                "served; ringfeed inspect --full names such records",
                self._decoder.remark,
            )
        outcome = self._kernels.fill_image(image, words, data[position], self._recipe, part)
        if outcome is None:
            return None
        code, numbers = outcome
        return Fault(position, Reason(code), numbers)

    def _decoded_shape(self, encoded: memoryview) -> tuple[int, ...]:
        """Return (height, width, channels) of an image.

        Raises:
            BadRecordError: As `ImageDecoder.shape`.
        """
        cache = self._decoding.cache
        if cache is not None:  # of many formats the header alone does not tell
            image = cache.find(digest(encoded), counts=False)
            if image is not None:
                return image.shape
        shape = self._decoder.shape(encoded)
        return shape if self._shorten is None else self._shorten.shape(shape)

    def _decode(
        self, encoded: memoryview, words: NDArray[np.uint32]
    ) -> tuple[NDArray[np.uint8], Part | None]:
        """Return an image, or the part of it that its row is made of, and which part that is.

        It is from the cache, or it is decoded and kept there.

        Raises:
            BadRecordError: As `ImageDecoder.decode`; of a bad image nothing is kept.
        """
        cache = self._decoding.cache
        if cache is None:
            return self._decode_part(encoded, words)
        key = digest(encoded)
        image = cache.find(key)
        if image is None:
            image = self._decode_anew(encoded)
            cache.store(key, image)
        return image, None

    def _decode_part(
        self, encoded: memoryview, words: NDArray[np.uint32]
    ) -> tuple[NDArray[np.uint8], Part | None]:
        """Decode what a row is made of, where that is less than the image."""
        if not self._takes_parts:
            return self._decoder.decode(encoded), None
        draws = words.tolist()
        image, *part = self._decoder.decode_window(
            encoded, lambda height, width: needed_box(draws, height, width, self._recipe)
        )
        top, left, height, width = part
        return image, (top, left, height, width)

    def _decode_anew(self, encoded: memoryview) -> NDArray[np.uint8]:
        image = self._decoder.decode(encoded)
        return image if self._shorten is None else self._shorten.resize(image)
