"""Compare this project's feed with other data loaders: same database, same work, same run.

    benchmark_peers.py [--quick] [--work NAME ...] [--peer NAME ...] [--json FILE]

The loaders are PyTorch's DataLoader, with torchvision's transforms where crops are resized, SPDL,
Grain and NVIDIA DALI (the extra ``peers`` installs them); what is not installed is left out by
name. Each runs in a process of its own, set up as is fastest on this machine. Rounds are measured
in turns, with a loop that touches each batch and with one that reads every byte; starting and a
first epoch do not count. The databases are made on the spot, always with the same content.

With --json the report is one object:

    format     1
    machine    {python, platform, cpus: cores that this process may use, load_before, load_after:
               processes that wanted a core in the minute before, on average}
    effort     {rounds, seconds}
    works      list of {work: name, shape, encoded, batch_size, crop, resized_crop, mirror, mean,
                   std, scale, dtype;
               num_records, prefetch: batches that may be made ready ahead, database_bytes;
               loaders: list of {name, is_loader: false for loops that do less than the work,
                   versions, description, settings, tried: list of {settings, images_per_s} among
                   which the settings were the fastest, start_bytes: what the process held before,
                   rounds: {touch, read: lists of {images, label_sum, elapsed_s, cpu_s: of the
                   process and its children, ready_next_s, ready_arrays_s: next() and the arrays,
                   anonymous_bytes, shared_bytes}},
                   delivered: whether the records were right in every round, verdict: null or
                   {num_images, identical, max_levels, mean_levels, mirrored, places}: some images
                   against the likest place in their record, in levels of 0 to 255};
               ratios: {touch, read: lists of {name, images_per_s, cpu, images_per_s_spread,
                   cpu_spread}}: the feed with one thread over each loader, the medians over the
                   rounds, and as spreads the lowest and the highest of a round}
    goals      list of {work, what, value: a ratio unless what names a unit, at_least, at_most,
               spread: null or the lowest and the highest of a round, reached}
    left_out   list of {name: of a loader or a work, missing: the import that is not there}
    failed     list of {name, work, problem, output}

Exit status: 0; 1 if a loader failed or delivered something else than the work; 2 if something could
not be opened.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from peers import comparison
from peers.contest import CONSUMERS, Effort, Task, hold
from peers.databases import make_database, with_restart_markers
from peers.roster import ROSTER
from peers.works import PREFETCH, WORKS
from prefetch._files.output import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.status import Status

    from peers.contest import Failure, Result
    from peers.roster import Entry
    from peers.works import Work

_BUSY_LOAD = 0.5
_MAX_RECORDS = 1_000_000  # more would need keys of more than 8 digits, and a lot of disk


def run(options: argparse.Namespace) -> int:
    """Measure and report; return the exit status."""
    report_to = Console(stderr=options.json == "-", highlight=False, width=_width(options))
    progress = Console(stderr=True)
    load_before = os.getloadavg()[0]
    if load_before > _BUSY_LOAD:
        progress.print(
            f"This machine is busy (load {load_before:.1f}): expect bad and unsteady numbers."
        )
    entries, left_out = _present(options.peer)
    works, unchecked = _checkable(options.work)
    left_out += unchecked
    for absent in left_out:
        report_to.print(f"{absent['name']} is left out: {absent['missing']} is not installed")
    effort = Effort(rounds=options.rounds, seconds=options.seconds)
    reports: list[dict[str, Any]] = []
    goals: list[comparison.Goal] = []
    measured: list[tuple[Work, Sequence[Result]]] = []
    failures: list[Failure] = []
    is_right = True
    with contextlib.ExitStack() as stack:
        folder = options.data or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="ringfeed-peers-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        for work in works:
            with progress.status(f"{work.name}: making the database") as status:
                taking_part = [entry for entry in entries if entry.takes_part(work)]
                task = _task(work, folder, options, taking_part)

                def say(what: str, work: Work = work, status: Status = status) -> None:
                    status.update(f"{work.name}: {what}")

                results, failed = hold(task, taking_part, effort, say)
            failures += failed
            goals += comparison.goals(work, results)
            measured.append((work, results))
            is_right &= all(one.delivered and comparison.is_same_work(one) for one in results)
            reports.append(_work_report(task, results))
            for consumer in CONSUMERS:
                report_to.print(comparison.table(results, consumer, title=_title(task, consumer)))
                report_to.print()
    goals += comparison.caffe_goals(measured)
    if goals:
        report_to.print(comparison.goals_table(goals))
    for failure in failures:
        progress.print(f"FAILED at {failure.work}: {failure.problem}\n{failure.output}")
    report = {
        "format": 1,
        "machine": {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "cpus": len(os.sched_getaffinity(0)),
            "load_before": load_before,
            "load_after": os.getloadavg()[0],
        },
        "effort": dataclasses.asdict(effort),
        "works": reports,
        "goals": [{**dataclasses.asdict(goal), "reached": goal.reached} for goal in goals],
        "left_out": left_out,
        "failed": [dataclasses.asdict(failure) for failure in failures],
    }
    if options.json is not None:
        text = json.dumps(report, indent=2) + "\n"
        if options.json == "-":
            sys.stdout.write(text)
        else:
            write_whole(Path(options.json), text.encode())
    return 0 if is_right and not failures else 1


def _present(wanted: Sequence[str]) -> tuple[list[Entry], list[dict[str, str]]]:
    """Return the entries that can take part, and the peers that are not installed."""
    present: list[Entry] = []
    left_out: list[dict[str, str]] = []
    for entry in ROSTER:
        missing = entry.missing()
        if entry.loader not in wanted and entry.imports:
            continue
        if missing is None:
            present.append(entry)
        elif all(entry.loader != absent["name"] for absent in left_out):
            left_out.append({"name": entry.loader, "missing": missing})
    return present, left_out


def _checkable(wanted: Sequence[str]) -> tuple[list[Work], list[dict[str, str]]]:
    """Return the works that are wanted, and those whose images could not be checked here."""
    works = [work for work in WORKS if work.name in wanted]
    if importlib.util.find_spec("PIL") is not None:
        return works, []
    return (
        [work for work in works if not work.resized_crop],
        [{"name": work.name, "missing": "PIL"} for work in works if work.resized_crop],
    )


def _task(work: Work, folder: Path, options: argparse.Namespace, entries: Sequence[Entry]) -> Task:
    """Return a work with the databases that its entries read, which are made if need be."""
    wanted = options.records if work.is_large else options.small_records
    num_records = -(-wanted // work.batch_size) * work.batch_size
    database = make_database(folder, work, num_records)
    wants_markers = any(entry.wants_markers for entry in entries)
    return Task(
        work=work,
        database=database,
        num_records=num_records,
        marked=with_restart_markers(database) if wants_markers else None,
    )


def _title(task: Task, consumer: str) -> str:
    does = {"touch": "touches each batch", "read": "reads every byte"}[consumer]
    return f"{task.work.name}, {task.num_records} records, a loop that {does}"


def _work_report(task: Task, results: Sequence[Result]) -> dict[str, Any]:
    return {
        "work": dataclasses.asdict(task.work),
        "num_records": task.num_records,
        "prefetch": PREFETCH,
        "database_bytes": (task.database / "data.mdb").stat().st_size,
        "loaders": [
            {
                "name": result.entry.name,
                "is_loader": result.entry.is_loader,
                "versions": result.entry.versions(),
                "description": result.description,
                "settings": result.settings,
                "tried": result.tried,
                "start_bytes": result.start_bytes,
                "rounds": {
                    consumer: [dataclasses.asdict(one) for one in rounds]
                    for consumer, rounds in result.rounds.items()
                },
                "delivered": result.delivered,
                "verdict": result.verdict and dataclasses.asdict(result.verdict),
            }
            for result in results
        ],
        "ratios": {consumer: comparison.ratios(results, consumer) for consumer in CONSUMERS},
    }


def _width(options: argparse.Namespace) -> int | None:
    """Return how wide tables are: as the terminal, and in a file as wide as they need."""
    stream = sys.stderr if options.json == "-" else sys.stdout
    return None if stream.isatty() else 180


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    peers = list(dict.fromkeys(entry.loader for entry in ROSTER if entry.imports))
    works = [work.name for work in WORKS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", help="write the report there; - for the output")
    parser.add_argument(
        "--quick", action="store_true", help="small databases and short rounds, to see it work"
    )
    parser.add_argument(
        "--work", nargs="+", choices=works, default=works, metavar="NAME", help=", ".join(works)
    )
    parser.add_argument(
        "--peer", nargs="*", choices=peers, default=peers, metavar="NAME", help=", ".join(peers)
    )
    measuring = parser.add_argument_group("measuring")
    measuring.add_argument("--rounds", type=_count, help="(default: 7; --quick: 2)")
    measuring.add_argument(
        "--seconds", type=float, help="that a round takes, about (default: 1; --quick: 0.05)"
    )
    database = parser.add_argument_group("databases; sizes are rounded up to whole batches")
    database.add_argument(
        "--data", type=Path, metavar="FOLDER", help="keep them there for the next run"
    )
    database.add_argument("--records", type=_count, help="of images (default: 1024; --quick: 64)")
    database.add_argument(
        "--small-records", type=_count, help="of the small ones (default: 51200; --quick: 2560)"
    )
    options = parser.parse_args(arguments)
    full, quick = (7, 1.0, 1024, 51200), (2, 0.05, 64, 2560)
    names = ("rounds", "seconds", "records", "small_records")
    for name, value in zip(names, quick if options.quick else full, strict=True):
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= _MAX_RECORDS:
        raise argparse.ArgumentTypeError(f"{number} is not from 1 to {_MAX_RECORDS}")
    return number


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = parse_options(arguments)
    try:
        return run(options)
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
