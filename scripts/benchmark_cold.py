"""Measure reads from the disk: a database that is in no memory, served with and without advice.

    benchmark_cold.py [DATABASE] [--records N] [--shape CxHxW] [--share PART] [--rounds N]
                      [--batch-size N] [--threads N] [--folder DIR] [--json FILE]

Without a DATABASE writes a temporary one of raw images. Linux only. Three ways of serving are
interleaved, in key order and shuffled, --rounds times:

    warm      the file is in the page cache
    plain     its pages are evicted before, and the readers ask for nothing ahead
    advised   its pages are evicted before, and the feed does as it always does: in key order it
              leaves reading ahead to the system

Pages are evicted by posix_fadvise(DONTNEED) on the database's own file, once all of it is on the
disk. Whether that worked shows mincore(): "resident" is the share of the file that is in the page
cache before and after. Of an epoch the first --share is served. A part of it is what a training run
sees of a database that is larger than memory: what the system reads around each record is dropped
before it is needed.

The JSON report is one object: format (1), what was asked for (records, batch_size, threads,
share), file_bytes, and for "in_order" and "shuffled" one object each:

    warm, plain, advised   records/s of each round
    resident_before        the largest share that was in the page cache before a cold round
    slowdown               warm / plain, of the medians: what reading from the disk costs
    gain                   advised / plain, of the medians of pairs

Exit status: 0; 1 where pages cannot be evicted: a tmpfs has no disk, another program may hold them.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import mmap
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

import prefetch
from prefetch._files.output import write_whole
from prefetch._pipeline.cold_reads import ColdReads
from prefetch._source.source import RecordSource
from prefetch.testing import encode_image, write_database

_MOST_LEFT: Final = 0.02  # of the file; what another process has mapped stays
_ORDERS: Final = {"in_order": False, "shuffled": True}
_WAYS: Final = ("warm", "plain", "advised")


def resident(file: Path) -> float:
    """Return which share of a file is in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = file.stat().st_size
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), size, prot=mmap.PROT_READ)
    pages = np.frombuffer(mapped, np.uint8)
    found = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
    address = ctypes.c_void_p(pages.ctypes.data)
    if libc.mincore(address, ctypes.c_size_t(size), ctypes.c_void_p(found.ctypes.data)):
        raise OSError(ctypes.get_errno(), "mincore failed")
    return float((found & 1).mean())


def evict(file: Path) -> None:
    """Have a file's pages read from the disk again."""
    gc.collect()  # what a mapping holds cannot be dropped
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # nor what is not written yet
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def read_whole(file: Path) -> None:
    """Have a file in the page cache."""
    with file.open("rb") as opened:
        while opened.read(1 << 22):
            pass


def serve(database: Path, options: argparse.Namespace, *, shuffle: bool, seed: int) -> float:
    """Serve the first part of an epoch; return records/s."""
    config = {"source": str(database), "shuffle": shuffle, "seed": seed, "epochs": 1}
    sizes = {"batch_size": options.batch_size, "threads": options.threads}
    with prefetch.open(config, transform={"dtype": "uint8"}, **sizes) as feed:
        num_batches = max(1, math.ceil(options.share * len(feed)))
        began = time.perf_counter()
        num_records = 0
        for number, batch in enumerate(feed, start=1):
            num_records += len(batch.keys)
            if number == num_batches:
                break
        return num_records / (time.perf_counter() - began)


def measure(database: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one database, in both orders."""
    file = database / "data.mdb" if database.is_dir() else database
    report: dict[str, Any] = {"file_bytes": file.stat().st_size}
    for order, shuffle in _ORDERS.items():
        rates: dict[str, list[float]] = {way: [] for way in _WAYS}
        before = []
        for seed in range(options.rounds):
            for way in _WAYS:
                with ExitStack() as stack:
                    if way == "warm":
                        read_whole(file)
                    else:
                        evict(file)
                        before.append(resident(file))
                    if way == "plain":
                        stack.enter_context(mock.patch.object(ColdReads, "note_wait"))
                        stack.enter_context(
                            mock.patch.object(RecordSource, "was_cold", return_value=False)
                        )
                    rates[way].append(serve(database, options, shuffle=shuffle, seed=seed))
        pairs = zip(rates["plain"], rates["advised"], strict=True)
        report[order] = {
            **rates,
            "resident_before": max(before),
            "slowdown": statistics.median(rates["warm"]) / statistics.median(rates["plain"]),
            "gain": statistics.median(advised / plain for plain, advised in pairs),
        }
    return report


def _write(folder: Path, options: argparse.Namespace) -> Path:
    """Write raw images of noise."""
    channels, height, width = (int(size) for size in options.shape.split("x"))
    draw = np.random.default_rng(0)
    shape = channels, height, width
    return write_database(
        folder / "db",
        (
            (b"%08d" % number, encode_image(draw.integers(0, 256, shape, np.uint8), label=0))
            for number in range(options.records)
        ),
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("database", nargs="?", type=Path, metavar="DATABASE")
    parser.add_argument("--records", type=int, default=10_000, metavar="N")
    parser.add_argument("--shape", default="3x256x256", metavar="CxHxW")
    parser.add_argument("--share", type=float, default=0.1, metavar="PART")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--folder", metavar="DIR", help="where to write; default: as tempfile")
    parser.add_argument("--json", metavar="FILE", help="write the report there; - for the output")
    options = parser.parse_args(arguments)
    asked = {name: getattr(options, name) for name in ("batch_size", "threads", "share")}
    with tempfile.TemporaryDirectory(prefix="ringfeed-cold-", dir=options.folder) as scratch:
        database = options.database or _write(Path(scratch), options)
        with RecordSource.open(database) as source:
            asked["records"] = source.num_records
        report = {"format": 1, **asked, **measure(database, options)}
    if options.json == "-":
        json.dump(report, sys.stdout, indent=2)
        print()
    else:
        if options.json:
            write_whole(Path(options.json), f"{json.dumps(report, indent=2)}\n".encode())
        _print(report)
    return int(any(report[order]["resident_before"] > _MOST_LEFT for order in _ORDERS))


def _print(report: dict[str, Any]) -> None:
    print(f"{report['records']:,} records, {report['file_bytes']:,} bytes, records/s (medians):")
    for order in _ORDERS:
        found = report[order]
        rates = ", ".join(f"{way} {statistics.median(found[way]):,.0f}" for way in _WAYS)
        print(
            f"{order:9} {rates}; warm is {found['slowdown']:.1f} times plain, "
            f"advised {found['gain']:.1f} times; "
            f"{found['resident_before']:.1%} resident before cold rounds"
        )


if __name__ == "__main__":
    sys.exit(main())
