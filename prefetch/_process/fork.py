"""Whether this process was forked after something was opened: threads do not survive that."""

from __future__ import annotations

import os


def is_forked(opened_in: int) -> bool:
    """Return whether this is a child of the process that opened something.

    It has the objects of its parent, but not the threads, and a lock may be held for ever.

    Args:
        opened_in: Id of that process.
    """
    return os.getpid() != opened_in
