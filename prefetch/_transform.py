"""What is done to each record on its way into a batch, and who does it.

A record's pixels are cut (crop), flipped (mirror), and become (pixel - mean) * scale, in that
order, as in Caffe's transformer:

- The crop is a square; its place is drawn in phase train and the centre, rounded down, in phase
  test. The mirror's coin is thrown in either phase.
- A mean image belongs to the uncropped record: each pixel has the mean of its own place in the
  record subtracted, wherever it ends up. One mean value serves all channels of whatever record;
  Caffe's habit of freezing the number of channels at the first is not kept.
- Random words come from outside, three for each record: mirror, row, column. They are reduced
  here because the ranges depend on the record's size: ``reduce(word, 2)``, 1 for mirrored, then
  ``reduce(word, height - crop + 1)`` and ``reduce(word, width - crop + 1)``.

Channels: encoded images are decoded blue first, and Caffe's tools write raw records in that order
too, so ``stored`` and ``bgr`` deliver what is stored, and ``rgb`` turns the first three channels of
3 or 4 around (a fourth is alpha and stays last); other numbers of channels have no colours and stay
as they are. ``mean_value`` and a ``scale`` of one a channel are in the order of the *delivered*
channels; a mean image is, like the records that it was made from, in the *stored* order.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from prefetch import _kernel_choice, _reference
from prefetch._datum import DatumError, parse_datum
from prefetch._decode import MAX_PIXELS_PER_BYTE, ImageDecoder
from prefetch._errors import ConfigError, ConfigFault
from prefetch._faults import BadRecordError, Fault, Reason, no_datum
from prefetch._mapped_records import MappedRecords, fill_together, views
from prefetch._reference import ENCODED, Outcome, Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from prefetch._mapped_records import Request

logger = logging.getLogger("prefetch")

_DTYPES = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.uint8))


def always() -> None:
    """Let a `RecordFiller` go on, whoever waits for it meanwhile."""


class RawRemark:
    """The right to say something once, of however many records and threads; thread-safe."""

    def __init__(self) -> None:
        self._left = [True]

    def take(self) -> bool:
        """Return whether it has not been said yet; if so, the caller is to say it."""
        try:
            return self._left.pop()  # atomic: one caller gets it
        except IndexError:
            return False


@dataclass(frozen=True, eq=False, kw_only=True)
class Transform:
    """A transformation, resolved from the configuration; shared between threads.

    Attributes:
        train: Whether crops are drawn; otherwise they are the centre.
        crop_size: Side of the crop, in pixels; 0 for none.
        mirror: Whether images are flipped left to right with a chance of one half.
        mean_value: Subtracted from every pixel: none, one, or one a delivered channel.
        mean_image: float32 (channels, height, width), subtracted from the uncropped record; stored
            channels. Not together with mean_value.
        scale: Factor after the mean: one, or one a delivered channel.
        force_color: Decode encoded images to three channels; raw records stay as they are.
        force_gray: Decode encoded images to one channel; raw records stay as they are.
        max_pixels_per_byte: Of encoded images; see `ImageDecoder`.
        channels: Order of the channels delivered.
        layout: Order of a batch's axes.
        dtype: float32, float16 or bfloat16 (rounded from the float32 result), or uint8 (no mean, no
            scale).
        modulo: How random words are reduced: True for Caffe's ``word % range``, False for
            ``(word * range) >> 32``.
        raw_remark: That these do nothing to raw records. Shared by all threads that work by this
            transformation, or a part of it.
        image_remark: That libjpeg had something harmless to say of an image; shared likewise.

    Raises:
        ConfigError: Attributes contradict each other; it lists every fault.

    Example:
        >>> Transform(train=True, crop_size=227, mirror=True).words_per_record
        3
    """

    train: bool
    crop_size: int = 0
    mirror: bool = False
    mean_value: tuple[float, ...] = ()
    mean_image: NDArray[np.float32] | None = None
    scale: tuple[float, ...] = (1.0,)
    force_color: bool = False
    force_gray: bool = False
    max_pixels_per_byte: int = MAX_PIXELS_PER_BYTE
    channels: Literal["stored", "rgb", "bgr"] = "stored"
    layout: Literal["nchw", "nhwc"] = "nchw"
    dtype: np.dtype[Any] = _DTYPES[0]
    modulo: bool = False
    raw_remark: RawRemark = field(default_factory=RawRemark, repr=False)
    image_remark: RawRemark = field(default_factory=RawRemark, repr=False)

    def __post_init__(self) -> None:
        faults = tuple(
            ConfigFault(f"transform.{name}", message) for name, message in self._contradictions()
        )
        if faults:
            raise ConfigError("transform", faults)

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        if self.crop_size < 0:
            yield "crop_size", f"is {self.crop_size}, and must be 0 (no crop) or more"
        if self.mean_value and self.mean_image is not None:
            yield "mean_file", "is given together with mean_value; leave one of them out"
        if self.mean_image is not None and self.mean_image.ndim != 3:
            yield (
                "mean_file",
                f"has {self.mean_image.ndim} axes, and 3 are expected: channels, height, width",
            )
        if not self.scale:
            yield "scale", "is empty; give one number, or one a channel"
        if self.force_color and self.force_gray:
            yield "force_gray", "is set together with force_color; leave one of them out"
        if self.dtype not in _DTYPES and self.dtype.name != "bfloat16":
            yield "dtype", f"is {self.dtype}, and must be float32, float16, bfloat16 or uint8"
        if self.dtype == np.uint8:
            if self.mean_value or self.mean_image is not None:
                yield "dtype", "is uint8, which cannot carry pixels less a mean; use float32"
            if any(factor != 1 for factor in self.scale):
                yield "dtype", "is uint8, which cannot carry scaled pixels; use float32"

    @property
    def row_dtype(self) -> np.dtype[Any]:
        """Return the type of rows as the kernels take them: bfloat16 by its bits, uint16."""
        return np.dtype(np.uint16) if self.dtype.name == "bfloat16" else self.dtype

    @property
    def draws_mirror(self) -> bool:
        """Return whether each record takes a word for its mirror, in either phase."""
        return self.mirror

    @property
    def draws_crop(self) -> bool:
        """Return whether each record takes two words for the place of its crop."""
        return self.train and self.crop_size > 0

    @property
    def words_per_record(self) -> int:
        """Return how many random words each record takes, 0 to 3, whatever its size."""
        return int(self.draws_mirror) + 2 * int(self.draws_crop)

    @cached_property
    def recipe(self) -> Recipe:
        """Return it as the kernels take it."""
        mean_image = self.mean_image
        if mean_image is not None:
            mean_image = np.ascontiguousarray(mean_image, np.float32)
        return Recipe(
            crop_size=self.crop_size,
            random_crop=self.train,
            mirror=self.mirror,
            modulo=self.modulo,
            swap_channels=self.channels == "rgb",
            channels_last=self.layout == "nhwc",
            mean_value=np.array(self.mean_value, np.float32),
            scale=np.array(self.scale, np.float32),
            mean_image=mean_image,
        )


class Kernels(Protocol):
    """What fills rows: the C extension, or its NumPy twin, with the twin's contract."""

    def fill(
        self,
        values: Sequence[memoryview],
        words: NDArray[np.uint32],
        data: NDArray[Any],
        labels: NDArray[Any] | None,
        recipe: Recipe,
        /,
    ) -> list[Outcome]:
        """Fill a part from its records; locate the encoded ones."""

    def fill_image(
        self,
        image: NDArray[np.uint8],
        words: NDArray[np.uint32],
        row: NDArray[Any],
        recipe: Recipe,
        /,
    ) -> tuple[int, tuple[int, ...]] | None:
        """Fill a row from a decoded image."""


class StoredImage(NamedTuple):
    """What a record holds, before any crop.

    Attributes:
        channels: 1 or more.
        height: In pixels.
        width: In pixels.
        encoded: Whether it has to be decoded.
    """

    channels: int
    height: int
    width: int
    encoded: bool


class RecordFiller(Protocol):
    """What fills a slot's rows from records, for one thread."""

    def sample_shape(
        self, records: Sequence[memoryview] | MappedRecords, /
    ) -> tuple[int, ...] | Fault:
        """Return the shape of what a slot has for each record, by the first of its batch."""

    def stored_image(self, records: Sequence[memoryview] | MappedRecords, /) -> StoredImage | Fault:
        """Return what the first of some records holds, or what is wrong with it."""

    def fill(
        self,
        records: Sequence[memoryview] | MappedRecords,
        words: NDArray[np.uint32],
        data: Any,
        labels: NDArray[Any] | None,
        /,
    ) -> list[Fault]:
        """Fill rows of the slot and their labels from records; return the bad ones."""


class RecordTransformer:
    """Turns records into rows of a batch, for one thread; owns its scratch memory.

    Args:
        transform: What to do; shared with other threads.
        kernels: Who does it; by default the C extension, or its NumPy twin where that is missing.
        go_on: Called before each encoded record of a `fill`; what it raises ends that.
    """

    def __init__(
        self,
        transform: Transform,
        *,
        kernels: Kernels | None = None,
        go_on: Callable[[], object] = always,
    ) -> None:
        if kernels is None:
            _kernel_choice.announce()
            kernels = _kernel_choice.kernels
        self._kernels = kernels
        self._go_on = go_on
        self._recipe = transform.recipe
        self._dtype = transform.dtype
        self._row_dtype = transform.row_dtype
        self._decoder = ImageDecoder(
            force_color=transform.force_color,
            force_gray=transform.force_gray,
            max_pixels_per_byte=transform.max_pixels_per_byte,
        )
        self._image_remark = transform.image_remark
        self._raw_remark = transform.raw_remark
        self._warns_of_raw = transform.force_color or transform.force_gray

    def sample_shape(
        self, records: Sequence[memoryview] | MappedRecords
    ) -> tuple[int, ...] | Fault:
        """Return the shape of the samples of a batch that begins with the first of some records.

        Args:
            records: As for `fill`; one at the least.

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
            image = self._stored(records)
            _reference.check_fit(image[:3], self._recipe)
        except DatumError as bad:
            return no_datum(0, bad.reason, bad.numbers, views(records)[0])
        except BadRecordError as bad:
            return bad.at(0)
        return image

    def _stored(self, records: Sequence[memoryview] | MappedRecords) -> StoredImage:
        """Return what the first record holds.

        Raises:
            DatumError: It does not parse.
            BadRecordError: There is something else wrong with it.
        """
        if isinstance(records, MappedRecords):
            shape = records.first_raw_shape(is_uint8=self._dtype == np.uint8)
            if shape is not None:
                return StoredImage(*shape, encoded=False)
        datum = parse_datum(views(records)[0])
        if datum.encoded:
            height, width, channels = self._decoder.shape(_reference.image_bytes(datum))
            return StoredImage(channels, height, width, encoded=True)
        channels, height, width = _reference.raw_pixels(datum, self._dtype).shape
        return StoredImage(channels, height, width, encoded=False)

    def damage(self, records: Sequence[memoryview]) -> Fault | None:
        """Return what is wrong with the image that the first of some records holds, decoded."""
        try:
            self._decoder.decode(_reference.image_bytes(parse_datum(records[0])))
        except BadRecordError as bad:
            return bad.at(0)
        return None

    def fill(
        self,
        records: Sequence[memoryview] | MappedRecords,
        words: NDArray[np.uint32],
        data: NDArray[Any],
        labels: NDArray[Any] | None,
    ) -> list[Fault]:
        """Fill part of a batch from its records; bad bytes never raise.

        Nothing refers to the records after it returns.

        Args:
            records: The records: each the bytes of a Datum, or where they are in a mapped database.
            words: uint32 (n, 3), the raw random words of each: mirror, row and column of the crop.
                Those that the transformation does not draw are ignored.
            data: (n, *sample_shape) of the transform's dtype, C-contiguous; the rows to fill.
            labels: (n,) of any integer or float type, or None for no labels. Labels are int32
                numbers, converted: 16777217 becomes 16777216 in float32, as in Caffe.

        Returns:
            The bad records, by position. Their rows and labels are unspecified; all others are
            complete.

        Raises:
            SourceError: A mapped database is damaged, or was changed or truncated.
        """
        faults: list[Fault] = []
        if self._row_dtype is not self._dtype:
            data = data.view(self._row_dtype)
        if isinstance(records, MappedRecords):
            outcomes = records.fill(words, data, labels, self._recipe)
        else:
            records = list(records)  # those of a file that is not mapped are read at each access
            outcomes = self._kernels.fill(records, words, data, labels, self._recipe)
        values = views(records) if outcomes else ()
        for position, code, numbers in outcomes:
            fault: Fault | None
            if code == ENCODED:
                self._go_on()
                # Parsed a second time for its bytes: decoding takes a hundred times as long.
                encoded = _reference.image_bytes(parse_datum(values[position]))
                fault = self._fill_encoded(encoded, words[position], data, position)
            elif code < Reason.NO_PIXELS:
                fault = no_datum(position, code, numbers, values[position])
            else:
                fault = Fault(position, Reason(code), numbers)
            if fault is not None:
                faults.append(fault)
        if self._warns_of_raw and len(outcomes) < len(records):
            self._warns_of_raw = False
            if self._raw_remark.take():
                logger.warning(
                    "force_color and force_gray apply to encoded images only; "
                    "raw records, which this source holds, keep the channels that they have"
                )
        return faults

    def fill_ahead(self, requests: Sequence[Request]) -> None:
        """Fill the rows of several batches in one native call, before `fill` is asked for each.

        Args:
            requests: Records, all of one database, and the words, data and labels for each batch.

        Raises:
            SourceError: The database is damaged, or was changed or truncated.
        """
        if self._row_dtype is not self._dtype:
            requests = [
                (records, words, data.view(self._row_dtype), labels)
                for records, words, data, labels in requests
            ]
        fill_together(requests, self._recipe)

    def _fill_encoded(
        self, encoded: memoryview, words: NDArray[np.uint32], data: NDArray[Any], position: int
    ) -> Fault | None:
        try:
            image = self._decoder.decode(encoded)
        except BadRecordError as bad:
            return bad.at(position)
        if self._decoder.remark and self._image_remark.take():
            logger.warning(
                "libjpeg says of an encoded image '%s', which leaves its pixels as they are: it is "
                "served; ringfeed inspect --full names such records",
                self._decoder.remark,
            )
        outcome = self._kernels.fill_image(image, words, data[position], self._recipe)
        if outcome is None:
            return None
        code, numbers = outcome
        return Fault(position, Reason(code), numbers)
