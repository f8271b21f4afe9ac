"""Training with the libraries themselves, in an environment of its own: ``make test-integrations``.

In any other environment what is missing is skipped.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKOUT = Path(__file__).resolve().parents[2]
NUM_RECORDS = 60


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Sixty records; the label of each is its number, and every pixel, too."""
    return write_database(tmp_path / "sixty", fingerprinted_images(NUM_RECORDS, (1, 4, 4)))


@pytest.fixture
def options(source: Path) -> dict[str, Any]:
    return {"source": source, "batch_size": 8, "shuffle": True, "seed": 5}


@pytest.fixture
def torchrun() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a script of this folder under torchrun, on the CPU."""

    def run(
        script: str | Path, *arguments: object, num_ranks: int, timeout_s: float = 100
    ) -> subprocess.CompletedProcess[str]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--monitor-interval", "0.1"),
            *("--nproc-per-node", str(num_ranks)),
            *("--master-addr", "127.0.0.1", "--master-port", str(port)),
            str(Path(__file__).parent / script),
            *map(str, arguments),
        ]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        return subprocess.CompletedProcess(command, process.returncode, output)

    return run
