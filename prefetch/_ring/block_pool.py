"""The host memory that is lent to slots while their batches are filled and copied to the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefetch._ring.push_block import HostBlock

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory import Device, Event


class _Copied:
    """A block that is free when the copies from it have run.

    Attributes:
        block: The block.
        event: Passes then.
        calls: Whether the event calls back, or has.
    """

    __slots__ = ("block", "calls", "event")

    def __init__(self, block: HostBlock, event: Event) -> None:
        self.block = block
        self.event = event
        self.calls = False


class BlockPool:
    """A few blocks of pinned memory, lent in turn. Not thread-safe.

    Args:
        device: Whose pinned memory it is.
        num_blocks: How many there are.

    Attributes:
        blocks: All of them.
        free: Those that can be lent.
    """

    __slots__ = ("_copied", "blocks", "free")

    def __init__(self, device: Device, num_blocks: int) -> None:
        self.blocks = [HostBlock(device) for _ in range(num_blocks)]
        self.free = list(self.blocks)
        self._copied: list[_Copied] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(block.nbytes for block in self.blocks)

    @property
    def is_copying(self) -> bool:
        """Whether there are blocks that copies may still be read from."""
        return bool(self._copied)

    def take_back(self, block: HostBlock, copied: Event | None) -> None:
        """Take back what was lent.

        Args:
            block: The block.
            copied: Passes when the copies from it have run; None if there are none.
        """
        if copied is None:
            self.free.append(block)
        else:
            self._copied.append(_Copied(block, copied))

    def collect(self) -> None:
        """Take in those whose copies have run."""
        for copied in [copied for copied in self._copied if copied.event.done()]:
            self._copied.remove(copied)
            self.free.append(copied.block)

    def call_back(self, call: Callable[[Event], object]) -> None:
        """Have a call come for each copy that runs, unless a block is free; once for each.

        Args:
            call: Makes an event call back.
        """
        if self.free:
            return
        for copied in self._copied:
            if not copied.calls:
                copied.calls = True
                call(copied.event)

    def drop(self) -> None:
        """Free the memory; copies in flight keep it."""
        for block in self.blocks:
            block.drop()
