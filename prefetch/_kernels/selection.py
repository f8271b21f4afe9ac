"""Chooses which kernels fill rows: the C extension, or its NumPy twin.

The environment variable ``RINGFEED_KERNELS``, read at import, says which:

=========  =====================================================================================
``auto``   the C extension where it is installed, else the twin; so too where nothing is set
``c``      the C extension; importing fails where it is missing, for those who rely on its speed
``numpy``  the twin, to compare with or to rule the extension out
=========  =====================================================================================

The extension is missing where the package was built without a C compiler. Results are the same bit
for bit; the twin takes 2 to 40 times the CPU time (docs/design/0006-c-kernels.md).
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, cast

from memory.wording import DISTRIBUTION
from prefetch import _shadowing
from prefetch._kernels import reference

if TYPE_CHECKING:
    from prefetch._kernels.contract import Kernels, NativeKernels

logger = logging.getLogger("prefetch")

_VARIABLE = "RINGFEED_KERNELS"

_CURE = "it is built where a C compiler is found: install one (gcc or clang), and then " + (
    f"this checkout again (python -m pip install --editable {_shadowing.HERE})"
    if _shadowing.is_checkout()
    else "the package again, from its sources (python -m pip install --force-reinstall "
    f"--no-cache-dir {DISTRIBUTION})"
)


def choose(wish: str) -> Kernels:
    """Return the kernels for a value of ``RINGFEED_KERNELS``.

    Raises:
        ImportError: The C extension is asked for and missing.
        ValueError: The value is none of those documented.
    """
    if wish not in ("auto", "c", "numpy"):
        raise ValueError(f"{_VARIABLE} is {wish!r}, and must be auto, c or numpy")
    if wish != "numpy":
        try:
            from prefetch._kernels import _c  # noqa: PLC0415 - not everywhere, nor always wanted
        except ImportError as error:
            if wish == "c":
                raise ImportError(
                    f"{_VARIABLE} is 'c', but the extension prefetch._kernels._c is not there "
                    f"({error}); {_CURE}"
                ) from error
        else:
            return _c
    return reference


kernels: Kernels = choose(os.environ.get(_VARIABLE) or "auto")
"""What record transformers use unless they are given others."""

kernels_available: bool = kernels is not reference
"""Whether the C extension is there and in use."""

native: NativeKernels | None = None if kernels is reference else cast("NativeKernels", kernels)
"""What there is in C only; None where the twin is used, with which no file is mapped."""

_said: set[str] = set()


def announce() -> None:
    """Say in the log, once in the process's life, where the twin is used."""
    if kernels_available or _said:
        return
    _said.add("twin")
    if os.environ.get(_VARIABLE) == "numpy":
        logger.info("NumPy transforms the records, since %s says so", _VARIABLE)
    else:
        logger.warning(
            "NumPy transforms the records, in 2 to 40 times the CPU time, since the C extension "
            "prefetch._kernels._c is not installed; %s",
            _CURE,
        )
