"""Decoded images in a file that several processes share.

A writer appends an image's pixels, and only when all of them are there writes the slot that leads
to them. So whoever is killed, or meets a full disk, leaves bytes that nothing leads to. No lock is
taken: two processes that write one slot at the same time lose one of the entries, or both if it is
mixed of the two, which its digest shows; an image that is lost is decoded again.

A reader looks into a mapping of the file. The pixels of an entry are compared with their digest
when this process first serves them, which takes 34 us for 500 x 375; from then on they are served
as they are in memory.

As for a database, a file that is cut while it is mapped, and a disk that fails, may kill the
process (SIGBUS). Before each look the file's size is compared with what is mapped.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import threading
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from prefetch._decoded_cache.cache import CacheCounts, Tally
from prefetch._decoded_cache.file_format import (
    SLOT_BYTES,
    Entry,
    is_empty,
    slot_offset,
    slots_of,
)
from prefetch._decoded_cache.open_file import is_full, open_file, write_at
from prefetch._errors.os_errors import describe_os_error
from prefetch._errors.printable import printable_path
from prefetch._kernels.digest import digest

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from prefetch._decoded_cache.belonging import Belonging

logger = logging.getLogger("prefetch")


class FileCache:
    """A `DecodedCache` in a file.

    Args:
        path: Where it is, or is to be.
        belonging: What its images belong to.
        num_records: Records of the databases.
        most_bytes: What the file may take; where several processes append at the same moment, each
            of them may add one image more.

    Raises:
        ForeignCacheError: The file is no cache of ours, or that of another feed.
        OSError: It cannot be opened or written.
    """

    def __init__(
        self, path: Path, belonging: Belonging, *, num_records: int, most_bytes: int
    ) -> None:
        self._name = printable_path(str(path))
        self._most_bytes = most_bytes
        self._file = open_file(path, belonging, num_records=num_records, most_bytes=most_bytes)
        self._num_slots = self._file.num_slots
        self._table_end = slot_offset(self._num_slots)
        try:
            self._mapping = self._map()
        except BaseException:
            self.close()
            raise
        # Where the pixels are that were compared with their digest, by slot; 0 for none.
        self._compared = np.zeros(self._num_slots, np.uint64).data
        self._damaged: set[bytes] = set()
        self._appends = True
        self._is_open = True
        self._lock = threading.Lock()
        self._tally = Tally()

    def find(self, key: bytes, *, counts: bool = True) -> NDArray[np.uint8] | None:
        """Return an image, or None; see `DecodedCache`."""
        image = None
        if self._is_open:
            try:
                image = self._find(key)
            except OSError as error:  # no room to map what it has grown by
                self._give_up(describe_os_error(error))
        if counts:
            self._tally.count(is_hit=image is not None)
        return image

    def _find(self, key: bytes) -> NDArray[np.uint8] | None:
        # The mapping first: another thread may append, and map more, between the two.
        mapping = self._mapping
        if os.fstat(self._file.descriptor).st_size < len(mapping):
            self._give_up("it was cut by another program")
            return None
        for slot in slots_of(key, self._num_slots):
            begin = slot_offset(slot)
            packed = mapping[begin : begin + SLOT_BYTES]
            if packed[: len(key)] == key:
                entry = Entry.unpack(packed)
                if entry is not None and key not in self._damaged:
                    return self._pixels(slot, entry)
            elif is_empty(packed):
                return None
        return None

    def _pixels(self, slot: int, entry: Entry) -> NDArray[np.uint8] | None:
        """Return an entry's pixels, if they are whole."""
        mapping, end = self._mapping, entry.offset + entry.nbytes
        if end > len(mapping):
            mapping = self._mapping = self._map()  # the old one stays while images lie in it
        if end <= len(mapping) and entry.offset >= self._table_end and entry.nbytes:
            pixels = np.frombuffer(mapping, np.uint8, entry.nbytes, entry.offset)
            if self._compared[slot] == entry.offset:
                return pixels.reshape(entry.shape)
            if digest(pixels) == entry.digest:
                self._compared[slot] = entry.offset
                return pixels.reshape(entry.shape)
        if not self._damaged:
            logger.warning(
                "%s: an image in it is damaged, and is decoded again; so are any others that are",
                self._name,
            )
        self._damaged.add(entry.key)
        return None

    def store(self, key: bytes, image: NDArray[Any]) -> None:
        """Append an image, if there is room."""
        if not self._appends:
            return
        try:
            with self._lock:  # for its own threads: the end is where the last of them left it
                slot = self._free_slot(key)
                if slot is None:
                    return
                size = os.fstat(self._file.descriptor).st_size
                if size + image.nbytes > self._most_bytes:
                    self._stop(f"it may take {self._most_bytes} bytes")
                    return
                offset = self._append(image)
                entry = Entry(key, offset, digest(image), *image.shape)
                write_at(self._file.descriptor, entry.pack(), slot_offset(slot))
                self._damaged.discard(key)
        except OSError as error:
            if is_full(error):
                self._stop(describe_os_error(error))
            else:
                self._appends = False
                logger.warning(
                    "%s cannot be written, and what is not in it is decoded each time: %s",
                    self._name,
                    describe_os_error(error),
                )

    def _free_slot(self, key: bytes) -> int | None:
        """Return where an entry can be written; None where it is there, or no slot is free."""
        mapping = self._mapping
        for slot in slots_of(key, self._num_slots):
            begin = slot_offset(slot)
            packed = mapping[begin : begin + SLOT_BYTES]
            if packed[: len(key)] == key:
                # Another thread, or another process, was faster; but for one that is damaged.
                is_there = Entry.unpack(packed) is not None and key not in self._damaged
                return None if is_there else slot
            if is_empty(packed) or Entry.unpack(packed) is None:
                return slot
        self._stop("its table is full; a file made anew, once this is removed, has a larger one")
        return None

    def _append(self, image: NDArray[Any]) -> int:
        """Write pixels behind the end of the file, in one step; return where they are.

        Raises:
            OSError: They cannot be written, or not all of them.
        """
        written = os.write(self._file.appending, image.data.cast("B"))
        if written < image.nbytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.lseek(self._file.appending, 0, os.SEEK_CUR) - written

    def _map(self) -> mmap.mmap:
        size = os.fstat(self._file.descriptor).st_size
        return mmap.mmap(self._file.descriptor, size, prot=mmap.PROT_READ)

    def _stop(self, why: str) -> None:
        if self._appends:
            self._appends = False
            logger.warning(
                "%s is full: %s; images that are not in it are decoded each time. Raise "
                "cache.decoded.bytes, or make room",
                self._name,
                why,
            )

    def _give_up(self, why: str) -> None:
        if self._is_open:
            self._is_open = self._appends = False
            logger.warning("%s is used no more: %s; images are decoded", self._name, why)

    def counts(self) -> CacheCounts:
        """Return what it has done."""
        nbytes = 0
        with suppress(OSError):  # closed meanwhile
            nbytes = os.fstat(self._file.descriptor).st_size
        return CacheCounts(self._tally.hits, self._tally.misses, nbytes)

    def close(self) -> None:
        """Close the file; idempotent. Takes no lock: no thread uses it any more."""
        self._is_open = self._appends = False
        descriptor, appending, _ = self._file
        self._file = self._file._replace(descriptor=-1, appending=-1)
        for one in (descriptor, appending):
            if one >= 0:
                os.close(one)

    def __del__(self) -> None:
        # Where there is no attribute yet, opening the file failed.
        file = getattr(self, "_file", None)
        if file is not None and file.descriptor >= 0:
            self.close()
            text = f"the cache of decoded images {self._name} was never closed"
            warnings.warn(text, ResourceWarning, source=self, stacklevel=1)
