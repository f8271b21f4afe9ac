"""Whether a call interrupts another one of ours: in a signal handler, or in a finalizer.

Both run between any two steps of the thread that they come to, whatever locks it holds. A close()
that joined the readers there could wait for one that waits for such a lock. So it looks at the
calls below its own: no call of ours has to keep a count for that, and none gets slower.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import memory

_MEMORY: Final = os.path.dirname(memory.__file__) + os.sep  # noqa: PTH120 - a plain string
_entries: set[str] = set()


def mark_entry(file: str) -> None:
    """Have the calls of a module count: all that people, or threads, enter the feed by."""
    _entries.add(file)


def is_nested() -> bool:
    """Return whether the call that asks interrupts another one of ours on this thread."""
    frame = sys._getframe(1).f_back  # noqa: SLF001 - there is no other way to know
    while frame is not None:
        file = frame.f_code.co_filename
        if file in _entries or file.startswith(_MEMORY):
            return True
        frame = frame.f_back
    return False
