"""The ``with`` block of everything that has a ``close``."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


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
