"""Measure the tools on this machine: convert against a bare loop, mean against reading.

    benchmark_tools.py [--images N] [--records N] [--rounds N] [--json FILE]

convert   makes a database of JPEGs, resized and encoded anew; the bare loop reads, resizes and
          encodes the same files with OpenCV on all cores, and stores nothing
mean      adds up raw records of 3 x 256 x 256; the bare loop reads every byte of the same records,
          on all cores. The database is in memory (the page cache), not on the disk

Both take turns in every round, so that a slow spell of the machine falls on both. CPU time, which a
busy machine hardly changes, is measured beside wall time. The JSON report is one object:

    format     1
    machine    {cpus: cores that this process may use, load: processes that wanted a core in the
               minute before, on average}
    cases      list of {name; work: images or bytes of a round; tool, bare: list of {wall_s, cpu_s}
               of each round; ratio, cpu_ratio: the bare loop's fastest round / the tool's, of wall
               and of CPU time; limit: the lowest ratio of wall time that passes; passed}

Exit status: 0; 1 if a ratio is below its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import lmdb
import numpy as np

import prefetch.testing
from prefetch._files.output import write_whole
from prefetch._source.source import RecordSource
from prefetch._tools.convert import InputOptions, Treatment, convert, open_input
from prefetch._tools.mean import compute_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SIZE = 256


class Round(NamedTuple):
    """What a round took, in seconds.

    Attributes:
        wall_s: Wall time.
        cpu_s: CPU time of all threads.
    """

    wall_s: float
    cpu_s: float


@dataclass(slots=True)
class Case:
    """A tool and its bare loop, measured in turns.

    Attributes:
        name: The tool.
        work: Images, or bytes, that each of them gets through.
        limit: The lowest ratio that passes.
        tool: What each of the tool's rounds took.
        bare: The same of the bare loop.
    """

    name: str
    work: int
    limit: float
    tool: list[Round] = field(default_factory=list)
    bare: list[Round] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The tool's speed as a share of the bare loop's, each at its fastest."""
        return min(one.wall_s for one in self.bare) / min(one.wall_s for one in self.tool)

    @property
    def cpu_ratio(self) -> float:
        """The bare loop's CPU time as a share of the tool's, each at its least."""
        return min(one.cpu_s for one in self.bare) / min(one.cpu_s for one in self.tool)

    def measure(self, rounds: int, tool: Callable[[], object], bare: Callable[[], object]) -> None:
        """Run both in turns."""
        for _ in range(rounds):
            self.bare.append(_time(bare))
            self.tool.append(_time(tool))

    def report(self) -> dict[str, Any]:
        """Return what was measured, for the JSON report."""
        return {
            "name": self.name,
            "work": self.work,
            "tool": [one._asdict() for one in self.tool],
            "bare": [one._asdict() for one in self.bare],
            "ratio": self.ratio,
            "cpu_ratio": self.cpu_ratio,
            "limit": self.limit,
            "passed": self.ratio >= self.limit,
        }


def measure_convert(folder: Path, num_images: int, rounds: int) -> Case:
    """Measure a conversion of JPEGs with resizing and encoding."""
    images = folder / "images"
    paths = make_images(images, num_images)
    listing = folder / "list.txt"
    listing.write_text("".join(f"{path.name} 0\n" for path in paths))
    treatment = Treatment(resize_height=_SIZE, resize_width=_SIZE, encode_type="jpg")
    done = 0

    def tool() -> None:
        nonlocal done
        done += 1
        opened = open_input([images, listing], InputOptions(treatment=treatment))
        convert(opened.examples, folder / f"converted-{done}")

    def bare() -> None:
        cv2.setNumThreads(1)
        with ThreadPoolExecutor(_num_cpus()) as pool:
            for _ in pool.map(_resize_and_encode, paths):
                pass

    case = Case("convert", num_images, limit=0.8)
    case.measure(rounds, tool, bare)
    return case


def measure_mean(folder: Path, num_records: int, rounds: int) -> Case:
    """Measure the mean of raw records."""
    rng = np.random.default_rng(0)
    records = (
        (
            b"%08d" % index,
            prefetch.testing.encode_image(
                rng.integers(0, 256, (3, _SIZE, _SIZE), np.uint8), label=0
            ),
        )
        for index in range(num_records)
    )
    database = prefetch.testing.write_database(folder / "raw", records)

    def tool() -> None:
        with RecordSource.open(database) as source:
            compute_mean(source)

    def bare() -> None:
        with (
            lmdb.open(str(database), readonly=True, lock=False) as environment,
            environment.begin(buffers=True) as transaction,
            ThreadPoolExecutor(_num_cpus()) as pool,
        ):
            values = [value for _, value in transaction.cursor()]
            share = -(-len(values) // _num_cpus())
            shares = [values[at : at + share] for at in range(0, len(values), share)]
            list(pool.map(_read, shares))

    case = Case("mean", num_records * 3 * _SIZE * _SIZE, limit=0.5)
    case.measure(rounds, tool, bare)
    return case


def make_images(folder: Path, num_images: int) -> list[Path]:
    """Write JPEGs of 500 x 375 pixels with about the detail of photographs."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    paths = []
    for index in range(num_images):
        coarse = cv2.resize(rng.integers(0, 256, (24, 32, 3), np.uint8), (500, 375))
        fine = rng.integers(-12, 13, (375, 500, 3))
        paths.append(folder / f"{index}.jpg")
        cv2.imwrite(str(paths[-1]), np.clip(coarse + fine, 0, 255).astype(np.uint8))
    return paths


def _resize_and_encode(path: Path) -> None:
    image = cv2.imread(str(path))
    assert image is not None, f"{path} was written by this program"
    cv2.imencode(".jpg", cv2.resize(image, (_SIZE, _SIZE)))


def _read(values: Sequence[memoryview]) -> None:
    for value in values:
        np.add.reduce(np.frombuffer(value, np.uint64, len(value) // 8))


def _time(work: Callable[[], object]) -> Round:
    began, cpu_before = time.perf_counter(), time.process_time()
    work()
    return Round(time.perf_counter() - began, time.process_time() - cpu_before)


def _num_cpus() -> int:
    return len(os.sched_getaffinity(0))


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=1000, metavar="N", help="default 1000")
    parser.add_argument("--records", type=int, default=2000, metavar="N", help="default 2000")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="default 5")
    parser.add_argument("--json", metavar="FILE", help="write the report there; - for the output")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="ringfeed-tools-") as folder:
        cases = [
            measure_convert(Path(folder), options.images, options.rounds),
            measure_mean(Path(folder), options.records, options.rounds),
        ]
    report = {
        "format": 1,
        "machine": {"cpus": _num_cpus(), "load": load},
        "cases": [case.report() for case in cases],
    }
    if options.json == "-":
        json.dump(report, sys.stdout, indent=2)
        print()
    else:
        if options.json:
            write_whole(Path(options.json), f"{json.dumps(report, indent=2)}\n".encode())
        for case in cases:
            tool_s, bare_s = (min(one.wall_s for one in of) for of in (case.tool, case.bare))
            print(
                f"{case.name:8} {case.work / tool_s:15,.0f}/s, bare loop "
                f"{case.work / bare_s:15,.0f}/s: {case.ratio:.2f} of it "
                f"({case.cpu_ratio:.2f} by CPU time), expected at least {case.limit}"
            )
    return int(any(case.ratio < case.limit for case in cases))


if __name__ == "__main__":
    sys.exit(main())
