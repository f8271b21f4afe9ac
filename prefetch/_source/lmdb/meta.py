"""The head of a database file: what one of its two meta pages says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

_SEVERAL_VALUES_A_KEY: Final = 0x04


@dataclass(frozen=True, slots=True)
class Meta:
    """One committed state of a database file.

    Attributes:
        txn_id: Number of the transaction that committed it.
        map_bytes: Size of the map of the writer that committed it.
        page_bytes: Size of a page.
        last_page: Number of the last page in use.
        root: Page that the tree of records begins at; None where there are no records.
        depth: Levels of the tree, leaves included.
        branch_pages: Pages of the tree that lead to others.
        leaf_pages: Pages of the tree that hold records.
        overflow_pages: Pages of values that are too long for a leaf.
        entries: Records.
        flags: LMDB's flags of the tree.
        free_root: Page that the tree of free pages begins at, which only writers read; None where
            there are none.
        free_depth: Levels of that tree.
        free_flags: LMDB's flags of it.
    """

    txn_id: int
    map_bytes: int
    page_bytes: int
    last_page: int
    root: int | None
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    flags: int
    free_root: int | None
    free_depth: int
    free_flags: int

    @property
    def has_several_values(self) -> bool:
        """Whether a key may have several values (dupsort)."""
        return bool(self.flags & _SEVERAL_VALUES_A_KEY)

    @property
    def free(self) -> Meta:
        """The same state with the tree of free pages in the place of the records'."""
        return replace(self, root=self.free_root, depth=self.free_depth, flags=self.free_flags)

    @property
    def size_bytes(self) -> int:
        """The size of a file that ends with the last page in use."""
        return (self.last_page + 1) * self.page_bytes
