"""``ringfeed bench``: what a configuration gives to several kinds of loop."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prefetch.cli.arguments.configs import (
    ConfigArgument,
    JsonOption,
    LayerOption,
    PhaseOption,
    RootOption,
    StageOption,
    load,
)
from prefetch.cli.reports.printing import print_json
from prefetch.cli.terminal.console import messages, output

if TYPE_CHECKING:
    from prefetch._feed.feed import Feed

logger = logging.getLogger(__name__)

_BUSY_LOAD = 0.5


def bench(
    config: ConfigArgument,
    *,
    rounds: Annotated[int, typer.Option(min=1, help="How often each loop is measured.")] = 5,
    batches: Annotated[
        int | None, typer.Option(min=1, help="Batches a round; by default as --seconds allows.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.01, help="What a round takes, about.")] = 0.5,
    consumer_ms: Annotated[
        float, typer.Option(min=0.01, help="What a batch takes the loops that do something.")
    ] = 10.0,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Reader threads, instead of the file's.")
    ] = None,
    prefetch: Annotated[
        int | None, typer.Option(min=1, help="Batches kept ahead, instead of the file's.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Records in a batch, instead of the file's.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Device, instead of the file's.")] = None,
    phase: PhaseOption = None,
    layer: LayerOption = None,
    stage: StageOption = None,
    root: RootOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Measure a feed on this machine: images a second, CPU time an image, and waiting.

    Four kinds of loop take turns: one that only takes batches, one that reads every byte, one that
    waits as for a GPU, and one that computes in Python and holds its lock (GIL). The first says how
    fast the feed is, the others what a training loop gets.
    """
    from prefetch._config.load import load_config  # noqa: PLC0415 - pydantic is slow to import
    from prefetch._feed.open import open as open_configured  # noqa: PLC0415 - as above
    from prefetch.cli.benchmark.measurement import Effort  # noqa: PLC0415 - as above
    from prefetch.cli.benchmark.throughput import describe, measure_throughput, throughput_table  # noqa: PLC0415 - as above

    asked = {"threads": threads, "prefetch": prefetch, "batch_size": batch_size, "device": device}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    options = load_config(
        load(config, phase=phase, layer=layer, stages=stage, root=root),
        **{"epochs": None, **given},
    )

    def open_feed(**settings: Any) -> Feed:
        return open_configured(options, **settings)

    report = {"format": 1, **describe(open_feed, str(config))}
    load_before = os.getloadavg()[0]
    if load_before > _BUSY_LOAD:
        logger.warning(
            "this machine is busy (load %.1f): expect bad and unsteady numbers", load_before
        )
    effort = Effort(rounds=rounds, batches=batches, seconds=seconds)
    cases = measure_throughput(open_feed, effort, consumer_s=consumer_ms / 1000, console=messages())
    if as_json:
        print_json(report | {"cases": [case.as_json() for case in cases], "overlap": []})
        return
    console = output()
    console.print(throughput_table(cases))
    for case in cases:
        console.print(f"  {case.consumer.name:<8}{case.consumer.description}")
