"""The C extension; prefetch._reference is its twin and its description."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefetch._reference import Outcome, Recipe

def fill(
    values: Sequence[memoryview],
    words: NDArray[np.uint32],
    data: NDArray[Any],
    labels: NDArray[Any] | None,
    recipe: Recipe,
    /,
) -> list[Outcome]: ...
def fill_image(
    image: NDArray[np.uint8],
    words: NDArray[np.uint32],
    row: NDArray[Any],
    recipe: Recipe,
    /,
) -> tuple[int, tuple[int, ...]] | None: ...
