"""Compare two checkouts: how the CPU seconds that a sample takes have changed.

    benchmark_revisions.py OLD NEW [--pairs N] [--seconds S] [--work NAME,...] [--json FILE]

OLD and NEW are folders of two revisions, each with its own environment (``make venv`` in it), such
as ``git worktree add ../before HEAD~1`` makes. The two take turns, in processes of their own, and
each pair gives one ratio: a slow spell of the machine falls on both. CPU seconds are those of the
whole process. With --json the report is one object:

    format     1
    machine    {python, platform, cpus: cores that this process may use, load: processes that wanted
               a core in the minute before, on average}
    works      by name: {cpu, wall: {ratio: geometric mean of new / old, least, most: its 95 %
               interval by Student's t}, pairs: list of {old, new: {cpu_s, wall_s: of a sample}}}

Exit status: 0; 2 if a checkout has no environment.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

_WARM_UP_S: Final = 0.15
# Two-sided 95 % of Student's t, for that many pairs less one; for more the normal distribution's.
_T_95: Final = (
    *(12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23),
    *(2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09),
)


class _Work(NamedTuple):
    """What is measured: records, and the options that they are served by."""

    shape: tuple[int, int, int]
    kind: str
    num_records: int
    options: dict[str, Any]


_CROPPED: Final[dict[str, Any]] = {
    "seed": 1,
    "phase": "train",
    "transform": {"crop_size": 227, "mirror": True},
}
WORKS: Final = {
    "1x28x28": _Work((1, 28, 28), "raw", 20_000, {"batch_size": 256}),
    "shuffled": _Work((1, 28, 28), "raw", 20_000, {"batch_size": 256, "shuffle": True, "seed": 1}),
    "3x32x32": _Work(
        (3, 32, 32),
        "raw",
        20_000,
        _CROPPED | {"batch_size": 256, "transform": {"crop_size": 28, "mirror": True}},
    ),
    "uint8": _Work((3, 256, 256), "raw", 512, _CROPPED | {"batch_size": 32}),
    "float": _Work((3, 32, 32), "float", 4000, {"batch_size": 64}),
    "jpeg": _Work((3, 256, 256), "jpeg", 512, _CROPPED | {"batch_size": 32}),
}


def write(folder: Path, work: _Work) -> None:
    """Write a database of random images; those of JPEG are smooth, as photographs are."""
    # By the environment that measures: both checkouts read what this one writes.
    import lmdb  # noqa: PLC0415 - the measured process needs none of these

    from prefetch._record.wire import encode_datum  # noqa: PLC0415

    random = np.random.default_rng(0)
    channels, height, width = work.shape
    with (
        lmdb.open(str(folder), map_size=1 << 31, lock=False, sync=False) as environment,
        environment.begin(write=True) as transaction,
    ):
        for number in range(work.num_records):
            fields: dict[str, Any] = {"channels": channels, "height": height, "width": width}
            if work.kind == "float":
                fields["floats"] = random.random(math.prod(work.shape), np.float32)
            elif work.kind == "raw":
                fields["data"] = random.bytes(math.prod(work.shape))
            else:
                fields = {"data": _jpeg(random, height, width), "encoded": True}
            value = encode_datum(label=number % 10, **fields)
            transaction.put(b"%08d" % number, value)


def _jpeg(random: np.random.Generator, height: int, width: int) -> bytes:
    import cv2  # noqa: PLC0415 - as above

    coarse = random.integers(0, 255, (height // 16, width // 16, 3), np.uint8)
    return cv2.imencode(".jpg", cv2.resize(coarse, (width, height)))[1].tobytes()


def serve(options: dict[str, Any], seconds: float) -> dict[str, float]:
    """Take batches for a while; return what a sample has taken. In a process of its own."""
    import prefetch  # noqa: PLC0415 - that of the checkout which is measured

    def take(limit_s: float) -> int:
        num, until = 0, time.perf_counter() + limit_s
        while True:
            for batch in feed:
                batch.data.numpy()
                batch.label.numpy()
                num += len(batch)
                if time.perf_counter() >= until:
                    return num

    with prefetch.open(options) as feed:
        take(_WARM_UP_S)
        cpu_began, began = _cpu_s(), time.perf_counter()
        num = take(seconds)
        return {
            "cpu_s": (_cpu_s() - cpu_began) / num,
            "wall_s": (time.perf_counter() - began) / num,
        }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(checkout: Path, options: dict[str, Any], seconds: float) -> dict[str, float]:
    """Run `serve` with the packages of a checkout."""
    environ = {name: value for name, value in os.environ.items() if name[:6] != "PYTHON"}
    python, script = str(checkout / ".venv/bin/python"), str(Path(__file__).resolve())
    command = [python, "-P", script, "--serve", json.dumps(options), str(seconds)]
    ended = subprocess.run(  # noqa: S603 - this very script
        command, cwd="/", env=environ, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise RuntimeError(f"{checkout}: {ended.stderr}")
    measured: dict[str, float] = json.loads(ended.stdout)
    return measured


def interval(ratios: list[float]) -> dict[str, float]:
    """Return the geometric mean of ratios, and its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean, half = statistics.mean(logs), math.nan
    if len(logs) > 1:
        factor = _T_95[len(logs) - 2] if len(logs) - 2 < len(_T_95) else 1.96
        half = factor * statistics.stdev(logs) / math.sqrt(len(logs))
    return {
        "ratio": math.exp(mean),
        "least": math.exp(mean - half),
        "most": math.exp(mean + half),
    }


def compare(old: Path, new: Path, work: _Work, *, pairs: int, seconds: float) -> dict[str, Any]:
    """Measure a work in both checkouts, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), work)
        options = {"source": folder, **work.options}
        measured = []
        for number in range(pairs):
            turns = {"old": old, "new": new}
            names = ["old", "new"] if number % 2 == 0 else ["new", "old"]
            measured.append({name: measure(turns[name], options, seconds) for name in names})
    found: dict[str, Any] = {"pairs": measured}
    for what in ("cpu", "wall"):
        key = f"{what}_s"
        found[what] = interval([pair["new"][key] / pair["old"][key] for pair in measured])
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison; return the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--serve"]:
        print(json.dumps(serve(json.loads(arguments[1]), float(arguments[2]))))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path, help="folder of the earlier revision")
    parser.add_argument("new", type=Path, help="folder of the later one")
    parser.add_argument("--pairs", type=int, default=15, help="ratios of each work (15)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of each measurement (0.4)")
    parser.add_argument("--work", default=",".join(WORKS), help=f"of {', '.join(WORKS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    given = parser.parse_args(arguments)
    names = given.work.split(",")
    if unknown := sorted(set(names) - set(WORKS)):
        parser.error(f"no work {', '.join(unknown)}; there are {', '.join(WORKS)}")
    old, new = given.old.resolve(), given.new.resolve()
    for checkout in (old, new):
        if not (checkout / ".venv/bin/python").exists():
            print(f"{checkout}: has no environment; run make venv there", file=sys.stderr)
            return 2
    report: dict[str, Any] = {
        "format": 1,
        "machine": {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "cpus": len(os.sched_getaffinity(0)),
            "load": os.getloadavg()[0],
        },
        "works": {},
    }
    for name in names:
        found = compare(old, new, WORKS[name], pairs=given.pairs, seconds=given.seconds)
        report["works"][name] = found
        texts = (
            f"{what} {{ratio:.3f}} ({{least:.3f}} to {{most:.3f}})".format(**found[what])
            for what in ("cpu", "wall")
        )
        print(f"{name:10} {'   '.join(texts)}", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
