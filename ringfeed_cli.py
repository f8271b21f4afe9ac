"""The command ``ringfeed``, with Ctrl-C ending the process while the command is imported.

It stands outside of the packages, for whatever is imported from one of them imports the library.
"""

from __future__ import annotations

import signal


def main() -> int:
    """Run the command line with the process's own arguments; see `prefetch.cli.main`."""
    # Not where Ctrl-C is ignored, as in a shell's background, or somebody else's handler is there.
    is_pythons_own = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_pythons_own:
        # Nothing needs cleaning up yet, and KeyboardInterrupt in a half-imported module would print
        # a traceback, or come out as an ImportError.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        import prefetch.cli.app  # noqa: PLC0415 - most of the time that the command takes to start
    finally:
        if is_pythons_own:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    return prefetch.cli.main()
