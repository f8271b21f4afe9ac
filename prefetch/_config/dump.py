"""A configuration as the text of a YAML file that `prefetch.open` reads as the same one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prefetch._config.feed_config import FeedConfig

# What a reader of the file looks for first, even where it is the default.
_ALWAYS_WRITTEN = frozenset({"batch_size", "phase"})


def dump_config(
    config: FeedConfig, *, folder: Path | None = None, notes: Mapping[str, str] | None = None
) -> str:
    """Return a configuration's options as YAML: those that differ from their defaults, and a few.

    Args:
        config: The configuration; its sources and its device are named by texts.
        folder: Where the file is going to be; paths become relative to it. None: they are absolute.
        notes: Comments behind options, by their dotted names. Such an option is always written.

    Raises:
        TypeError: A source or the device is an object.

    Example:
        >>> from prefetch import FeedConfig
        >>> config = FeedConfig(source="/data/train_lmdb", transform={"scale": 0.5})
        >>> print(dump_config(config, folder=Path("/data")), end="")
        source: "train_lmdb"
        batch_size: 64
        phase: train
        transform:
          scale: 0.5
    """
    base = None if folder is None else folder.resolve()
    return "".join(f"{line}\n" for line in _lines(config, base, notes or {}, ""))


def _lines(
    model: BaseModel, folder: Path | None, notes: Mapping[str, str], group: str
) -> Iterator[str]:
    indent = "  " * group.count(".")
    for name, field in type(model).model_fields.items():
        value, key = getattr(model, name), f"{group}{name}"
        if key == "transform.preset":
            continue  # what it is short for is written out: a default may be given in its place
        if isinstance(value, BaseModel):
            inner = list(_lines(value, folder, notes, f"{key}."))
            if inner:
                yield f"{indent}{name}:"
                yield from inner
            elif field.default is None:
                yield f"{indent}{name}: {{}}"  # there, if only with its defaults
        elif value != field.default or key in notes or key in _ALWAYS_WRITTEN:
            comment = f"  # {notes[key]}" if key in notes else ""
            yield f"{indent}{name}: {_spell(value, folder)}{comment}"


def _spell(value: Any, folder: Path | None) -> str:
    if isinstance(value, tuple):
        if len(value) == 1 and isinstance(value[0], Path):
            return _spell(value[0], folder)
        return f"[{', '.join(_spell(item, folder) for item in value)}]"
    if isinstance(value, Path):
        path = str(value) if folder is None else os.path.relpath(value, folder)
        path = os.fsencode(path).decode("utf-8", "surrogateescape")  # whatever the locale is
        return _quote(path)
    if isinstance(value, float):
        return _spell_number(value)
    if value is None or isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, str):
        return value  # one of the words that an option takes
    raise TypeError(f"expected what YAML can spell, found {value!r}")


def _quote(text: str) -> str:
    """Return a text in quotes; what YAML does not take as it is, and a terminal obeys, escaped."""
    return "".join(
        char if char.isprintable() else f"\\U{ord(char):08x}"
        for char in json.dumps(text, ensure_ascii=False)
    )


def _spell_number(value: float) -> str:
    """Spell a number; a float32, which a network's file holds, as short as it may be."""
    with np.errstate(over="ignore"):
        single = np.float32(value)
    return str(single) if float(single) == value else repr(value)
