"""Resizing in C and by its definition: the same bytes, of any box, part and arrangement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from prefetch._kernels import _c
from prefetch._kernels.resize import Interpolation, resize

if TYPE_CHECKING:
    from numpy.typing import NDArray

CANARY = 0xA5
sides = st.one_of(st.integers(1, 70), st.sampled_from([15, 16, 17, 31, 32, 33, 47, 48, 49]))


@dataclass(frozen=True)
class Task:
    """A box of an image, the size it gets, and the part of that which is wanted."""

    shape: tuple[int, int, int]
    box: tuple[int, int, int, int]
    size: tuple[int, int]
    part: tuple[int, int, int, int]
    interpolation: Interpolation
    is_planar: bool
    seed: int

    def image(self) -> NDArray[np.uint8]:
        channels, height, width = self.shape
        rng = np.random.default_rng(self.seed)
        shape = self.shape if self.is_planar else (height, width, channels)
        # Mostly extremes, where the filters overshoot and sums are clipped.
        drawn = rng.choice(np.array([0, 255, 1, 128], np.uint8), shape, p=[0.4, 0.4, 0.1, 0.1])
        return drawn if self.is_planar else drawn.transpose(2, 0, 1)


@st.composite
def rectangles(draw: st.DrawFn, height: int, width: int) -> tuple[int, int, int, int]:
    tall, wide = draw(st.integers(1, height)), draw(st.integers(1, width))
    return draw(st.integers(0, height - tall)), draw(st.integers(0, width - wide)), tall, wide


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    height, width = draw(sides), draw(sides)
    if draw(st.integers(0, 9)) == 0:
        height *= draw(st.integers(2, 12))
    size = (draw(sides), draw(sides))
    return Task(
        shape=(draw(st.integers(1, 5)), height, width),
        box=draw(rectangles(height, width)),
        size=size,
        part=draw(rectangles(*size)),
        interpolation=draw(st.sampled_from(Interpolation)),
        is_planar=draw(st.booleans()),
        seed=draw(st.integers(0, 999)),
    )


@given(tasks())
@settings(deadline=None)
def test_c_gives_the_bytes_of_the_definition_and_touches_nothing_else(task: Task) -> None:
    image = task.image()
    top, left, height, width = task.box
    whole = resize(
        image[:, top : top + height, left : left + width], *task.size, task.interpolation
    )
    row, column, num_rows, num_columns = task.part
    expected = whole[:, row : row + num_rows, column : column + num_columns]
    block = np.full(expected.size + 64, CANARY, np.uint8)
    out = block[32:-32].reshape(expected.shape)
    _c.resize(image, task.box, task.size, task.part, task.interpolation, out)
    np.testing.assert_array_equal(expected, out)
    assert (block[:32] == CANARY).all()
    assert (block[-32:] == CANARY).all()
