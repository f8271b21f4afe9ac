"""``ringfeed check``: whether a configuration works, and what it comes to."""

from __future__ import annotations

from pathlib import Path

from prefetch.cli.arguments.configs import (
    ConfigArgument,
    JsonOption,
    LayerOption,
    PhaseOption,
    RootOption,
    StageOption,
    load,
)
from prefetch.cli.reports.check import check_as_fields, check_as_json
from prefetch.cli.reports.printing import print_fields, print_json
from prefetch.cli.terminal.messages import collect_warnings


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
    from prefetch._tools.check_config import check_config  # noqa: PLC0415 - pydantic is slow to import

    with collect_warnings() as warnings:
        options = load(config, phase=phase, layer=layer, stages=stage, root=root)
        report = check_config(options)
        # Some were logged as the feed was opened.
        warnings.extend(one for one in report.warnings if one not in warnings)
    if as_json:
        print_json(check_as_json(config, report, warnings))
    else:
        print_fields(check_as_fields(config, options, report, warnings))
