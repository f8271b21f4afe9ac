"""The public face of `prefetch` under the distribution's name: ``ringfeed.open`` and all else.

::

    import ringfeed

    with ringfeed.open("train_lmdb", batch_size=32, shuffle=True) as feed:
        for batch in feed:
            images, labels = batch.data.numpy(), batch.label.numpy()

Every name is that of `prefetch`, where it is documented, and so are the modules ``ringfeed.torch``,
``jax``, ``caffe`` and ``testing``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import prefetch
from prefetch import __all__ as __all__

if TYPE_CHECKING:
    from prefetch import *  # noqa: F403 - so that type checkers know the names
else:

    def __getattr__(name: str) -> object:
        """Return a public name of `prefetch`, or import one of its modules at its first use."""
        if name in __all__:
            return getattr(prefetch, name)
        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_MODULES = frozenset({"caffe", "jax", "testing", "torch"})


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
