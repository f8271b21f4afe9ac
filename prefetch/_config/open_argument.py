"""What `prefetch.open` is given: a configuration, a database, or a network's file."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import lmdb
from pydantic import BaseModel

from prefetch._config.faults import is_folder
from prefetch._config.paths import (
    expand_home,
    make_absolute,
    make_encodable,
    matching_paths,
)
from prefetch._errors.classes import (
    ConfigError,
    ConfigFault,
    ConfigNotFoundError,
    DatabaseNotFoundError,
)
from prefetch._files.input import open_regular
from prefetch._files.path_hints import NETWORK_SUFFIXES, URL, hint, kind_of

_FORMS: Final = (
    "expected a configuration (.yaml), a Caffe network's file (.prototxt), or a database: its "
    "folder, its data.mdb, a pattern such as 'shards/*_lmdb', or a list of such"
)
_CONFIG_SUFFIXES: Final = frozenset({".yaml", ".yml"})
_DATABASE_SUFFIXES: Final = frozenset({".mdb", ".lmdb"})
_OF_SHARD: Final = frozenset({"rank", "world_size"})
_NUM_BYTES_LOOKED_AT: Final = 64  # an LMDB's magic number is in them, and NULs before it


class Argument(NamedTuple):
    """What is to be opened.

    Attributes:
        network: A network's file; None for a configuration.
        config: A YAML file, a mapping or a FeedConfig; None where the options are all there is.
        options: Options beside it, which win over what it says.
    """

    network: str | os.PathLike[str] | None
    config: Any
    options: dict[str, Any]


def sort_argument(what: Any, options: Mapping[str, Any]) -> Argument:
    """Return what is to be opened, by what it is; nothing is opened, but a file may be looked at.

    Args:
        what: The argument; None where there is none.
        options: The keywords; a ``config`` among them is an argument by its name.

    Raises:
        ConfigError: There are two things to open, or one that is none.
        ConfigNotFoundError: The argument is a text that names nothing.
    """
    given = dict(options)
    if "config" in given:
        config = given.pop("config")
        if what is not None and config is not None:
            raise _refusal("config", "stands beside another configuration or database; give one")
        if what is None and _kind(config) != "network":
            return Argument(None, config, given)
        what = config if what is None else what
    kind = _kind(what)
    if kind == "network":
        if "shard" in given and not given.keys().isdisjoint(_OF_SHARD):
            raise _refusal("shard", "stands beside rank or world_size, which it has too; give one")
        return Argument(what, None, given)
    if kind == "config":
        return Argument(None, what, given)
    if "source" in given:
        raise _refusal(
            "source", "stands beside a database, which is a source too; give one, or a list of both"
        )
    return Argument(None, None, {"source": what, **given})


def _refusal(option: str, reason: str) -> ConfigError:
    return ConfigError("options", (ConfigFault(option, reason),))


def _kind(what: object) -> Literal["config", "network", "source"]:
    if isinstance(what, Mapping | BaseModel):
        return "config"
    if isinstance(what, str | os.PathLike) and isinstance(name := os.fspath(what), str):
        return _kind_of_path(name)
    is_several = isinstance(what, Sequence) and not isinstance(what, str | bytes)
    # What is nothing of all that is refused as a configuration, with an example.
    return "source" if is_several or isinstance(what, lmdb.Environment) else "config"


def _kind_of_path(name: str) -> Literal["config", "network", "source"]:
    """Return what a path leads to, by its ending, or by what is there.

    Raises:
        ConfigNotFoundError: Nothing is there, and its ending says nothing either.
        DatabaseNotFoundError: It is a pattern that matches nothing.
    """
    try:
        path = Path(make_encodable(expand_home(name)))
    except ValueError:
        return "config"  # whose reader says what no path may hold
    if URL.match(name) or (name and is_folder(path)):
        return "source"
    suffix = path.suffix.lower()
    if suffix in _CONFIG_SUFFIXES or "\0" in name:
        return "config"
    if suffix in NETWORK_SUFFIXES:
        return "network"
    if path.name != "data.mdb":
        if name and os.path.lexists(path):
            is_database = suffix in _DATABASE_SUFFIXES or _is_binary(path)
            return "source" if is_database else "config"
        _require_match(name, path)
    return "source"


def _require_match(name: str, path: Path) -> None:
    """Raise unless a text at which nothing is is a pattern that matches something.

    Raises:
        ConfigNotFoundError: It is no pattern.
        DatabaseNotFoundError: It matches nothing.
    """
    if not glob.has_magic(name):
        message = f"{_FORMS}; there is nothing here{hint(name)}"
        raise ConfigNotFoundError(name, (ConfigFault("", message),))
    try:
        there = make_absolute(path, Path())
    except FileNotFoundError:
        return  # the check of source says what has become of the working directory
    if matching_paths(there) == [there]:
        raise DatabaseNotFoundError(str(there), "as a pattern it matches no path")


def _is_binary(path: Path) -> bool:
    """Say whether a file holds something else than text; what cannot be looked at does not."""
    try:
        with open_regular(path) as file:
            head = file.read(_NUM_BYTES_LOOKED_AT)
    except OSError:
        # A pipe, whose bytes come once, may be a configuration; of what fails its reader says so.
        return False
    kind = kind_of(head)
    return b"\0" in head or (kind is not None and not kind.startswith("text"))
