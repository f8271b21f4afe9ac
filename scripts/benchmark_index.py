"""Measure the packed index: how long it takes to build, and what it takes in memory.

    benchmark_index.py [--records N] [--folder DIR] [--json FILE]

Writes a temporary database of the smallest images there are, one grey pixel each (about 32 bytes a
record with its key), then opens it shuffled in a new process and takes the first batch. 100 million
records take 3.2 GB of disk and some minutes to write. The JSON report is one object:

    format         1
    records        records of the database
    file_bytes     size of its data file
    cold_s         until the first batch of 64 is there, the index included; the file is not in
                   the page cache
    warm_s         the same once it is
    index_s        of that, the building of the index
    index_bytes    memory that the index keeps
    reports        calls of the index's progress
    rss_bytes      the process's highest resident set; it counts the file's pages that are mapped
    heap_bytes     the most that Python and NumPy had allocated at a time, by tracemalloc, in a
                   process of its own, since tracing takes time

Exit status: 0; 1 where the index takes more than 8 bytes a record.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

import prefetch
from prefetch._files.output import write_whole
from prefetch._record.wire import encode_datum
from prefetch._source.lmdb.database import LmdbDatabase

_BATCH_SIZE = 64
_RECORDS_A_COMMIT = 1_000_000
_MOST_BYTES_A_RECORD = 8


def write(folder: Path, num_records: int) -> None:
    """Write the database, in key order; nothing is synced, since nothing is to last."""
    value = encode_datum(channels=1, height=1, width=1, data=b"\x80", label=1)
    map_size = num_records * 64 + (1 << 24)
    with lmdb.open(str(folder), map_size=map_size, lock=False, sync=False) as environment:
        for start in range(0, num_records, _RECORDS_A_COMMIT):
            stop = min(start + _RECORDS_A_COMMIT, num_records)
            with environment.begin(write=True) as transaction:
                pairs = ((b"%09d" % number, value) for number in range(start, stop))
                transaction.cursor().putmulti(pairs, append=True)


def measure(folder: Path, *, trace: bool) -> dict[str, Any]:
    """Open a database shuffled and take a batch; in a process of its own."""
    if trace:
        tracemalloc.start()
    began = time.perf_counter()
    with prefetch.open({"source": str(folder)}, batch_size=_BATCH_SIZE, shuffle=True) as feed:
        batch = next(iter(feed))
        first_batch_s = time.perf_counter() - began
        keys = [b"%09d" % index for index in batch.indices]
        assert keys == batch.keys, "the index leads to other records"
    if trace:
        return {"heap_bytes": tracemalloc.get_traced_memory()[1]}
    rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"warm_s": first_batch_s, "rss_bytes": rss_bytes, **_index(folder)}


def _index(folder: Path) -> dict[str, Any]:
    """Build the index alone, which is in the page cache by now."""
    reports = 0

    def count(path: str, num_read: int, num_pages: int) -> None:
        del path, num_read, num_pages
        nonlocal reports
        reports += 1

    with closing(LmdbDatabase.open(folder, index_progress=count)) as database:
        began = time.perf_counter()
        index = database.index()
        index_s = time.perf_counter() - began
        places = np.array([0, database.num_records - 1])
        assert [b"%09d" % place for place in places] == index.keys(places)
        return {"index_s": index_s, "index_bytes": index.nbytes, "reports": reports}


def _drop_from_cache(file: Path) -> None:
    """Have the file's pages read from the disk again."""
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.fsync(descriptor)  # what is not written yet cannot be dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _measure_apart(folder: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", str(folder), *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)  # noqa: S603 - our own
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--folder", metavar="DIR", help="where to write; default: as tempfile")
    parser.add_argument("--json", metavar="FILE", help="write the report there; - for the output")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--trace", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure is not None:
        json.dump(measure(options.measure, trace=options.trace), sys.stdout)
        return 0
    with tempfile.TemporaryDirectory(prefix="ringfeed-index-", dir=options.folder) as scratch:
        folder = Path(scratch)
        write(folder, options.records)
        _drop_from_cache(folder / "data.mdb")
        cold_s = _measure_apart(folder)["warm_s"]
        report = {
            "format": 1,
            "records": options.records,
            "file_bytes": (folder / "data.mdb").stat().st_size,
            "cold_s": cold_s,
            **_measure_apart(folder),
            **_measure_apart(folder, "--trace"),
        }
    if options.json == "-":
        json.dump(report, sys.stdout, indent=2)
        print()
    else:
        if options.json:
            write_whole(Path(options.json), f"{json.dumps(report, indent=2)}\n".encode())
        for name, value in report.items():
            print(f"{name:12} {value:,.3f}" if isinstance(value, float) else f"{name:12} {value:,}")
    return int(report["index_bytes"] > _MOST_BYTES_A_RECORD * report["records"])


if __name__ == "__main__":
    sys.exit(main())
