"""Configurations from the command line: a YAML file, or a network's prototxt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from prefetch._files.path_hints import NETWORK_SUFFIXES, hint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefetch._config.feed_config import FeedConfig

OPTION_NAMES = {"layer": "--layer", "phase": "--phase", "stages": "--stage"}
"""What the command line calls the arguments that choose a network's layer."""


def check_there(path: Path) -> Path:
    """Refuse a file to read that is not there, as a wrong argument.

    Raises:
        BadParameter: It is not there.
        OSError: It cannot be looked at, as behind a folder that is closed or a link that leads in
            circles.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        there = path.absolute()
        raise typer.BadParameter(f"there is no file {there}{hint(str(there))}") from None
    return path


ConfigArgument = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG",
        help="YAML file of options, or a Caffe network's .prototxt.",
        callback=check_there,
    ),
]
PhaseOption = Annotated[
    Literal["train", "test"] | None,
    typer.Option(
        case_sensitive=False,
        help="train or test; by default what a YAML file says, and train for a network.",
    ),
]
LayerOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Network's layer, or a top of it, where it has several."),
]
StageOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Stage of the network's state; may be repeated."),
]
RootOption = Annotated[
    Path, typer.Option(metavar="FOLDER", help="Where a network's relative paths start from.")
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Threads, one a core if not given; the result is the same."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def load(
    path: Path,
    *,
    phase: str | None = None,
    layer: str | None = None,
    stages: Sequence[str] | None = None,
    root: Path = Path(),
) -> FeedConfig:
    """Return the configuration that a file holds, or that is the same as a network's Data layer.

    Args:
        path: The file; a network's by its name.
        phase: ``train`` or ``test``; None: as the file says, and ``train`` for a network.
        layer: Which layer of a network.
        stages: Stages of a network's state.
        root: Where a network's relative paths start from.

    Raises:
        ConfigError: Something is wrong with the file.
        UnsupportedSourceError: The layer is of a kind that is not read.
        BadParameter: An option for networks stands with a YAML file.
    """
    if path.suffix in NETWORK_SUFFIXES:
        from prefetch._prototxt.data_layer import read_data_layer  # noqa: PLC0415 - protobuf is slow to import

        return read_data_layer(
            path,
            phase=(phase or "train").upper(),
            layer=layer,
            stages=stages or (),
            root=root,
            argument_names=OPTION_NAMES,
        ).config
    if layer is not None or stages:
        raise typer.BadParameter(f"--layer and --stage are for networks, and {path} is none")
    from prefetch._config.load import load_config  # noqa: PLC0415 - pydantic is slow to import

    return load_config(path, **({} if phase is None else {"phase": phase}))
