"""Paths as options name them: the home of ``~``, what a relative one starts from, patterns."""

from __future__ import annotations

import glob
import os
from pathlib import Path

from prefetch._files.path_hints import URL


def expand_home(path: str) -> str:
    """Return a path with a leading ``~`` replaced by the user's home; ``$`` is a letter like any.

    Example:
        >>> expand_home("~root/x"), expand_home("$HOME/x")
        ('~root/x', '$HOME/x')
    """
    return os.path.expanduser(path) if path == "~" or path.startswith("~/") else path  # noqa: PTH111


def make_absolute(path: str | os.PathLike[str], folder: Path) -> Path:
    """Return a path, its leading ``~`` replaced, made absolute against a folder.

    Leading ``..`` are taken off against the folder; any later ones stay, for what they mean depends
    on links inside the path. For an absolute path the folder need not be there.

    Raises:
        FileNotFoundError: The working directory, to which it is relative, has been removed.
    """
    path = Path(expand_home(os.fspath(path)))
    if path.is_absolute():
        return path
    try:
        folder = folder.resolve()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is relative to the working directory, which has been removed; "
            "change into another one, or give an absolute path"
        ) from None
    parts = path.parts
    while parts[:1] == ("..",):
        folder, parts = folder.parent, parts[1:]
    return folder.joinpath(*parts)


def make_encodable(name: str) -> str:
    """Return a path as this process can open it: in UTF-8, where the locale lacks its letters.

    Raises:
        ValueError: It holds half a character.
    """
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        try:
            return os.fsdecode(name.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError:
            message = f"no path holds half a character (a surrogate), found {name!a}"
            raise ValueError(message) from None
    return name


def anchor(value: object, folder: Path) -> object:
    """Return the paths of an option, which a list may hold, as absolute against a folder."""
    if isinstance(value, list):
        return [anchor(item, folder) for item in value]
    # An empty name stays one: it is a fault, and not the folder. A URL is one, too.
    if isinstance(value, str) and value and not URL.match(value):
        return make_absolute(value, folder)
    return value


def matching_paths(path: Path) -> list[Path]:
    """Return the paths that a pattern matches, in their order; itself where that is none."""
    name = str(path)
    if not glob.has_magic(name) or os.path.lexists(path):
        return [path]
    found = sorted(glob.glob(name, recursive=True))  # noqa: PTH207 - of the whole path
    # LMDB puts lock files beside single files, with the same beginning.
    return [Path(one) for one in found if not one.endswith("-lock")] or [path]
