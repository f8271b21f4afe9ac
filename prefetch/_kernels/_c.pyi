# The C extension: Kernels, NativeKernels, ResizeKernels, SumKernels and MixKernels, whose
# docstrings describe it, and prefetch._kernels.digest.

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefetch._kernels.contract import FilledPart, IndexedPart, Outcome, Part, Recipe
from prefetch._kernels.resize import Interpolation

def fill(
    values: Sequence[memoryview],
    words: NDArray[np.uint32],
    data: NDArray[Any],
    labels: NDArray[Any] | None,
    recipe: Recipe,
    /,
) -> list[Outcome]: ...
def fill_records(
    memory: memoryview,
    page_bytes: int,
    leaves: NDArray[np.unsignedinteger],
    firsts: NDArray[np.unsignedinteger],
    recipe: Recipe,
    parts: Sequence[IndexedPart],
    /,
) -> list[FilledPart]: ...
def raw_shape(
    memory: memoryview,
    page_bytes: int,
    leaves: NDArray[np.unsignedinteger],
    firsts: NDArray[np.unsignedinteger],
    record: int,
    is_uint8: bool,
    /,
) -> tuple[int, int, int] | None: ...
def philox_words(
    key0: int,
    key1: int,
    records: NDArray[np.int64],
    blocks: NDArray[np.int64],
    words: NDArray[np.uint32],
    /,
) -> None: ...
def locate(
    memory: memoryview,
    page_bytes: int,
    pages: NDArray[np.int64],
    slots: NDArray[np.int64],
    spans: NDArray[np.int64],
    /,
) -> int: ...
def locate_ahead(
    memory: memoryview,
    page_bytes: int,
    pages: NDArray[np.int64],
    slots: NDArray[np.int64],
    begins: NDArray[np.int64],
    sizes: NDArray[np.int64],
    /,
) -> None: ...
def advise(memory: memoryview, begins: NDArray[np.int64], sizes: NDArray[np.int64], /) -> None: ...
def fill_image(
    image: NDArray[np.uint8],
    words: NDArray[np.uint32],
    row: NDArray[Any],
    recipe: Recipe,
    part: Part | None,
    /,
) -> tuple[int, tuple[int, ...]] | None: ...
def resize(
    image: NDArray[np.uint8],
    box: tuple[int, int, int, int],
    size: tuple[int, int],
    part: tuple[int, int, int, int],
    interpolation: Interpolation,
    out: NDArray[np.uint8],
    /,
) -> None: ...
def find_taps(
    sizes: tuple[int, int],
    interpolation: Interpolation,
    firsts: NDArray[np.int32],
    coefficients: NDArray[np.int32],
    /,
) -> int: ...
def find_bytes(
    values: Sequence[memoryview], shape: tuple[int, int, int], /
) -> list[memoryview | None]: ...
def add_up(images: Sequence[Any], first: int, sums: NDArray[Any], /) -> None: ...
def digest(content: Any, /) -> bytes: ...
def splice_jpeg(
    data: memoryview | bytes,
    top: int,
    left: int,
    height: int,
    width: int,
    to: NDArray[np.uint8],
    /,
) -> tuple[int, int, int, int, int] | None: ...
def find_restarts(data: memoryview | bytes, /) -> tuple[int, bool] | None: ...
def add_restarts(data: memoryview | bytes, most: int, /) -> bytes | int: ...
def mix_rows(rows: NDArray[Any], lam: float, /) -> None: ...
def swap_boxes(
    rows: NDArray[np.uint8], top: int, bottom: int, left: int, right: int, /
) -> None: ...
