"""The near end of a loader's process."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from peers.roster import Entry

_SCRIPTS = Path(__file__).resolve().parents[1]
_TIMEOUT_S = 120.0
_PATIENCE_S = 20.0


class ContestantError(Exception):
    """Raised when a loader fails, or says nothing for long.

    Attributes:
        name: Which.
        output: The last lines that its process wrote.
    """

    def __init__(self, name: str, problem: str, output: str) -> None:
        self.name = name
        self.output = output
        super().__init__(f"{name}: {problem}")


class Contestant:
    """A loader in a process of its own.

    Args:
        entry: Which.
    """

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        path = os.pathsep.join(
            [str(_SCRIPTS), str(_SCRIPTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "peers.serve", entry.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            env={**os.environ, "PYTHONPATH": path},
        )

    def ask(self, do: str, **arguments: Any) -> Any:
        """Give a command and wait for the answer.

        Args:
            do: Its name; see `peers.serve`.
            arguments: What it takes.

        Returns:
            What it answered.

        Raises:
            ContestantError: The command failed, its process ended, or there is no answer in 120 s.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._error(f"its process ended before {do!r}") from None
        if not select.select([self._process.stdout], [], [], _TIMEOUT_S)[0]:
            raise self._error(f"no answer to {do!r} in {_TIMEOUT_S:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise self._error(f"its process ended at {do!r}")
        answer = json.loads(line)
        if "error" in answer:
            raise self._error(f"{do!r} failed: {answer['error']}")
        return answer["ok"]

    def close(self) -> None:
        """End the process, by force if it does not end by itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            self._process.stdin.close()
        try:
            self._process.wait(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._output.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _error(self, problem: str) -> ContestantError:
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").splitlines()
        return ContestantError(self.entry.name, problem, "\n".join(lines[-20:]))
