"""The ``with`` block of everything that has a ``close``, and the warning where it was forgotten."""

from __future__ import annotations

import abc
import warnings
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType


def warn_collected_open(stream: Any, *, device: str) -> None:
    """Give the ResourceWarning of a stream's finalizer."""
    warnings.warn(
        f"stream {stream.name!r} of device {device!r} was collected open: close it, or use it as a "
        f"context manager",
        ResourceWarning,
        source=stream,
        stacklevel=2,
    )


class Closeable:
    """Something that is closed at the end of its ``with`` block."""

    __slots__ = ()

    @abc.abstractmethod
    def close(self) -> None:
        """Close it. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
