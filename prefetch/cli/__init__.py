"""The command ``ringfeed``: looking at databases, configurations and feeds from a shell.

``ringfeed --help`` lists the commands, ``ringfeed COMMAND --help`` shows each with examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What stands behind the command's name; None: the process's own arguments.

    Returns:
        The exit status: 0 done; 1 an error, which was printed; 2 the arguments are wrong; 130
        interrupted by Ctrl-C; 141 the output goes into a pipe that was closed before all of it was
        written.
    """
    try:
        from prefetch.cli.app import run  # noqa: PLC0415 - typer is imported at use

        return run(arguments)
    except KeyboardInterrupt:  # while the commands were imported, or as the last one ended
        return 130
