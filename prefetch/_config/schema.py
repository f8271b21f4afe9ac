"""The documentation of the options, made from the models that check them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from prefetch._config.faults import group_of
from prefetch._config.feed_config import FeedConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


class OptionRow(NamedTuple):
    """One row of the table of options.

    Attributes:
        name: Dotted name, such as ``transform.crop_size``.
        default: The default as YAML spells it; ``required`` where there is none.
        description: What it does, in a sentence or two.
    """

    name: str
    default: str
    description: str


def option_table() -> list[OptionRow]:
    """Return every option that a configuration file may hold, in the order of the models."""
    return list(_rows(FeedConfig, ""))


def _rows(model: type[BaseModel], prefix: str) -> Iterator[OptionRow]:
    for name, field in model.model_fields.items():
        group = group_of(field.annotation)
        optional = type(None) in get_args(field.annotation)
        if group is None or optional:
            yield OptionRow(f"{prefix}{name}", _default(field), field.description or "")
        if group is not None:
            yield from _rows(group, f"{prefix}{name}.")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.default
    return default if isinstance(default, str) else json.dumps(default)


def config_schema() -> dict[str, Any]:
    """Return the JSON schema of a configuration file, which editors complete and check by."""
    schema = FeedConfig.model_json_schema()
    for model in (schema, *schema["$defs"].values()):
        for option in model["properties"].values():
            option.pop("title", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "ringfeed configuration",
        "description": "Options of a feed: one YAML file, read by prefetch.open().",
    }
