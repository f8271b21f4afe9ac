"""Ctrl-C while the command ``ringfeed`` is imported, which takes longer than many a command.

Nothing has been begun then that would have to be put away. So it ends the process at once, as it
does where a program is not in Python: there is no traceback of half-imported modules, nor one that
turns the interruption into an error of its own. The package is imported before anything of the
command is, so that this begins with its first import, and only where the process is the command.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def is_command() -> bool:
    """Return whether the process was started as ``ringfeed`` or ``python -m prefetch.cli``."""
    started_as = os.path.basename(sys.argv[0]) if sys.argv else ""  # noqa: PTH119 - a plain string
    # A package that a module is run from is imported first, and -m stands there meanwhile.
    return started_as == "ringfeed" or (started_as == "-m" and "prefetch.cli" in sys.orig_argv)


def begin() -> bool:
    """Let Ctrl-C end the process, and return whether it does now.

    It does not where it is ignored, or handled by somebody's own code, or this is no main thread.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            return True
    return False


def end() -> None:
    """Let Ctrl-C be KeyboardInterrupt again, after a `begin` that was true."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


begun = is_command() and begin()
"""Whether it was begun with this module; `end` follows where the package is imported."""
