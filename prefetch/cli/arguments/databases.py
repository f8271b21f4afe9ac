"""Databases that a command reads and makes, and how it makes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from prefetch.cli.arguments.outputs import check_no_input, database_files

if TYPE_CHECKING:
    from collections.abc import Iterable

DatabaseArgument = Annotated[
    Path, typer.Argument(metavar="DB", help="Folder of an LMDB, or its data.mdb.")
]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume", help="Continue what the same command, interrupted, has left in OUT.partial."
    ),
]
SkipOption = Annotated[
    bool, typer.Option("--skip-unreadable", help="Leave out records that cannot be used.")
]
ReplaceOption = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Replace the database that is there, once the new one is whole; what an interrupted "
        "command has left is removed, unless --resume continues it.",
    ),
]


ChannelsOption = Annotated[
    Literal["auto", "bgr", "rgb"],
    typer.Option(
        help="Which order of three stored channels to show as true colours; auto: as channels.txt "
        "beside the database says, else bgr."
    ),
]


def is_shown_blue_first(channels: str, database: Path) -> bool:
    """Return whether the first of three stored channels is shown as blue, by `ChannelsOption`."""
    from prefetch._source.sidecar_files import raw_channel_order  # noqa: PLC0415 - for those who draw

    order = raw_channel_order(database) if channels == "auto" else channels
    return order != "rgb"


def place_of(database: Path, inputs: Iterable[Path]) -> Path:
    """Return the place of a database to make, refused where something is read from there.

    Raises:
        BadParameter: It is no name, or one of the inputs.
    """
    place = database.absolute()
    if place.name in {"", ".."}:
        raise typer.BadParameter(f"{database} is no name for a folder to make; name one in it")
    files = [file for path in inputs for file in database_files(path)]
    for made in (place, partial_of(place)):
        check_no_input(made, files, cure="name another folder, to be made")
    return place


def partial_of(place: Path) -> Path:
    """Return the folder of what is being made for a place."""
    return place.with_name(f"{place.name}.partial")
