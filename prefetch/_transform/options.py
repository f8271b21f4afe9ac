"""The options of a transformation, resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from prefetch._kernels.boxes import both_sides
from prefetch._kernels.contract import Recipe
from prefetch._plan.random_words import Word, blocks_of
from prefetch._record.decode import MAX_PIXELS_PER_BYTE
from prefetch._record.layouts.datum import DATUM
from prefetch._transform.operation import Stage, options_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._decoded_cache.cache import DecodedCache
    from prefetch._kernels.contract import Erasing, Jitter, Resizing
    from prefetch._plan.mixing import Mixing
    from prefetch._record.layout import RecordLayout
    from prefetch._transform.own_function import OwnFunction

_FLOAT32 = np.dtype(np.float32)


class WarnOnce:
    """Lets one of several threads log a warning."""

    def __init__(self) -> None:
        self._left = [True]

    def take(self) -> bool:
        """Return whether the caller is the one who logs it; True once."""
        try:
            return self._left.pop()  # atomic: one caller gets it
        except IndexError:
            return False


@dataclass(frozen=True, eq=False, kw_only=True)
class Decoding:
    """How records become pixels; shared between threads.

    Attributes:
        record_layout: What the bytes of a record mean.
        force_color: Decode encoded images to three channels; raw records stay as they are.
        force_gray: Decode encoded images to one channel; raw records stay as they are.
        max_pixels_per_byte: See `ImageDecoder`.
        cache: Where decoded images are kept; None: nowhere.
        shorter: Length of their shorter side, in pixels, to which they are resized as soon as they
            are decoded; None: they stay as they are.
        raw_warning: That the first two do nothing to raw records.
        image_warning: That libjpeg had something harmless to say of an image.
    """

    record_layout: RecordLayout = DATUM
    force_color: bool = False
    force_gray: bool = False
    max_pixels_per_byte: int = MAX_PIXELS_PER_BYTE
    cache: DecodedCache | None = None
    shorter: int | None = None
    raw_warning: WarnOnce = field(default_factory=WarnOnce, repr=False)
    image_warning: WarnOnce = field(default_factory=WarnOnce, repr=False)


@dataclass(frozen=True, eq=False, kw_only=True)
class Transform:
    """A transformation, resolved from the configuration; shared between threads.

    What contradicts itself never gets here: :mod:`prefetch._config.contradictions` refuses it.

    Attributes:
        train: Whether crops are drawn; otherwise they are the centre.
        decoding: How encoded images are decoded.
        resizing: How images are resized before the crop; None for not at all.
        pad: Pixels of zeros added on each side, before the crop.
        crop_size: Side of the crop, in pixels, or its height and width; 0 for none.
        mirror: Whether images are flipped left to right with a chance of one half.
        jitter: How colours are changed; None for not at all.
        unit_range: Whether pixels are first multiplied by 1/255.
        mean_value: Subtracted from every pixel: none, one, or one a delivered channel.
        mean_image: float32 (channels, height, width), subtracted from the uncropped record; stored
            channels. Not together with mean_value.
        scale: Factor after the mean: one, or one a delivered channel.
        erasing: How a box of an image is written over; None for not at all.
        channels: Order of the channels delivered.
        layout: Order of a batch's axes.
        dtype: float32, float16 or bfloat16 (rounded from the float32 result), or uint8 (no mean, no
            scale).
        modulo: How random words are reduced: True for Caffe's ``word % range``, False for
            ``(word * range) >> 32``.
        per_record: Called with each image between mirror and mean; None for nothing.
        mixing: How whole batches are mixed, when all else is done; None for not at all.

    Example:
        >>> len(Transform(train=True, crop_size=227, mirror=True).drawn_words)
        3
    """

    train: bool
    decoding: Decoding = field(default_factory=Decoding)
    resizing: Resizing | None = None
    pad: int = 0
    crop_size: int | tuple[int, int] = 0
    mirror: bool = False
    jitter: Jitter | None = None
    unit_range: bool = False
    mean_value: tuple[float, ...] = ()
    mean_image: NDArray[np.float32] | None = None
    scale: tuple[float, ...] = (1.0,)
    erasing: Erasing | None = None
    channels: Literal["stored", "rgb", "bgr"] = "stored"
    layout: Literal["nchw", "nhwc"] = "nchw"
    dtype: np.dtype[Any] = _FLOAT32
    modulo: bool = False
    per_record: OwnFunction | None = None
    mixing: Mixing | None = None

    @property
    def row_dtype(self) -> np.dtype[Any]:
        """Return the type of rows as the kernels take them: bfloat16 by its bits, uint16."""
        return np.dtype(np.uint16) if self.dtype.name == "bfloat16" else self.dtype

    @property
    def drawn_words(self) -> tuple[Word, ...]:
        """Return which of the first random words a record of any size takes."""
        mirror = (Word.MIRROR,) if self.mirror else ()
        crop = (Word.ROW, Word.COLUMN) if self.train and self.crop_size else ()
        return (*mirror, *crop)

    @property
    def drawn_blocks(self) -> tuple[int, ...]:
        """Return which blocks of random words behind the first a record takes."""
        return tuple(block for words in self.recipe.drawn_words for block in blocks_of(words))

    def restrict(self, *stages: Stage) -> Transform:
        """Return the part of it that belongs to some stages, for batches of uint8."""
        kept: dict[str, Any] = {name: getattr(self, name) for name in options_of(*stages)}
        return Transform(**{"train": False, "dtype": np.dtype(np.uint8), **kept})

    @cached_property
    def recipe(self) -> Recipe:
        """Return it as the kernels take it, all but the decoding and the type of rows."""
        mean_image = self.mean_image
        if mean_image is not None:
            mean_image = np.ascontiguousarray(mean_image, np.float32)
        height, width = both_sides(self.crop_size)
        return Recipe(
            crop_height=height,
            crop_width=width,
            random_crop=self.train,
            mirror=self.mirror,
            modulo=self.modulo,
            swap_channels=self.channels == "rgb",
            channels_last=self.layout == "nhwc",
            unit_range=self.unit_range,
            mean_value=np.array(self.mean_value, np.float32),
            scale=np.array(self.scale, np.float32),
            mean_image=mean_image,
            resizing=self.resizing,
            pad=self.pad,
            jitter=self.jitter,
            erasing=self.erasing,
        )
