"""Measure how long ``ringfeed inspect`` takes to answer for a large database.

Usage: benchmark_inspect.py [--records N] [--rounds N]

Writes a temporary database of raw records of 3x16x16 (about 0.8 GB for a million), and times the
command, start of the interpreter included: wall time, and CPU time, which a busy machine leaves
alone. Exit status 1 where the fastest round takes longer than 2 s.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lmdb

from prefetch._record.wire import encode_datum

LIMIT_S = 2.0


def write(folder: Path, num_records: int) -> None:
    """Write the database, in key order."""
    pixels = os.urandom(3 * 16 * 16)
    map_size = num_records * 1024 + (1 << 24)
    with (
        lmdb.open(str(folder), map_size=map_size, lock=False) as database,
        database.begin(write=True) as transaction,
    ):
        for number in range(num_records):
            value = encode_datum(
                channels=3, height=16, width=16, data=pixels, label=number * 7919 % 1000
            )
            transaction.put(b"%08d_image.png" % number, value, append=True)


def time_inspect(folder: Path) -> tuple[float, float]:
    """Return the wall time and the CPU time of one run, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    command = [sys.executable, "-m", "prefetch.cli", "inspect", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own command
    wall_s = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ringfeed-inspect-") as scratch:
        folder = Path(scratch) / "lmdb"
        write(folder, options.records)
        rounds = [time_inspect(folder) for _ in range(options.rounds)]
    for wall_s, cpu_s in rounds:
        print(f"{options.records} records: {wall_s:.2f} s, of CPU time {cpu_s:.2f} s")
    return int(min(wall_s for wall_s, _ in rounds) > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
