"""What is checked before LMDB opens a database for writing.

LMDB trusts what a file says. On a damaged page it ends the process (its asserts call abort), reads
behind the end of the file (SIGBUS) or writes behind the end of a page; it follows links in the
database's folder, and waits for pipes. So all that is there has to be regular files, and both trees
of the database, that of the records and that of the free pages, have to be sound in all that LMDB
relies on.
"""

from __future__ import annotations

import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from prefetch._errors.classes import CorruptDatabaseError, SourceError
from prefetch._source.lmdb.pages import BRANCH, LEAF, LONG_VALUE, NODE_BYTES, TreePages

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy.typing as npt

    from prefetch._source.lmdb.file import DatabaseFile
    from prefetch._source.lmdb.meta import Meta

_PAGE_SIZES: Final = range(4096, 32769)  # that LMDB writes
_LONGEST_KEY_BYTES: Final = 511
_MOST_TXNS: Final = 2**63
_TREE_FLAGS: Final = 0x7E  # others are those of the environment
_INTEGER_KEYS: Final = 0x08
_FIRST_PAGE: Final = 2
_NUMBER_BYTES: Final = 8


def find_irregular(paths: Iterable[Path]) -> Path | None:
    """Return the first path where there is something but a regular file; None for none.

    Raises:
        OSError: One of them cannot be looked at.
    """
    for path in paths:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                return path
    return None


def check_sound(file: DatabaseFile) -> None:
    """Raise unless LMDB can write to a database without harm to the process.

    Reads all pages but those of long values; a million small records take seconds.

    Raises:
        CorruptDatabaseError: Something that LMDB builds on is damaged.
        DatabaseTruncatedError: The file is shorter than its pages.
    """
    while True:
        meta = file.newest()
        try:
            _check(file, meta)
        except SourceError:
            if file.newest() == meta:
                raise  # else writers of other processes have got past it meanwhile
        else:
            return


def _check(file: DatabaseFile, meta: Meta) -> None:
    if (
        meta.page_bytes not in _PAGE_SIZES
        or meta.txn_id >= _MOST_TXNS
        or meta.flags
        or meta.free_flags & _TREE_FLAGS != _INTEGER_KEYS
        or file.metas()[meta.txn_id & 1].txn_id != meta.txn_id
    ):
        raise CorruptDatabaseError(file.path, "is damaged: its head is none that LMDB writes")
    used = bytearray(meta.last_page + 1)
    used[:_FIRST_PAGE] = b"\1" * _FIRST_PAGE
    records = _Tree(file, meta, used)
    if records.check() != meta.entries:
        raise CorruptDatabaseError(
            file.path, f"is damaged: its leaves hold other than {meta.entries} records"
        )
    _FreeTree(file, meta.free, used).check()


class _Tree(TreePages):
    """A tree of which each page is looked at; it marks those that it uses, each once.

    Args:
        file: The database.
        meta: The state, with the root and the depth of the tree.
        used: A byte a page, not 0 where it is used.
    """

    _least_children = 2  # LMDB asserts it, but of free pages

    def __init__(self, file: DatabaseFile, meta: Meta, used: bytearray) -> None:
        super().__init__(file, meta)
        self._used = used
        self._last_key = b""

    def check(self) -> int:
        """Return how many entries the tree has.

        Raises:
            CorruptDatabaseError: A page is not as LMDB writes it, or used twice.
        """
        if self._meta.root is None:
            return 0
        if self._meta.depth < 1:
            raise self._corrupt("it has a tree of no levels")
        return self._check_below(self._root(), self._meta.depth)

    def _check_below(self, number: int, depth: int) -> int:
        kind = LEAF if depth == 1 else BRANCH
        words, nodes = self._nodes(number, kind)
        self._use(number, 1)
        if words[5] != kind:  # a page that says that it is not written yet is written in place
            raise self._corrupt(f"page {number} has the flags {words[5]:#x}")
        self._check_nodes(number, words, nodes, kind)
        if kind == BRANCH:
            if nodes.size < self._least_children:
                raise self._corrupt(f"page {number} leads to {nodes.size} page")
            return sum(
                self._check_below(child, depth - 1) for child in self.children(number).tolist()
            )
        self._check_keys(number, words, nodes)
        for first, num_pages in self.long_values(number):
            self._use(first, num_pages)
        return int(nodes.size)

    def _check_nodes(
        self,
        number: int,
        words: npt.NDArray[np.uint16],
        nodes: npt.NDArray[np.int64],
        kind: int,
    ) -> None:
        """Raise unless the nodes fill the page from its free space to its end, without a gap."""
        flags, key_bytes = words[nodes + 2], words[nodes + 3].astype(np.int64)
        value_bytes = np.zeros(nodes.size, np.int64)
        if kind == LEAF:
            value_bytes = words[nodes] | words[nodes + 1].astype(np.int64) << 16
            value_bytes[flags == LONG_VALUE] = _NUMBER_BYTES
            if (flags & ~np.uint16(LONG_VALUE)).any() or (key_bytes == 0).any():
                raise self._corrupt(f"page {number} holds other than records")
        ends = 2 * nodes + (NODE_BYTES + key_bytes + value_bytes + 1) // 2 * 2
        order = np.argsort(nodes)
        begins, ends = 2 * nodes[order], ends[order]
        if (
            begins[0] != words[7]
            or ends[-1] != self._meta.page_bytes
            or (ends[:-1] != begins[1:]).any()
            or key_bytes.max() > _LONGEST_KEY_BYTES
        ):
            raise self._corrupt(f"page {number} has records that overlap, or space between them")

    def _check_keys(
        self, number: int, words: npt.NDArray[np.uint16], nodes: npt.NDArray[np.int64]
    ) -> None:
        page = words.tobytes()
        for node, size in zip((2 * nodes).tolist(), words[nodes + 3].tolist(), strict=True):
            key = page[node + NODE_BYTES : node + NODE_BYTES + size]
            if not self._is_behind(key):
                raise self._corrupt(f"page {number} has keys that are not in order")
            self._last_key = key

    def _is_behind(self, key: bytes) -> bool:
        return key > self._last_key

    def _use(self, first: int, num_pages: int) -> None:
        if self._used.find(1, first, first + num_pages) >= 0:
            raise self._corrupt(f"page {first} is used twice")
        self._used[first : first + num_pages] = b"\1" * num_pages


class _FreeTree(_Tree):
    """The tree of free pages: by transaction, the pages that it freed, the last first."""

    _least_children = 1

    def __init__(self, file: DatabaseFile, meta: Meta, used: bytearray) -> None:
        super().__init__(file, meta, used)
        self._last_page = max(one.last_page for one in file.metas() if one.txn_id == meta.txn_id)
        self._unwritten: set[int] = set()

    def _check_keys(
        self, number: int, words: npt.NDArray[np.uint16], nodes: npt.NDArray[np.int64]
    ) -> None:
        super()._check_keys(number, words, nodes)
        for slot in range(nodes.size):
            _, _, begin, size = self.locate(number, slot)
            numbers = np.frombuffer(
                self._file.read_all(size, begin, self._meta)[: size & ~7], "<u8"
            )
            if not numbers.size or numbers[0] >= numbers.size:
                raise self._corrupt(f"page {number} has a list of free pages that is cut")
            free = numbers[1 : 1 + int(numbers[0])]
            if (free[1:] >= free[:-1]).any() or (
                free.size and not _FIRST_PAGE <= free[-1] <= free[0] <= self._last_page
            ):
                raise self._corrupt(f"page {number} has free pages that are none")
            for page in free.tolist():
                self._free(page)

    def _free(self, page: int) -> None:
        if page < len(self._used):
            self._use(page, 1)
        elif page in self._unwritten:
            raise self._corrupt(f"page {page} is free twice")
        else:
            self._unwritten.add(page)

    def _is_behind(self, key: bytes) -> bool:
        return len(key) == _NUMBER_BYTES and (
            not self._last_key
            or int.from_bytes(key, "little") > int.from_bytes(self._last_key, "little")
        )
