"""Configurations from the command line: a YAML file, a network's prototxt, or a database."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from prefetch._files.path_hints import hint

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


def check_openable(path: Path) -> Path:
    """Refuse what is not there, and no pattern that matches something; raises as `check_there`."""
    pattern = str(path)
    matches = glob.has_magic(pattern) and glob.glob(pattern, recursive=True)  # noqa: PTH207 - of the whole path
    return path if matches else check_there(path)


ConfigArgument = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG",
        help="YAML file of options, a Caffe network's .prototxt, or a database.",
        callback=check_openable,
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
    """Return the configuration that `prefetch.open` would take from the same argument.

    Args:
        path: A YAML file, a network's file, or a database or a pattern of such.
        phase: ``train`` or ``test``; None: as the file says, and ``train`` for a network.
        layer: Which layer of a network.
        stages: Stages of a network's state.
        root: Where a network's relative paths start from.

    Raises:
        ConfigError: Something is wrong with the file.
        UnsupportedSourceError: The layer is of a kind that is not read.
        BadParameter: An option for networks stands with something else.
    """
    from prefetch._config.load import load_config  # noqa: PLC0415 - pydantic is slow to import
    from prefetch._config.open_argument import sort_argument  # noqa: PLC0415 - as above

    argument = sort_argument(path, {})
    if argument.network is not None:
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
    options = argument.options if phase is None else {**argument.options, "phase": phase}
    return load_config(argument.config, **options)
