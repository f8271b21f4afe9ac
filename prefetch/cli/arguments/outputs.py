"""Files that a command writes: never over what it reads, over others with ``--force`` only."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefetch._config.feed_config import FeedConfig

ForceOption = Annotated[
    bool, typer.Option("--force", help="Write over OUT where it is there already.")
]


def check_folder(path: Path | None) -> Path | None:
    """Refuse a file to write whose folder is not there, before anything is read.

    Raises:
        BadParameter: It is not there.
        OSError: It cannot be looked at.
    """
    if path is not None and not _is_folder(path.absolute().parent):
        raise typer.BadParameter(f"there is no folder {path.absolute().parent}")
    return path


def check_picture_name(path: Path | None) -> Path | None:
    """Refuse a name under which no picture can be written, before anything is read."""
    if path is not None:
        from prefetch._report.contact_sheet import can_write  # noqa: PLC0415 - OpenCV is slow to import

        if not can_write(path):
            raise typer.BadParameter(f"no picture can be written as {path.name}; end it in .png")
    return check_folder(path)


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def check_free(output: Path | None, *, force: bool) -> None:
    """Refuse to write over what is there already; a device or a pipe is written into.

    Raises:
        BadParameter: There is a file, or a link to none, and the user did not ask to write there.
    """
    if output is None or force:
        return
    check_no_dangling_link(output, cure="--force makes the file that it leads to")
    try:
        is_file = stat.S_ISREG(output.stat().st_mode)
    except OSError:  # nothing is there; any other fault is raised by writing
        return
    if is_file:
        raise typer.BadParameter(f"{output} is there already; --force writes over it")


def check_no_dangling_link(output: Path, *, cure: str = "name another file") -> None:
    """Refuse to make a file somewhere else, where a link leads to that is there already.

    Raises:
        BadParameter: The output is a link to nothing.
    """
    # Path's own raise where a name is too long; writing raises that with its cure.
    if os.path.islink(output) and not os.path.exists(output):  # noqa: PTH110, PTH114
        raise typer.BadParameter(
            f"{output} is a link to {output.readlink()}, which is not there; {cure}"
        )


def check_no_input(
    output: Path | None, inputs: Iterable[Path], *, cure: str = "name another file"
) -> None:
    """Refuse to write over something that is read, by any path.

    Args:
        output: What is written.
        inputs: What is read.
        cure: What to do instead.

    Raises:
        BadParameter: The output is one of the inputs.
    """
    if output is None:
        return
    for path in inputs:
        if _is_same(output, path):
            raise typer.BadParameter(
                f"{output} would be written over {path}, which is read; {cure}"
            )


def database_files(path: Path) -> list[Path]:
    """Return what a database at a path may consist of."""
    return [path, path / "data.mdb", path / "lock.mdb"]


def config_files(path: Path, config: FeedConfig) -> list[Path]:
    """Return the files that are read for a configuration, its own included."""
    sources = [Path(source) for source in config.source if isinstance(source, str | Path)]
    files = [path, *(file for source in sources for file in database_files(source))]
    mean_file = config.transform.mean_file
    return files if mean_file is None else [*files, Path(mean_file)]


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there
        return os.path.realpath(one) == os.path.realpath(other)
