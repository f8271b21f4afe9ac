"""What ``ringfeed check`` reports."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from prefetch._errors.printable import counted, printable_key, printable_shape
from prefetch.cli.reports.printing import printable_size, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from prefetch._config.feed_config import FeedConfig
    from prefetch._tools.check_config import CheckReport


def check_as_json(path: Path, report: CheckReport, warnings: Sequence[str]) -> dict[str, Any]:
    """Return a check's report for programs."""
    return {
        "config": str(path.absolute()),
        **dataclasses.asdict(report),
        "first_keys": [printable_key(key) for key in report.first_keys],
        "warnings": warnings,
    }


def check_as_fields(
    path: Path, options: FeedConfig, report: CheckReport, warnings: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield names and values of a check's report for people."""
    yield "config", str(path)
    yield from rows("source", report.sources)
    yield "records", f"{report.num_records}, phase {report.phase}"
    per_epoch = report.batches_per_epoch
    batches = "an endless stream" if per_epoch is None else counted(per_epoch, "batch", "batches")
    yield "epoch", batches
    shape = printable_shape(report.data_shape)
    yield "data", f"{shape} {report.data_dtype} ({options.transform.layout})"
    yield "", f"values {report.least:.6g} to {report.most:.6g}, mean {report.mean:.6g}"
    yield "label", report.label_dtype or "none: the layer has one top"
    yield "first keys", ", ".join(printable_key(key) for key in report.first_keys)
    yield "device", _describe_choice(options.device, report.device)
    yield "threads", _describe_choice(str(options.threads), str(report.threads))
    batches = counted(report.slots, "batch", "batches")
    on_host, on_device = printable_size(report.host_bytes), printable_size(report.device_bytes)
    if report.device_bytes:
        yield "host memory", f"{on_host} for the batches that are filled and copied"
        yield "device memory", f"{on_device} for a ring of {batches}"
    else:
        yield "host memory", f"{on_host} for a ring of {batches}"
        held = printable_size(report.most_host_bytes)
        yield "", f"{held} where the loop keeps max_batches_held: {options.max_batches_held}"
        yield "device memory", "none of its own"
    yield "first batch", f"after {report.first_batch_s:.3f} s"
    yield from rows("warnings", warnings or ["none"])


def _describe_choice(asked: str, got: str) -> str:
    return got if asked == got else f"{got} ({asked})"
