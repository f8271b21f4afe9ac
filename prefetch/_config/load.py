"""From a YAML file, a mapping or a configuration, and keywords, to one checked configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.wording import printable_with_kind
from prefetch._config.fault_places import ConfigPlace, place_of, put_place
from prefetch._config.faults import (
    closest_key,
    file_context,
    is_folder,
    is_within,
    sort_by_line,
)
from prefetch._config.feed_config import FeedConfig
from prefetch._config.option_types import to_plain
from prefetch._config.paths import anchor, expand_home, make_encodable
from prefetch._errors.classes import ConfigError, ConfigFault

if TYPE_CHECKING:
    from prefetch._config.yaml import YamlDocument

_EXAMPLE = 'prefetch.open("/data/train_lmdb", batch_size=64)'
_OPTIONS = "options"


def load_config(
    origin: str | os.PathLike[str] | Mapping[str, Any] | FeedConfig | None, /, **overrides: Any
) -> FeedConfig:
    """Return the checked configuration of a feed.

    Args:
        origin: Path of a YAML file, whose own paths are relative to it; or the same options as a
            mapping, whose paths are relative to the working directory; or a configuration. None:
            the overrides are all there is.
        **overrides: Options that win over those of ``origin``, their paths relative to the
            working directory. Mappings (``transform={"crop_size": 24}``) merge key by key.

    Raises:
        ConfigError: Something is wrong; it lists everything that is, in the order of the file.
        ConfigNotFoundError: The file is not there.
    """
    lines: Mapping[str, int] = {}
    place: ConfigPlace | None = None
    faults: list[ConfigFault] = []
    name = origin_name(origin, overrides)
    if isinstance(origin, FeedConfig):
        if not overrides:
            return origin
        options = to_plain(origin)
        place = place_of(origin)
    elif origin is None or isinstance(origin, Mapping):
        options = to_plain(origin or {})
    else:
        document = _read_file(Path(name))
        options, lines, faults = document.values, document.lines, list(document.faults)
        place = ConfigPlace(name, {key: (key, line) for key, line in lines.items()})
    given = to_plain(overrides)
    # An option whose value was refused is not missing as well.
    refused = {fault.key for fault in faults} - options.keys()
    try:
        config = FeedConfig(**merge_options(options, given))
    except ConfigError as error:
        overridden = set(option_leaves(given))
        for fault in error.faults:
            closest = closest_key(fault.key, lines)
            if closest is None or closest_key(fault.key, overridden) is not None:
                faults.append(fault)
            elif fault.key not in refused:
                faults.append(replace(fault, line=lines[closest]))
    else:
        if not faults:
            return put_place(config, drop_overridden(place, list(option_leaves(given))))
    raise ConfigError(name, sort_by_line(faults))


def drop_overridden(place: ConfigPlace | None, overridden: Sequence[str]) -> ConfigPlace | None:
    """Return where options stand, but for those that were given in place of them."""
    if place is None:
        return None
    kept = {
        option: where
        for option, where in place.options.items()
        if not any(is_within(key, option) or is_within(option, key) for key in overridden)
    }
    return ConfigPlace(place.origin, kept)


def _name_of_file(origin: object) -> str:
    name = os.fspath(origin) if isinstance(origin, str | os.PathLike) else origin
    if isinstance(name, str):
        try:
            return make_encodable(expand_home(name))
        except ValueError as error:
            raise ConfigError("configuration", (ConfigFault("", str(error)),)) from None
    found = "nothing" if origin is None else printable_with_kind(origin)
    message = (
        "expected the path of a YAML file, or the options as a mapping or a FeedConfig, or a "
        f"database, as in {_EXAMPLE}; found {found}"
    )
    raise ConfigError("configuration", (ConfigFault("", message),))


def origin_name(origin: object, overrides: Mapping[str, Any]) -> str:
    """Return what errors call a configuration: its file, or a word where there is none.

    Args:
        origin: As for `load_config`.
        overrides: Likewise.

    Raises:
        ConfigError: It is none.
    """
    if isinstance(origin, FeedConfig):
        return "FeedConfig"
    if origin is None and overrides:
        return _OPTIONS
    return "mapping" if isinstance(origin, Mapping) else _name_of_file(origin)


def _read_file(path: Path) -> YamlDocument:
    """Read a YAML file, its relative paths made absolute against its folder."""
    if is_folder(path) or path.name == "data.mdb":
        found = "a database" if path.name == "data.mdb" else "a folder"
        message = (
            f"expected a YAML file, found {found}; a database is given as the option source: "
            f'prefetch.open(source="{path}"), or source: {path} in a YAML file'
        )
        raise ConfigError(str(path), (ConfigFault("", message),))
    if path.suffix == ".prototxt":
        message = "expected a YAML file; a network's definition is opened with open_prototxt"
        raise ConfigError(str(path), (ConfigFault("", message),))
    from prefetch._config.yaml import read_yaml  # noqa: PLC0415 - a mapping needs no ruamel.yaml

    with file_context(path, "give a YAML file, or the same options as a mapping"):
        document = read_yaml(path)
    folder = path.parent
    values = dict(document.values)
    for name in ("source", "quarantine"):
        if name in values:
            values[name] = anchor(values[name], folder)
    transform = values.get("transform")
    if isinstance(transform, dict) and "mean_file" in transform:
        values["transform"] = transform | {"mean_file": anchor(transform["mean_file"], folder)}
    cache = values.get("cache")
    decoded = cache.get("decoded") if isinstance(cache, dict) else None
    if isinstance(cache, dict) and isinstance(decoded, dict) and "path" in decoded:
        anchored = decoded | {"path": anchor(decoded["path"], folder)}
        values["cache"] = cache | {"decoded": anchored}
    return replace(document, values=values)


def merge_options(options: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with others in their place; mappings are merged key by key."""
    merged = dict(options)
    for name, value in overrides.items():
        beneath = merged.get(name)
        if isinstance(beneath, Mapping) and isinstance(value, Mapping):
            merged[name] = merge_options(beneath, value)
        else:
            merged[name] = value
    return merged


def option_leaves(options: Mapping[str, Any], group: str = "") -> Iterator[str]:
    """Yield the dotted names of options, each group's members in place of it."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from option_leaves(value, f"{group}{name}.")
        else:
            yield f"{group}{name}"
