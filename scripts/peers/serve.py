"""The process around one loader: opens it, measures it, answers in JSON.

    python -m peers.serve MODULE

A command is a line on the standard input, ``{"do": NAME, ...}``, and so is each answer on what was
the standard output: ``{"ok": ...}`` or ``{"error": ...}``. It ends with its input.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from peers import process_tree
from peers.works import PREFETCH, WORKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from peers.works import Arrays, Work

_AHEAD = 3 * PREFETCH  # SPDL has up to 10 batches on the way, between its stages
_LEAST_AHEAD = 2
_SAMPLED = 16


def _touch(data: npt.NDArray[Any]) -> None:
    """Look at one value of each image."""
    np.add.reduce(data[:, 0, 0, 0])


def _read(data: npt.NDArray[Any]) -> None:
    """Read every byte once, 8 at a time, which is as fast as the memory."""
    np.add.reduce(data.reshape(-1).view(np.uint64))


CONSUMERS: dict[str, Callable[[npt.NDArray[Any]], None]] = {"touch": _touch, "read": _read}


def _as_they_are(batch: Arrays) -> Arrays:
    return batch


class _Measured:
    """An open loader.

    Args:
        stream: Its batches.
        arrays: What makes arrays of one.
        work: What it does.
        num_records: Records in the database.
        reads_ahead: Whether batches may have been made ready at rest.

    Attributes:
        taken: Batches taken so far.
    """

    def __init__(
        self,
        stream: Iterator[Any],
        arrays: Callable[[Any], Arrays],
        work: Work,
        num_records: int,
        *,
        reads_ahead: bool,
    ) -> None:
        self._stream = stream
        self._arrays = arrays
        self._work = work
        self._num_records = num_records
        self._ahead = _AHEAD if reads_ahead else _LEAST_AHEAD
        self.taken = 0
        self._last: Any = None

    def take(self) -> Arrays:
        """Return the next batch, and let go of the one before."""
        return self._arrays(self._take())

    def _take(self) -> Any:
        self._last = None
        self._last = next(self._stream)
        self.taken += 1
        return self._last

    def measure(self, *, consumer: str, num_batches: int) -> dict[str, Any]:
        """Measure a round, after as many batches as may have been ready at rest."""
        consume = CONSUMERS[consumer]
        ready = []
        for _ in range(self._ahead):
            began = time.perf_counter()
            batch = self._take()
            next_s = time.perf_counter() - began
            data, _ = self._arrays(batch)
            del batch
            ready.append((next_s, time.perf_counter() - began))
            consume(data)
        # The second: the first may have to wake a thread that has slept since the last round.
        next_s, arrays_s = ready[1]
        images = label_sum = 0
        cpu_s, began = process_tree.cpu_s(os.getpid()), time.perf_counter()
        for _ in range(num_batches):
            data, labels = self.take()
            consume(data)
            images += len(labels)
            label_sum += int(labels.sum())
        elapsed_s = time.perf_counter() - began
        cpu_s = process_tree.cpu_s(os.getpid()) - cpu_s
        memory = process_tree.memory(os.getpid())
        return {
            "images": images,
            "label_sum": label_sum,
            "elapsed_s": elapsed_s,
            "cpu_s": cpu_s,
            "ready_next_s": next_s,
            "ready_arrays_s": arrays_s,
            **dataclasses.asdict(memory),
        }

    def sample(self, *, file: str) -> list[int]:
        """Save some images of the next batch; return the numbers of their records."""
        first = self.taken * self._work.batch_size
        data, _ = self.take()
        images = data[:_SAMPLED]
        np.save(file, images)
        return [(first + position) % self._num_records for position in range(len(images))]


def serve(module_name: str) -> None:
    """Answer commands until they end."""
    # Libraries write what they like to the standard output; answers have a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module = importlib.import_module(module_name)
    measured: _Measured | None = None
    works = {work.name: work for work in WORKS}
    with contextlib.ExitStack() as stack:

        def obey(do: str, arguments: dict[str, Any]) -> Any:
            nonlocal measured
            if do == "candidates":
                cores = len(os.sched_getaffinity(0))
                return module.candidates(works[arguments["work"]], num_cores=cores)
            if do == "open":
                before = process_tree.memory(os.getpid())
                work, database = works[arguments["work"]], Path(arguments["database"])
                opened = module.open_stream(work, database, arguments["settings"])
                stream = stack.enter_context(opened)
                arrays = getattr(module, "arrays", _as_they_are)
                measured = _Measured(
                    stream,
                    arrays,
                    work,
                    arguments["num_records"],
                    reads_ahead=getattr(module, "READS_AHEAD", True),
                )
                describe = getattr(module, "describe", dict)
                return {"memory": dataclasses.asdict(before), "description": describe()}
            if measured is None:
                raise ValueError(f"{do!r} needs an open loader")
            if do == "measure":
                return measured.measure(**arguments)
            if do == "sample":
                return measured.sample(**arguments)
            raise ValueError(f"there is no command {do!r}")

        for line in sys.stdin:
            command = json.loads(line)
            try:
                answer = {"ok": obey(command.pop("do"), command)}
            except Exception as error:  # noqa: BLE001 - whatever a loader raises is the answer
                traceback.print_exc()
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
