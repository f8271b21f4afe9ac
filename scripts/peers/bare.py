"""Loops that do the least that any loader has to, to compare loaders with.

``memcpy``: one thread copies pixels from the map of the database into batches in turn. ``crop and
normalise``: one thread cuts them at random, mirrors half of them and computes floats. ``decode``:
threads decode JPEG files, each into a buffer of its own. The records' places are looked up once, in
advance: none of the loops reads LMDB.
"""

from __future__ import annotations

import ctypes
import itertools
import tempfile
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bare_loops import load_bare_loops
from peers.filling import Slots, decode_simplejpeg
from peers.records import Records
from peers.works import PREFETCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from peers.works import Settings, Stream, Work


def candidates(work: Work, *, num_cores: int) -> list[Settings]:  # noqa: ARG001 - as all modules
    """Return one thread; the roster fixes the number where there is a choice."""
    return [{"threads": 1}]


@contextmanager
def open_stream(work: Work, database: Path, settings: Settings) -> Iterator[Stream]:
    """Open a loop: decoding, or copying, or computing, as the work has it; see `OpenStream`."""
    records = Records(database, work)
    payloads, labels = records.take(0, records.num_records)
    all_labels = np.array(labels, np.int64).reshape(-1, work.batch_size)
    batches = [
        payloads[first : first + work.batch_size]
        for first in range(0, len(payloads), work.batch_size)
    ]
    if work.encoded:
        with ThreadPoolExecutor(settings["threads"]) as pool:
            yield _decoded(pool, work, batches, all_labels)
    elif work.dtype == "uint8":
        yield _copied(work, batches, all_labels)
    else:
        with tempfile.TemporaryDirectory(prefix="ringfeed-bare-") as folder:
            loops = load_bare_loops(Path(folder))
            assert loops is not None, "the roster asks for a compiler"
            yield _normalised(loops.crop_and_normalise, work, batches, all_labels)


def _copied(work: Work, batches: list[list[memoryview]], labels: npt.NDArray[np.int64]) -> Stream:
    memcpy = ctypes.CDLL(None).memcpy  # releases the GIL
    memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    slots = Slots(work, PREFETCH + 1)
    nbytes = slots[0][0][0].nbytes
    sources = [
        [np.frombuffer(payload, np.uint8).ctypes.data for payload in batch] for batch in batches
    ]
    for number in itertools.count():
        data, _ = slots[number]
        target = data.ctypes.data
        for source in sources[number % len(sources)]:
            memcpy(target, source, nbytes)
            target += nbytes
        yield data, labels[number % len(sources)]


def _normalised(
    crop_and_normalise: Any,
    work: Work,
    batches: list[list[memoryview]],
    labels: npt.NDArray[np.int64],
) -> Stream:
    """Yield cut, mirrored and normalised images; the GIL is released meanwhile."""
    address, size = ctypes.c_void_p, ctypes.c_size_t
    crop_and_normalise.argtypes = [
        *(address, size, address, size, size, size, size),
        *(address, ctypes.c_float, address),
    ]
    slots = Slots(work, PREFETCH + 1)
    means = np.array(work.mean, np.float32)
    sources = [
        np.array([np.frombuffer(payload, np.uint8).ctypes.data for payload in batch], np.uintp)
        for batch in batches
    ]
    draw = np.random.default_rng(0)
    for number in itertools.count():
        data, _ = slots[number]
        words = draw.integers(0, 2**32, (work.batch_size, 3), np.uint32)
        crop_and_normalise(
            sources[number % len(sources)].ctypes.data,
            work.batch_size,
            words.ctypes.data,
            *work.shape,
            work.crop,
            means.ctypes.data,
            work.scale,
            data.ctypes.data,
        )
        yield data, labels[number % len(sources)]


def _decoded(
    pool: ThreadPoolExecutor,
    work: Work,
    batches: list[list[memoryview]],
    labels: npt.NDArray[np.int64],
) -> Stream:
    """Yield the last image of each batch as its data: decoding alone makes no batch."""
    local = threading.local()
    channels, height, width = work.shape

    def decode(batch: list[memoryview]) -> npt.NDArray[Any]:
        if not hasattr(local, "buffer"):
            local.buffer = np.empty((height, width, channels), np.uint8)
        for file in batch:
            decode_simplejpeg(file, local.buffer)
        image: npt.NDArray[Any] = local.buffer
        return image.transpose(2, 0, 1)[np.newaxis]

    turns = itertools.cycle(range(len(batches)))
    waiting: deque[tuple[int, Future[npt.NDArray[Any]]]] = deque()
    while True:
        while len(waiting) < PREFETCH:
            turn = next(turns)
            waiting.append((turn, pool.submit(decode, batches[turn])))
        turn, future = waiting.popleft()
        yield future.result(), labels[turn]
