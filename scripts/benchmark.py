"""Measure a feed on this machine: images/s, CPU time per image, waiting, and overlap.

    benchmark.py [CONFIG]                what a configuration gives to four kinds of loop
    benchmark.py [CONFIG] --overlap      whether readers and a loop of equal cost run at once

Without CONFIG a temporary database of random raw images is used. Everything is measured in several
rounds in which all cases take turns, so that a slow spell of the machine falls on all of them.

With --json the report is one object:

    format     1
    machine    {python, numpy, platform, cpus: cores that this process may use, load: processes that
               wanted a core in the minute before, on average}
    feed       {source, batch_size, sample_shape, dtype, bytes_per_batch, threads, device}
    cases      list of {consumer, description, prefetch, rounds: list of {batches, images, bytes,
               elapsed_s, cpu_s, waited_s, waits, mean_ready}}; cpu_s is that of the whole process
    overlap    empty without --overlap; list of {consumer, prefetch; reader_s, consumer_s, batch_s:
               what a batch takes the readers alone, the consumer alone, and both, as medians;
               ratio: batch_s / max(reader_s, consumer_s); ratio_best: the same of the fastest
               rounds; limit: the highest ratio that passes, passed: both null where none is set}

Exit status: 0; 1 if a ratio is above its limit; 2 if something could not be opened.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

import memory
import prefetch
import prefetch.testing
from overlap import measure_overlap, overlap_table
from prefetch._files.output import write_whole
from prefetch.cli.benchmark.measurement import Effort
from prefetch.cli.benchmark.throughput import describe, measure_throughput, throughput_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from overlap import Overlap

_BUSY_LOAD = 0.5


@contextlib.contextmanager
def random_database(num_records: int, shape: tuple[int, int, int]) -> Iterator[Path]:
    """Give a temporary database of random raw images.

    Args:
        num_records: How many.
        shape: (C, H, W) of the uint8 images.

    Yields:
        Its folder.
    """
    rng = np.random.default_rng(0)
    records = (
        (
            b"%08d" % index,
            prefetch.testing.encode_image(rng.integers(0, 256, shape, np.uint8), label=index),
        )
        for index in range(num_records)
    )
    with tempfile.TemporaryDirectory(prefix="ringfeed-benchmark-") as folder:
        yield prefetch.testing.write_database(Path(folder) / "lmdb", records)


def random_config(source: Path, shape: tuple[int, int, int]) -> dict[str, Any]:
    """Return a configuration for a `random_database`: all of crop, mirror, mean and scale."""
    side = min(shape[1:])
    return {
        "source": source,
        "transform": {
            "crop_size": side - side // 8,
            "mirror": True,
            "mean_value": [127.5],
            "scale": 1 / 127.5,
        },
    }


def run(options: argparse.Namespace) -> int:
    """Measure and report; return the exit status."""
    report_to = Console(stderr=options.json == "-", highlight=False)
    progress = Console(stderr=True)
    effort = Effort(rounds=options.rounds, batches=options.batches, seconds=options.seconds)
    consumer_s = options.consumer_ms / 1000
    with contextlib.ExitStack() as stack:
        config: Any = options.config
        if config is None:
            database = stack.enter_context(random_database(options.records, options.shape))
            config = random_config(database, options.shape)
        given = {
            name: value
            for name in ("threads", "prefetch", "batch_size", "device")
            if (value := getattr(options, name)) is not None
        }

        def open_feed(**settings: Any) -> prefetch.Feed:
            return prefetch.open(config, **{"epochs": None, **given, **settings})

        source = "random" if options.config is None else str(options.config)
        report: dict[str, Any] = {"format": 1, **describe(open_feed, source)}
        if (load := report["machine"]["load"]) > _BUSY_LOAD:
            progress.print(
                f"This machine is busy (load {load:.1f}): expect bad and unsteady numbers."
            )
        overlaps: list[Overlap] = []
        if options.overlap:
            cases, overlaps = measure_overlap(
                open_feed,
                effort,
                reader_s=options.reader_ms / 1000,
                consumer_s=consumer_s,
                threads=options.threads or 1,
                console=progress,
            )
            report["feed"]["batch_size"] = cases[0].feed.config.batch_size
            report_to.print(overlap_table(overlaps))
        else:
            cases = measure_throughput(open_feed, effort, consumer_s=consumer_s, console=progress)
            report_to.print(throughput_table(cases))
            for case in cases:
                report_to.print(f"  {case.consumer.name:<8}{case.consumer.description}")
        report["cases"] = [case.as_json() for case in cases]
        report["overlap"] = [dataclasses.asdict(one) for one in overlaps]
    if options.json is not None:
        text = json.dumps(report, indent=2) + "\n"
        if options.json == "-":
            sys.stdout.write(text)
        else:
            write_whole(Path(options.json), text.encode())
    return 1 if any(one.passed is False for one in overlaps) else 0


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", nargs="?", type=Path, metavar="CONFIG", help="YAML file")
    parser.add_argument("--overlap", action="store_true", help="measure overlap instead")
    parser.add_argument("--json", metavar="FILE", help="write the report there; - for the output")
    measuring = parser.add_argument_group("measuring")
    measuring.add_argument("--rounds", type=_count, default=5, help="(default: %(default)s)")
    measuring.add_argument("--batches", type=_count, help="a round (default: by --seconds)")
    measuring.add_argument(
        "--seconds",
        type=float,
        default=0.5,
        help="that a round takes, about (default: %(default)s)",
    )
    measuring.add_argument(
        "--consumer-ms",
        type=float,
        default=10.0,
        help="what the loops with a cost take for a batch (default: %(default)s)",
    )
    measuring.add_argument(
        "--reader-ms",
        type=float,
        default=10.0,
        help="with --overlap: what readers take for a batch, by its size (default: %(default)s)",
    )
    feed = parser.add_argument_group("the feed, instead of what the configuration says")
    feed.add_argument("--threads", type=_count, help="(--overlap: 1 unless given)")
    feed.add_argument("--prefetch", type=_count)
    feed.add_argument("--batch-size", type=_count)
    feed.add_argument("--device")
    database = parser.add_argument_group("the database, without CONFIG")
    database.add_argument(
        "--shape", type=_shape, default=(3, 64, 64), help="CxHxW (default: 3x64x64)"
    )
    database.add_argument("--records", type=_count, default=2000, help="(default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.json not in {None, "-"}:
        file = Path(options.json)
        if not file.absolute().parent.is_dir():
            parser.error(f"--json: there is no folder {file.absolute().parent}")
        if options.config is not None and file.exists() and file.samefile(options.config):
            parser.error(f"--json: {file} is the configuration; name another file")
    return options


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def _shape(text: str) -> tuple[int, int, int]:
    channels, height, width = (_count(part) for part in text.split("x"))
    return channels, height, width


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = parse_options(arguments)
    try:
        return run(options)
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 130
    except (memory.SyncedMemoryError, prefetch.PrefetchError, OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
