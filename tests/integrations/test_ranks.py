"""Two ranks, then three, then one, each killed at a random step: every record once an epoch.

By torchrun and gloo on the CPU, with a checkpoint at every other step, as it is written by
torch.distributed.checkpoint, Accelerate and Lightning.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytest.importorskip("torch", reason="PyTorch is not installed: make test-integrations")

NUM_RECORDS, NUM_EPOCHS = 60, 3
GLOBAL_BATCH = 12  # of all ranks together: Lightning counts steps, so these have to stay
RANKS = (2, 3, 1)


def _lines(folder: Path, run: int) -> Iterator[dict[str, Any]]:
    """Yield what all ranks have noted of a run."""
    for path in folder.glob(f"run{run}-rank*.jsonl"):
        yield from map(json.loads, path.read_text().splitlines())


def _last_checkpoint(folder: Path, run: int) -> tuple[int, Path]:
    """Return the step of the last checkpoint that is whole, and its folder."""
    steps = {
        int(found[1]): path.parent
        for name in (".metadata", "whole", "lightning.ckpt")
        for path in folder.glob(f"saved-run{run}-step*/{name}")
        if (found := re.search(r"step(\d+)$", path.parent.name)) is not None
    }
    return max(steps.items())


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("by", "shard"),
    [
        ("hand", "explicit"),
        ("hand", "auto"),
        ("accelerate", "explicit"),
        ("lightning", "explicit"),
        ("lightning", "auto"),
    ],
)
def test_ranks_that_are_killed_and_become_more_and_fewer_train_on_every_record_once_an_epoch(
    by: str,
    shard: str,
    source: Path,
    tmp_path: Path,
    torchrun: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    if by != "hand":
        pytest.importorskip(by)
    rng = random.Random(f"{by}, {shard}")
    trained: dict[int, Counter[int]] = {epoch: Counter() for epoch in range(NUM_EPOCHS)}
    resume: list[object] = []
    for run, num_ranks in enumerate(RANKS):
        arguments = [by, source, tmp_path, "--attempt", run, "--shard", shard, *resume]
        arguments += ["--batch-size", GLOBAL_BATCH // num_ranks]
        is_last = run == len(RANKS) - 1
        if not is_last:
            # Within five steps an epoch, and after the first checkpoint.
            arguments += ["--kill-at", rng.randint(3, 6), "--kill-rank", rng.randrange(num_ranks)]
        done = torchrun("train_ranks.py", *arguments, num_ranks=num_ranks)
        assert (done.returncode == 0) == is_last, done.stdout
        assert is_last or "SIGKILL" in done.stdout or "-9" in done.stdout, done.stdout
        step, saved = (2**31, tmp_path) if is_last else _last_checkpoint(tmp_path, run)
        for line in _lines(tmp_path, run):
            if line["step"] <= step:
                trained[line["epoch"]].update(line["labels"])
        resume = ["--resume", saved]
    assert trained == {epoch: Counter(range(NUM_RECORDS)) for epoch in range(NUM_EPOCHS)}
