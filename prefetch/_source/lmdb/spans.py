"""Bytes by their places in one piece of memory: many small views of which none need be made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from prefetch._source.lmdb.meta import Meta


from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy.typing as npt

    from prefetch._source.lmdb.file import DatabaseFile


class Spans(Sequence[memoryview]):
    """A sequence of views that are made when they are asked for. Not thread-safe.

    Args:
        memory: Where they lie; kept until `release`.
        begins: (n,) int64, C-contiguous: offset of each.
        sizes: (n,) int64, C-contiguous: bytes of each.

    Attributes:
        begins: As given.
        sizes: As given.

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
        """Let go of the memory; what is asked for afterwards raises."""
        self._memory = None


class FileSpans(Sequence[memoryview]):
    """Bytes by their places in a file: copies that are read when they are asked for.

    Args:
        file: Where they lie; kept until `release`.
        meta: The state that they belong to.
        begins: (n,) int64: offset of each.
        sizes: (n,) int64: bytes of each.
    """

    __slots__ = ("_begins", "_file", "_meta", "_sizes")

    def __init__(
        self,
        file: DatabaseFile,
        meta: Meta,
        begins: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> None:
        self._file: DatabaseFile | None = file
        self._meta = meta
        self._begins = begins
        self._sizes = sizes

    def __len__(self) -> int:
        """Return n."""
        return len(self._begins)

    @overload
    def __getitem__(self, place: int) -> memoryview: ...
    @overload
    def __getitem__(self, place: slice) -> FileSpans: ...
    def __getitem__(self, place: int | slice) -> memoryview | FileSpans:
        """Return one piece, read now, or some of the spans.

        Raises:
            DatabaseTruncatedError: The file has become shorter.
            SourceError: It cannot be read.
            ValueError: They were released.
        """
        file = self._file
        if file is None:
            raise ValueError("operation forbidden on released spans")
        if isinstance(place, slice):
            return FileSpans(file, self._meta, self._begins[place], self._sizes[place])
        size, begin = int(self._sizes[place]), int(self._begins[place])
        return memoryview(file.read_all(size, begin, self._meta))

    def release(self) -> None:
        """Let go of the file; what is asked for afterwards raises."""
        self._file = None
