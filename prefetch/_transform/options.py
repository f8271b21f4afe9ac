"""The options of a transformation, resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from prefetch._kernels.contract import Recipe
from prefetch._record.decode import MAX_PIXELS_PER_BYTE

if TYPE_CHECKING:
    from numpy.typing import NDArray


_FLOAT32 = np.dtype(np.float32)


class WarnOnce:
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

    What contradicts itself never gets here: :mod:`prefetch._config.contradictions` refuses it.

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
    dtype: np.dtype[Any] = _FLOAT32
    modulo: bool = False
    raw_remark: WarnOnce = field(default_factory=WarnOnce, repr=False)
    image_remark: WarnOnce = field(default_factory=WarnOnce, repr=False)

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
