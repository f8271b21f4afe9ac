"""``ringfeed check``: whether a configuration works, and what it comes to."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from prefetch._errors.printable import counted, printable_key
from prefetch.cli.opening import (
    ConfigArgument,
    JsonOption,
    LayerOption,
    PhaseOption,
    RootOption,
    StageOption,
    load,
)
from prefetch.cli.terminal import collecting_warnings, print_fields, print_json, shown_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prefetch._config.feed_config import FeedConfig
    from prefetch._tools.check import CheckReport


def check(
    config: ConfigArgument,
    *,
    phase: PhaseOption = None,
    layer: LayerOption = None,
    stage: StageOption = None,
    root: RootOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Check a configuration: open it, read one batch, and say what it comes to.

    Reports shapes, memory on host and device, what auto resolved to, and warnings. The exit status
    is 0 where a training loop could start, warnings or not.
    """
    from prefetch._tools.check import check_config  # noqa: PLC0415 - pydantic is slow to import

    with collecting_warnings() as warnings:
        options = load(config, phase=phase, layer=layer, stages=stage, root=root)
        report = check_config(options)
        warnings.extend(report.warnings)
    if as_json:
        keys = [printable_key(key) for key in report.first_keys]
        fields = dataclasses.asdict(report) | {"first_keys": keys, "warnings": warnings}
        print_json({"config": str(config.absolute()), **fields})
    else:
        print_fields(_fields(config, options, report, warnings))


def _fields(
    path: Path, options: FeedConfig, report: CheckReport, warnings: Sequence[str]
) -> Iterator[tuple[str, str]]:
    yield "config", str(path)
    for number, source in enumerate(report.sources):
        yield "" if number else "source", source
    yield "records", f"{report.num_records}, phase {report.phase}"
    per_epoch = report.batches_per_epoch
    batches = "an endless stream" if per_epoch is None else counted(per_epoch, "batch", "batches")
    yield "epoch", batches
    shape = " x ".join(map(str, report.data_shape))
    yield "data", f"{shape} {report.data_dtype} ({options.transform.layout})"
    yield "", f"values {report.least:.6g} to {report.most:.6g}, mean {report.mean:.6g}"
    yield "label", report.label_dtype or "none: the layer has one top"
    yield "first keys", ", ".join(printable_key(key) for key in report.first_keys)
    yield "device", _resolved(options.device, report.device)
    yield "threads", _resolved(str(options.threads), str(report.threads))
    batches = counted(report.slots, "batch", "batches")
    on_host, on_device = shown_bytes(report.host_bytes), shown_bytes(report.device_bytes)
    if report.device_bytes:
        yield "host memory", f"{on_host} for the batches that are filled and copied"
        yield "device memory", f"{on_device} for a ring of {batches}"
    else:
        yield "host memory", f"{on_host} for a ring of {batches}"
        held = shown_bytes(report.most_host_bytes)
        yield "", f"{held} where the loop keeps max_batches_held: {options.max_batches_held}"
        yield "device memory", "none of its own"
    yield "first batch", f"after {report.first_batch_s:.3f} s"
    for number, warning in enumerate(warnings):
        yield "" if number else "warnings", warning
    if not warnings:
        yield "warnings", "none"


def _resolved(asked: str, got: str) -> str:
    return got if asked == got else f"{got} ({asked})"
