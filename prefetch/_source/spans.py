"""Many small views into one piece of memory, each made only when it is asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Views(Sequence[memoryview]):
    """Keys or values of records: views, each made when it is asked for. Not thread-safe."""

    __slots__ = ()

    @overload
    def __getitem__(self, place: int) -> memoryview: ...
    @overload
    def __getitem__(self, place: slice) -> Views: ...
    @abstractmethod
    def __getitem__(self, place: int | slice) -> memoryview | Views:
        """Return one view, or some of them, which are released by themselves."""

    @abstractmethod
    def release(self) -> None:
        """Drop what the views refer to; idempotent. Asking for one afterwards raises."""


class Spans(Views):
    """Views of the bytes between offsets of one piece of memory. Not thread-safe.

    Args:
        memory: Where they lie; kept until `release`.
        begins: (n,) int64, C-contiguous: offset of each.
        sizes: (n,) int64, C-contiguous: bytes of each.

    Example:
        >>> import numpy as np
        >>> spans = Spans(memoryview(b"key0key1"), np.array([0, 4]), np.array([4, 4]))
        >>> [bytes(view) for view in spans]
        [b'key0', b'key1']
    """

    __slots__ = ("_memory", "begins", "sizes")

    def __init__(
        self,
        memory: memoryview,
        begins: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> None:
        self._memory: memoryview | None = memory
        self.begins = begins
        self.sizes = sizes

    @property
    def memory(self) -> memoryview:
        """The memory that they lie in.

        Raises:
            ValueError: They were released.
        """
        if self._memory is None:
            raise ValueError("operation forbidden on released spans")
        return self._memory

    def __len__(self) -> int:
        """Return n."""
        return len(self.begins)

    @overload
    def __getitem__(self, place: int) -> memoryview: ...
    @overload
    def __getitem__(self, place: slice) -> Spans: ...
    def __getitem__(self, place: int | slice) -> memoryview | Spans:
        """Return one view, or some of the spans."""
        if isinstance(place, slice):
            return Spans(self.memory, self.begins[place], self.sizes[place])
        begin = int(self.begins[place])
        return self.memory[begin : begin + int(self.sizes[place])]

    def release(self) -> None:
        """Drop the memory; asking for a view afterwards raises."""
        self._memory = None
