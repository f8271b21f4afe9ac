"""What commands report of the restart markers that they have put into JPEGs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefetch._errors.printable import counted
from prefetch.cli.reports.printing import printable_size, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefetch._tools.convert import Report


def restarts_as_json(done: Report) -> dict[str, Any]:
    """Return for programs what was stored with restart markers, and what without, and why."""
    if not done.num_marked and not done.whole:
        return {}
    return {
        "num_with_restarts": done.num_marked,
        "num_without_restarts": dict(done.whole),
        "restart_bytes_added": done.bytes_added,
    }


def restarts_as_fields(done: Report) -> Iterator[tuple[str, str]]:
    """Yield the same for people; nothing where none were asked for."""
    if not done.num_marked and not done.whole:
        return
    marked = counted(done.num_marked, "JPEG")
    lines = [f"{marked} with restart markers"]
    if done.num_marked:
        before = done.bytes_marked - done.bytes_added
        share = f"{100 * done.bytes_added / before:+.1f} %"
        lines[0] += f", {printable_size(done.bytes_marked)} ({share})"
    lines += [f"{num} decoded as a whole: {why}" for why, num in done.whole.items()]
    yield from rows("roi", lines)
