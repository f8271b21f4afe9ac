"""``ringfeed from-prototxt``: a network's Data layer as a YAML file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from prefetch.cli._opening import (
    LayerOption,
    PhaseOption,
    RootOption,
    StageOption,
    check_folder,
)


def from_prototxt(
    network: Annotated[
        Path, typer.Argument(metavar="NET", help="The network's .prototxt.", exists=True)
    ],
    output: Annotated[
        Path | None,
        typer.Argument(
            metavar="OUT",
            help="The YAML file; without it the text is printed.",
            callback=check_folder,
        ),
    ] = None,
    *,
    phase: PhaseOption = None,
    layer: LayerOption = None,
    stage: StageOption = None,
    root: RootOption = Path(),
    seed: Annotated[
        int | None,
        typer.Option(help="The layer's random seed, as Caffe's solver would give it.", min=0),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over OUT.")] = False,
) -> None:
    """Write the YAML file that serves what a network's Data layer does, bit for bit.

    Paths become relative to the folder of OUT; in printed text they are absolute.
    """
    from prefetch._config_text import config_text  # noqa: PLC0415 - pydantic is slow to import
    from prefetch._prototxt import read_data_layer  # noqa: PLC0415 - as above

    of_phase = (phase or "train").upper()
    if output is not None and output.exists() and not force:
        raise typer.BadParameter(f"{output} is there already; --force writes over it")
    found = read_data_layer(
        network, phase=of_phase, layer=layer, stages=stage or (), root=root, seed=seed
    )
    notes = {"label_dtype": "Caffe's labels; int64 loses nothing above 2^24"}
    if seed is None:
        notes["seed"] = "another one every run, as in Caffe without random_seed"
    text = (
        f"# What layer {found.name!r} of {network.name} serves in phase {of_phase}, as Caffe does: "
        "an endless\n# stream, Caffe's random numbers and shards. Made by ringfeed "
        "from-prototxt.\n"
        + config_text(found.config, folder=None if output is None else output.parent, notes=notes)
    )
    if output is None:
        sys.stdout.write(text)
        return
    output.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{output}: written\n")
