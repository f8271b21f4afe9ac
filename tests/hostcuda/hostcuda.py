"""Kernels of a GPU compiled as C++ and run on the host, from the very text that NVRTC compiles.

``hostcuda.h`` stands for what CUDA brings along. The environment variable ``HOSTCUDA_FLAGS`` adds
to the compiler's flags: the sanitizers'.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADER: Final = Path(__file__).with_name("hostcuda.h")

# -O1: the sanitizers' tests build it too, and the kernels of a test are small.
_FLAGS: Final = (
    *("-std=c++17", "-O1", "-g", "-fPIC", "-shared", "-ffp-contract=off"),
    *("-Wall", "-Wextra", "-Werror"),
)


@dataclass(frozen=True)
class HostKernel:
    """A kernel that runs on the host.

    Attributes:
        name: As in the source.
        address: Of ``void launch(const unsigned grid[3], const unsigned block[3], void **params)``.
        sizes: Bytes of each parameter.
        kinds: Of each: ``r`` a pointer to what is read, ``w`` to what is written, ``s`` a scalar.
        library: What keeps it loaded.
    """

    name: str
    address: int
    sizes: tuple[int, ...]
    kinds: str
    library: ctypes.CDLL

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        *arguments: NDArray[Any] | np.generic,
    ) -> None:
        """Run it to the end, on the calling thread.

        Args:
            grid: Number of blocks in up to three dimensions.
            block: Number of threads in a block, in up to three dimensions.
            *arguments: An array for each pointer, a NumPy scalar for any other parameter.
        """
        cells = []
        for argument, size, kind in zip(arguments, self.sizes, self.kinds, strict=True):
            cell = np.array(argument.ctypes.data if isinstance(argument, np.ndarray) else argument)
            if cell.nbytes != size or isinstance(argument, np.ndarray) != (kind != "s"):
                raise TypeError(f"{self.name}: {argument!r} for a parameter {kind} of {size} bytes")
            cells.append(cell)
        params = (ctypes.c_void_p * len(cells))(*(cell.ctypes.data for cell in cells))
        three = ctypes.c_uint * 3
        launch = ctypes.CFUNCTYPE(None, three, three, ctypes.c_void_p * len(cells))(self.address)
        launch(three(*_filled(grid)), three(*_filled(block)), params)


def build(source: str, *names: str, folder: Path) -> dict[str, HostKernel]:
    """Compile kernels, unless the folder has them.

    Args:
        source: CUDA C++.
        *names: The kernels in it.
        folder: Where the library goes, or lies; of this source alone.
    """
    unit, library = folder / "kernel.cpp", folder / "kernel.so"
    if not library.exists():
        _compile(source, names, unit, library)
    loaded = ctypes.CDLL(str(library))
    return {name: _kernel(loaded, name) for name in names}


def _compile(source: str, names: tuple[str, ...], unit: Path, library: Path) -> None:
    exports = "\n".join(f"HOSTCUDA_EXPORT({name})" for name in names)
    unit.write_text(
        f'#define RINGFEED_ON_HOST\n#include "{HEADER}"\n#line 1 "kernel.cu"\n{source}\n{exports}\n'
    )
    more = shlex.split(os.environ.get("HOSTCUDA_FLAGS", ""))
    partial = library.with_suffix(".partial")  # an interrupted build leaves no library
    subprocess.run(["g++", *_FLAGS, *more, unit, "-o", partial], check=True)
    partial.rename(library)


def _kernel(library: ctypes.CDLL, name: str) -> HostKernel:
    sizes, kinds = (ctypes.c_size_t * 64)(), (ctypes.c_char * 64)()
    num = library[f"hostcuda_signature_{name}"](sizes, kinds)
    address = ctypes.cast(library[f"hostcuda_launch_{name}"], ctypes.c_void_p).value
    assert address is not None
    return HostKernel(name, address, tuple(sizes[:num]), kinds.raw[:num].decode(), library)


def _filled(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (*sizes, 1, 1)[:3]
