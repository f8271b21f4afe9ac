"""Write prefetch/_config/keywords.py, the types of options, from the models that check them.

Usage: python scripts/gen_keywords.py [--check]

With --check nothing is written, and the exit status is 1 where the module is not up to date.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from generated import write_or_check
from prefetch._config import cache_models, recipe_models
from prefetch._config.schema import config_schema, option_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

MODULE: Final = Path(__file__).resolve().parent.parent / "prefetch" / "_config" / "keywords.py"

_HEAD: Final = '''\
"""Options as typed keywords, for editors and type checkers; made by scripts/gen_keywords.py."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from memory import Device
    from prefetch._config.cache_models import {cache_models}
    from prefetch._config.models import {models}
    from prefetch._config.recipe_models import {recipe_models}
    from prefetch._source.backend import Source

'''
_TAIL: Final = '''

OPTIONS: Final = inspect.cleandoc(FeedKeywords.__doc__ or "").partition("\\n\\n")[2]
"""Every option with its text, as help() lists them; empty with python -OO."""
'''

_PLAIN: Final = {"boolean": "bool", "integer": "int", "number": "float", "null": "None"}

# What a JSON schema cannot say: objects, and a network's phase in Caffe's spelling.
_OF_PYTHON: Final = {
    "device": "str | Device",
    "per_batch": "str | Callable[..., Any] | None",
    "per_record": "str | Callable[..., Any] | None",
    "phase": 'Literal["train", "test", "TRAIN", "TEST"]',
    "source": "Source | Sequence[Source]",
}
_NETWORKS: Final = '''

class OpenKeywords(FeedKeywords, total=False):
    """The keywords of `prefetch.open`: a feed's options, and those that only a network has.

    Attributes:
        config: A configuration, in place of the argument.
        layer: Of a network's file: name of the layer, or of one of its tops.
        stages: Likewise: stages of the network's state.
        root: Likewise: folder that relative paths in the file start from.
        rank: Likewise: this process among the ranks.
        world_size: Likewise: how many ranks share the database.
    """

    config: object
    layer: str | None
    stages: str | Sequence[str]
    root: str | os.PathLike[str]
    rank: int
    world_size: int


class LoaderKeywords(OpenKeywords, total=False):
    """The keywords of the loaders for PyTorch and JAX; but for ``drop_last`` without effect.

    Attributes:
        drop_last: The same as ``last_batch: drop``; False: ``last_batch: partial``.
    """

    drop_last: bool | None
    in_order: bool
    multiprocessing_context: object
    num_workers: int
    persistent_workers: bool
    pin_memory: bool
    pin_memory_device: str
    prefetch_factor: int | None
    timeout: float
'''


def module_text() -> str:
    """Return the module as the models have it made."""
    schema = config_schema()
    groups = [
        _spell_class(name.replace("Config", "Keywords"), group["description"], group["properties"])
        for name, group in schema["$defs"].items()
    ]
    feed = _spell_class("FeedKeywords", _list_options(), schema["properties"])
    recipes = {name for name in schema["$defs"] if hasattr(recipe_models, name)}
    caches = {name for name in schema["$defs"] if hasattr(cache_models, name)}
    head = _HEAD.format(
        cache_models=_spell_names(caches),
        models=_spell_names(set(schema["$defs"]) - recipes - caches),
        recipe_models=_spell_names(recipes),
    )
    return "".join([head, *groups, feed.rstrip("\n"), "\n", _NETWORKS, _TAIL])


def _spell_names(names: AbstractSet[str]) -> str:
    """Return names to import, in parentheses where they take several lines."""
    text = ", ".join(sorted(names))
    if len(text) < 50:
        return text
    return "".join(["(\n", *(f"        {name},\n" for name in sorted(names)), "    )"])


def _list_options() -> str:
    lines = ["Every option of a feed; see `prefetch.FeedConfig`.", "", "Options:"]
    for row in option_table():
        default = row.default if row.default == "required" else f"default {row.default}"
        text = f"{row.name} ({default}): {row.description}"
        lines += textwrap.wrap(text, 92, initial_indent="    ", subsequent_indent="        ")
    return "\n".join(lines)


def _spell_class(name: str, doc: str, options: dict[str, Any]) -> str:
    closed = f"{doc}\n" if "\n" in doc else doc
    fields = "".join(
        f"    {option}: {_OF_PYTHON.get(option) or _spell_union(accepted, len(option))}\n"
        for option, accepted in options.items()
    )
    text = textwrap.indent(f'"""{closed}"""\n', "    ")
    return f"\nclass {name}(TypedDict, total=False):\n{text}\n{fields}\n"


def _spell_union(accepted: dict[str, Any], name_size: int) -> str:
    """Return the types of a value as one, in parentheses where they take several lines.

    So the formatter leaves them, behind a name of ``name_size`` characters.
    """
    types = sorted(dict.fromkeys(_spell(accepted)), key=lambda word: word == "None")
    text = " | ".join(types)
    if len(text) + name_size + len("    : ") <= 100:
        return text
    if len(text) + 8 <= 100:
        return f"(\n        {text}\n    )"
    return "".join(["(\n        ", "\n        | ".join(types), "\n    )"])


def _spell(accepted: dict[str, Any]) -> Iterator[str]:
    """Yield the types of a value, as Python's annotations spell them."""
    match accepted:
        case {"anyOf": choices}:
            for choice in choices:
                yield from _spell(choice)
        case {"$ref": reference}:
            model = reference.rpartition("/")[2]
            yield from (model.replace("Config", "Keywords"), model, "Mapping[str, Any]")
        case {"enum": words}:
            yield f"Literal[{', '.join(map(_quote, words))}]"
        case {"const": word}:
            yield f"Literal[{_quote(word)}]"
        case {"type": "array", "items": item}:
            yield f"Sequence[{' | '.join(_spell(item))}]"
        case {"type": "string", "minLength": 1}:
            yield "str"
            yield "os.PathLike[str]"
        case {"type": "string"}:
            yield "str"
        case {"type": kind}:
            yield _PLAIN[kind]
        case _:
            raise ValueError(f"no type is known for {accepted}")


def _quote(word: object) -> str:
    return f'"{word}"' if isinstance(word, str) else repr(word)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the module, and return the exit status."""
    return write_or_check(
        {MODULE: module_text()}, script="gen_keywords", doc=__doc__, arguments=arguments
    )


if __name__ == "__main__":
    sys.exit(main())
