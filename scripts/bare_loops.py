"""Builds and loads bare_loops.c: the work of the kernels in plain C, to measure them against."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path


def find_compiler() -> str | None:
    """Return the path of a C compiler, or None."""
    return next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


def load_bare_loops(folder: Path) -> ctypes.CDLL | None:
    """Build the loops for this very machine, and load them.

    Args:
        folder: Where the library goes; it must stay while the loops are used.

    Returns:
        The library; None where there is no compiler.

    Raises:
        CalledProcessError: The compiler failed.
    """
    compiler = find_compiler()
    if compiler is None:
        return None
    library = folder / "bare_loops.so"
    source = Path(__file__).with_name("bare_loops.c")
    flags = ["-std=c11", "-O3", "-march=native", "-ffp-contract=off", "-fPIC", "-shared"]
    subprocess.run([compiler, *flags, source, "-o", library], check=True)  # noqa: S603 (ours)
    return ctypes.CDLL(str(library))
