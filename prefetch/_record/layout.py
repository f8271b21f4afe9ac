"""What a layout offers: the meaning of a record's bytes.

How to write a second one stands in docs/design/0016-adding-a-record-layout.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from prefetch._record.faults import BadRecordError

RecordKind: TypeAlias = Literal["raw", "float", "encoded"]
"""Whether a record holds bytes a pixel, floats, or an image file."""


class Content(Protocol):
    """What one value says. Valid as long as the value's memory."""

    @property
    def kind(self) -> RecordKind:
        """What it holds, whether that is sound or not."""
        ...

    @property
    def label(self) -> int:
        """Its label, an int32; 0 where the layout has none."""
        ...

    def image_bytes(self) -> memoryview:
        """Return the image file that an encoded record holds.

        Raises:
            BadRecordError: It holds none.
        """
        ...

    def pixels(self, dtype: np.dtype[Any], /) -> NDArray[Any]:
        """Return the pixels of a raw or float record, without a copy where its bytes allow it.

        Args:
            dtype: Type of the batch.

        Returns:
            uint8 or float32 (channels, height, width), read-only.

        Raises:
            BadRecordError: The record contradicts itself, or its pixels do not fit the type.
        """
        ...


class RecordLayout(Protocol):
    """The meaning of values. Stateless and thread-safe."""

    @property
    def is_native(self) -> bool:
        """Whether the C kernel reads values of this layout by itself.

        Otherwise `read` is called once a record, with the GIL held: 2 us and more.
        """
        ...

    def read(self, value: memoryview, /) -> Content:
        """Read one value, (n,) uint8, in place; copies no pixels.

        Raises:
            BadRecordError: The value is of another layout, or damaged.
        """
        ...

    def unreadable(
        self, reason: int, numbers: tuple[int, ...], value: memoryview, /
    ) -> BadRecordError:
        """Return what `read` raises for a value, given what a kernel has found wrong with it."""
        ...
