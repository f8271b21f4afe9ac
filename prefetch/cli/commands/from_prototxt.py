"""``ringfeed from-prototxt``: a network's Data layer as a YAML file."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Annotated, Literal

import typer

from prefetch._errors.printable import printable_line
from prefetch.cli.arguments.configs import (
    OPTION_NAMES,
    LayerOption,
    RootOption,
    StageOption,
    check_there,
)
from prefetch.cli.arguments.outputs import (
    ForceOption,
    check_folder,
    check_free,
    check_no_input,
    config_files,
)


def from_prototxt(
    network: Annotated[
        Path,
        typer.Argument(metavar="NET", help="The network's .prototxt.", callback=check_there),
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
    phase: Annotated[
        Literal["train", "test"],
        typer.Option(case_sensitive=False, help="Whose layer: that of training or of testing."),
    ] = "train",
    layer: LayerOption = None,
    stage: StageOption = None,
    root: RootOption = Path(),
    seed: Annotated[
        int | None,
        typer.Option(help="The network's random seed, as Caffe's solver would give it.", min=0),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write the YAML file that serves what a network's Data layer does, bit for bit.

    Paths become relative to the folder of OUT; in printed text they are absolute. Where layers
    before it draw random numbers that are not counted here, the file says so.
    """
    from prefetch._config.dump import dump_config  # noqa: PLC0415 - pydantic is slow to import
    from prefetch._files.output import write_whole  # noqa: PLC0415 - as above
    from prefetch._prototxt.data_layer import read_data_layer  # noqa: PLC0415 - as above

    of_phase = phase.upper()
    check_no_input(output, [network])
    check_free(output, force=force)
    found = read_data_layer(
        network,
        phase=of_phase,
        layer=layer,
        stages=stage or (),
        root=root,
        seed=seed,
        argument_names=OPTION_NAMES,
    )
    check_no_input(output, config_files(network, found.config))
    notes = {"label_dtype": "Caffe's labels; int64 loses nothing above 2^24"}
    if seed is None:
        notes["seed"] = "another one every run, as in Caffe without random_seed"
    elif of_phase == "TEST" and found.config.transform.mirror and found.unlike is None:
        notes["seed"] = "of this network by itself; a solver sets up its training network first"
    if found.config.draws_before:
        notes["draws_before"] = "by the layers before it, from the same generator"
    unlike = "" if found.unlike is None else f"{_comment(f'But {found.unlike}.')}\n"
    text = (
        f"# What layer {found.name!r} of {printable_line(network.name)} serves in phase "
        f"{of_phase}, as Caffe does: an endless\n# stream, Caffe's random numbers and shards. "
        "Made by ringfeed from-prototxt.\n"
        + unlike
        + dump_config(found.config, folder=None if output is None else output.parent, notes=notes)
    )
    if output is None:
        sys.stdout.write(text)
        return
    write_whole(output, text.encode())
    sys.stdout.write(f"{printable_line(str(output))}: written\n")


def _comment(text: str) -> str:
    return textwrap.fill(text, 100, initial_indent="# ", subsequent_indent="# ")
