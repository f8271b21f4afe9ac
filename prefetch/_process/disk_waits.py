"""How often a thread has waited for the disk, where it touched memory that is a file's."""

from __future__ import annotations

import resource


def num_disk_waits() -> int:
    """Return how many *major faults* the calling thread has had; costs 1 us.

    That is how often it has touched a page that no memory held, nor was on its way there: as many
    reads of a mapped file, most often. 0 where the system does not count them for each thread.
    """
    which = getattr(resource, "RUSAGE_THREAD", None)  # Linux has it, and FreeBSD
    return 0 if which is None else resource.getrusage(which).ru_majflt
