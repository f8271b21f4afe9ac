"""Ranges for NVIDIA's profilers, which show what each thread is at: read, decode, transform, push.

The environment variable ``RINGFEED_NVTX``, read at import, asks for them: 1, or 0 or nothing for
none. Nothing says whether a profiler is attached, so nothing asks. They are made by the
package nvtx where it is installed, else by CuPy. Without them no function is wrapped, so that they
cost nothing.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

logger = logging.getLogger("prefetch")

_VARIABLE: Final = "RINGFEED_NVTX"
_DOMAIN: Final = "ringfeed"


class _Ranges(NamedTuple):
    """What begins a range on the calling thread, by its name, and what ends the last one."""

    push: Callable[[str], object]
    pop: Callable[[], object]


def _choose(wish: str) -> _Ranges | None:
    """Return what makes ranges; None where none are wanted, or nothing makes them.

    Raises:
        ValueError: The value is none of those documented.
    """
    if wish not in ("", "0", "1"):
        raise ValueError(f"{_VARIABLE} is {wish!r}, and must be 1 or 0")
    if wish != "1":
        return None
    try:
        nvtx = importlib.import_module("nvtx")
    except ImportError:
        cupy = importlib.import_module("memory._cuda.runtime").cupy  # only here: it imports CuPy
        if cupy is not None and cupy.cuda.nvtx.available:
            return _Ranges(
                lambda name: cupy.cuda.nvtx.RangePush(f"{_DOMAIN} {name}"),
                cupy.cuda.nvtx.RangePop,
            )
        logger.warning("%s is 1, and neither nvtx nor CuPy is installed: no ranges", _VARIABLE)
        return None
    return _Ranges(
        lambda name: nvtx.push_range(name, domain=_DOMAIN),
        lambda: nvtx.pop_range(domain=_DOMAIN),
    )


_ranges = _choose(os.environ.get(_VARIABLE, ""))


def ranged(
    name: str,
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Have a function's calls be ranges of this name, if that is asked for."""

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        if _ranges is None:
            return function
        push, pop = _ranges

        @functools.wraps(function)
        def within(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            push(name)
            try:
                return function(*args, **kwargs)
            finally:
                pop()

        return within

    return decorate
