# The C extension; prefetch._reference is its twin and its description.

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
def fill_spans(
    memory: memoryview,
    begins: NDArray[np.int64],
    sizes: NDArray[np.int64],
    words: NDArray[np.uint32],
    data: NDArray[Any],
    labels: NDArray[Any] | None,
    recipe: Recipe,
    /,
) -> list[Outcome]: ...
def locate(
    memory: memoryview,
    page_bytes: int,
    pages: NDArray[np.int64],
    slots: NDArray[np.int64],
    spans: NDArray[np.int64],
    /,
) -> int: ...
def gather(memory: memoryview, begins: NDArray[np.int64], sizes: NDArray[np.int64], /) -> bytes: ...
def fill_image(
    image: NDArray[np.uint8],
    words: NDArray[np.uint32],
    row: NDArray[Any],
    recipe: Recipe,
    /,
) -> tuple[int, tuple[int, ...]] | None: ...
def find_bytes(
    values: Sequence[memoryview], shape: tuple[int, int, int], /
) -> list[memoryview | None]: ...
def add_up(images: Sequence[Any], first: int, sums: NDArray[Any], /) -> None: ...
