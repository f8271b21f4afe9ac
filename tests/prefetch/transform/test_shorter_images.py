"""Images are made smaller as torchvision's Resize does it, by Pillow's arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from prefetch._kernels import _c, reference
from prefetch._record.faults import BadRecordError, Reason
from prefetch._transform.shorter_images import ShorterImages

if TYPE_CHECKING:
    from prefetch._kernels.contract import Kernels


@pytest.mark.parametrize(
    ("height", "width", "shorter", "expected"),
    [
        (375, 500, 256, (256, 341)),  # 341.33
        (500, 375, 256, (341, 256)),
        (256, 256, 256, (256, 256)),
        (256, 999, 256, (256, 999)),
        (3, 4, 6, (6, 8)),
        (1, 1, 7, (7, 7)),
        (1, 2**20, 256, (256, 2**28)),
    ],
)
def test_the_longer_side_is_rounded_down(
    height: int, width: int, shorter: int, expected: tuple[int, int]
) -> None:
    if expected[0] * expected[1] > 2**28:
        with pytest.raises(BadRecordError) as caught:
            ShorterImages(shorter, _c).shape((height, width, 3))
        assert caught.value.reason is Reason.RESIZED_TOO_LARGE
        assert caught.value.numbers == (height, width, shorter, 2**28)
        return
    assert (*expected, 3) == ShorterImages(shorter, _c).shape((height, width, 3))


@pytest.mark.parametrize("kernels", [_c, reference], ids=["c", "numpy"])
@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB"), (4, "CMYK")])
@pytest.mark.parametrize("size", [(37, 61), (61, 37), (9, 200), (5, 6)])
def test_pixels_are_those_of_pillow(
    kernels: Kernels, channels: int, mode: str, size: tuple[int, int]
) -> None:
    image = np.random.default_rng(0).integers(0, 256, (*size, channels), np.uint8)
    shorten = ShorterImages(16, kernels)
    height, width, _ = shorten.shape(image.shape)
    pillow = Image.frombytes(mode, size[::-1], image.tobytes())
    expected = pillow.resize((width, height), Image.Resampling.BILINEAR)
    found = shorten.resize(image)
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(np.asarray(expected).reshape(height, width, channels), found)


def test_an_image_of_that_size_stays_as_it_is() -> None:
    image = np.zeros((16, 31, 3), np.uint8)
    assert image is ShorterImages(16, _c).resize(image)
