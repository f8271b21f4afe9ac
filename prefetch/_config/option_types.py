"""The kinds of values that options take, beyond those that pydantic knows.

Each has one function that accepts or refuses a value, in the words of the package, and its JSON
schema. Pydantic's own unions would report a fault once for each alternative.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard

import lmdb
import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from memory.wording import printable_value, printable_with_kind
from prefetch._config.faults import expected_one_of
from prefetch._config.paths import make_absolute, make_encodable, matching_paths
from prefetch._errors.classes import ConfigError, ConfigFault
from prefetch._files.path_hints import URL


class Options(BaseModel):
    """A group of options: frozen and strict, and an unknown one is refused."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
    )


MOST_DEPTH = 20
"""How deep options may be nested; three levels are in use."""

MOST_SIDE = 65535
"""Pixels of a side that images are resized to at most."""

MOST = 2**53
"""More than there can be of anything, and few enough for every sum in 64 bits."""

_DEVICES = ("auto", "cpu", "simulated", "cuda")
_FORMS_OF_LABELS = ("pairs", "one_hot")
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def to_plain(value: Any, *, depth: int = 0) -> Any:
    """Return the value with models as mappings, lists as tuples and NumPy's numbers as Python's.

    Raises:
        ConfigError: It is nested deeper than any option is, or holds itself.
    """
    if depth > MOST_DEPTH:
        fault = ConfigFault("", f"nested more than {MOST_DEPTH} deep")
        raise ConfigError("configuration", (fault,))
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {_name(name): to_plain(inner, depth=depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return tuple(to_plain(inner, depth=depth + 1) for inner in value)
    return value


def _name(name: object) -> str:
    """Return the name of an option; pydantic takes none with half a character (a surrogate)."""
    return str(name).encode("utf-8", "backslashreplace").decode()


def _path(value: object) -> Path:
    if isinstance(value, str | os.PathLike):
        name = os.fspath(value)
        if isinstance(name, str) and "\0" in name:
            raise ValueError(f"no path holds a NUL character, found {printable_with_kind(name)}")
        if isinstance(name, str) and URL.match(name):
            raise ValueError(
                f"expected a local path, found the URL {name[:80]!r}; URLs are not read yet, copy "
                "it here"
            )
        if isinstance(name, str) and name:
            try:
                return make_absolute(make_encodable(name), Path())
            except FileNotFoundError as error:
                raise ValueError(str(error)) from None
    cure = "; give it as text, as os.fsdecode does" if isinstance(value, bytes) else ""
    raise ValueError(
        f"expected the path of a file or folder, found {printable_with_kind(value)}{cure}"
    )


def _optional_path(value: object) -> Path | None:
    return None if value is None else _path(value)


def _sources(value: object) -> tuple[Path | lmdb.Environment, ...]:
    many = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    sources = tuple(value) if isinstance(value, Sequence) and many else (value,)
    if not sources:
        raise ValueError("expected at least one database, found an empty list")
    return tuple(
        found
        for item in sources
        for found in ([item] if isinstance(item, lmdb.Environment) else matching_paths(_path(item)))
    )


class AutoOr:
    """Annotates an option that is ``auto``, or a whole number.

    Args:
        least: The smallest number.
    """

    def __init__(self, least: int) -> None:
        self._least = least

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        number = core_schema.int_schema(strict=True, ge=self._least, le=MOST)
        # As it is; pydantic's own way for a number warns of the text.
        plain = core_schema.plain_serializer_function_ser_schema(lambda value: value)
        return core_schema.no_info_wrap_validator_function(_pass_auto, number, serialization=plain)

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> dict[str, Any]:
        number = {"type": "integer", "minimum": self._least, "maximum": MOST}
        return {"anyOf": [{"const": "auto"}, number]}


class TrueFalseOr:
    """Annotates an option that is true, false, or a word.

    Args:
        words: The words.
    """

    def __init__(self, *words: str) -> None:
        self._words = words

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        plain = core_schema.plain_serializer_function_ser_schema(lambda value: value)
        return core_schema.no_info_plain_validator_function(self._check, serialization=plain)

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> dict[str, Any]:
        return {"anyOf": [{"type": "boolean"}, *({"const": word} for word in self._words)]}

    def _check(self, value: object) -> bool | str:
        if isinstance(value, bool) or (isinstance(value, str) and value in self._words):
            return value
        raise ValueError(expected_one_of(value, ("true", "false", *self._words)))


def _pass_auto(value: object, check: Callable[[object], Any]) -> Any:
    return value if value == "auto" else check(value)


def expand_auto(value: object) -> object:
    """Return what ``auto`` is short for where a group of options stands: all of its defaults."""
    return {} if value == "auto" else value


def allow_auto(schema: dict[str, Any]) -> None:
    """Add to a group's JSON schema that it may be ``auto``."""
    schema["anyOf"] = [{"const": "auto"}, {"$ref": schema.pop("$ref")}]


_MOST_THREADS = 1024  # to start them takes seconds, in which Ctrl-C waits for each


def _threads(value: object) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_THREADS:
        return value
    raise ValueError(
        f"expected auto, or a number of threads from 1 to {_MOST_THREADS}; "
        f"found {printable_with_kind(value)}"
    )


def _device(value: object) -> Any:
    if isinstance(value, str):
        if value in _DEVICES or re.fullmatch(r"cuda:\d+", value):
            return value
    elif hasattr(value, "alloc_host") and hasattr(value, "make_stream"):
        return value
    kind, _, number = value.lower().partition(":") if isinstance(value, str) else ("", "", "")
    if kind in {"gpu", "nvidia", "cuda"}:  # by its spelling alone, gpu is nearest to cpu
        meant = f"cuda:{number}" if number.isdecimal() else "cuda"
        choices = ", ".join((*_DEVICES, "cuda:N"))
        raise ValueError(
            f"expected one of {choices}; found {printable_with_kind(value)}; did you mean {meant}?"
        )
    raise ValueError(expected_one_of(value, (*_DEVICES, "cuda:N")))


def _labels(value: object) -> bool | str:
    if isinstance(value, bool) or (isinstance(value, str) and value in _FORMS_OF_LABELS):
        return value
    raise ValueError(expected_one_of(value, ("true", "false", *_FORMS_OF_LABELS)))


def _scale(value: object) -> float | tuple[float, ...]:
    values = value if isinstance(value, tuple) else (value,)
    numbers = tuple(_single(number) for item in values if (number := _finite(item)) is not None)
    if not values or len(numbers) < len(values):
        raise ValueError(
            f"expected a number, or a list of one a channel; found {printable_with_kind(value)}"
        )
    return numbers if isinstance(value, tuple) else numbers[0]


class Size:
    """Annotates an option that is a size in pixels: one number for both sides, or [height, width].

    Args:
        least: The smallest number of pixels; 0 stands for no size.
        most: The largest.
    """

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        plain = core_schema.plain_serializer_function_ser_schema(lambda value: value)
        return core_schema.no_info_plain_validator_function(self._check, serialization=plain)

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> dict[str, Any]:
        number = {"type": "integer", "minimum": self._least, "maximum": self._most}
        side = number | {"minimum": 1}
        return {"anyOf": [number, {"type": "array", "items": side, "minItems": 2, "maxItems": 2}]}

    def _check(self, value: object) -> int | tuple[int, int]:
        if self._is_side(value, self._least):
            return value
        if isinstance(value, tuple) and len(value) == 2:
            height, width = value
            if self._is_side(height, 1) and self._is_side(width, 1):
                return height, width
        if isinstance(value, int) and not isinstance(value, bool) and value < self._least:
            raise ValueError(f"expected {self._least} or more, found {printable_value(value)}")
        raise ValueError(
            f"expected a number of pixels from {self._least} to {self._most}, or [height, width]; "
            f"found {printable_with_kind(value)}"
        )

    def _is_side(self, value: object, least: int) -> TypeGuard[int]:
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return least <= value <= self._most


class Within:
    """Annotates an option that is two bounds, [least, most], within others.

    Args:
        least: No bound is lower.
        most: No bound is higher.
        around: Where one number may stand for both bounds: that which they lie around.
    """

    def __init__(self, least: float, most: float, *, around: float | None = None) -> None:
        self._least = least
        self._most = most
        self._around = around

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        plain = core_schema.plain_serializer_function_ser_schema(lambda value: value)
        return core_schema.no_info_plain_validator_function(self._check, serialization=plain)

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> dict[str, Any]:
        bound = {"type": "number", "minimum": self._least, "maximum": self._most}
        bounds = {"type": "array", "items": bound, "minItems": 2, "maxItems": 2}
        if self._around is None:
            return bounds
        return {"anyOf": [bound | {"minimum": 0, "maximum": self._widest}, bounds]}

    @property
    def _widest(self) -> float:
        """The largest number that may stand for bounds."""
        assert self._around is not None
        return self._most - self._around

    def _check(self, value: object) -> float | tuple[float, float]:
        if isinstance(value, tuple) and len(value) == 2:
            low, high = _finite(value[0]), _finite(value[1])
            if low is not None and high is not None and self._least <= low <= high <= self._most:
                return low, high
        elif self._around is not None:
            number = _finite(value)
            if number is not None and 0 <= number <= self._widest:
                return number
        one = "" if self._around is None else f"a number from 0 to {self._widest:g}, or "
        raise ValueError(
            f"expected {one}[least, most] from {self._least:g} to {self._most:g}; "
            f"found {printable_with_kind(value)}"
        )


def expand_size(value: object) -> object:
    """Return what ``[height, width]`` is short for where a group of options stands."""
    return {"size": value} if isinstance(value, tuple) else value


def allow_size(schema: dict[str, Any]) -> None:
    """Add to a group's JSON schema that it may be ``[height, width]``."""
    side = {"type": "integer", "minimum": 1, "maximum": MOST_SIDE}
    pair = {"type": "array", "items": side, "minItems": 2, "maxItems": 2}
    schema["anyOf"] = [*schema["anyOf"], pair]


def _one_or_several(value: object) -> object:
    """Return a number as a list of one."""
    if isinstance(value, tuple) or _finite(value) is None:
        return value
    return (value,)


def _single(number: float) -> float:
    """Refuse a number that is infinite in float32, in which pixels are calculated."""
    if abs(number) > _LARGEST_FLOAT32:
        raise ValueError(
            f"expected at most {_LARGEST_FLOAT32:.8g}, the largest float32, in size; "
            f"found {printable_with_kind(number)}"
        )
    return number


def _finite(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
    return None


def _own_function(value: object) -> Callable[..., Any] | str | None:
    if value is None:
        return None
    if isinstance(value, str):
        module, _, function = value.partition(":")
        if all(part.isidentifier() for part in (*module.split("."), *function.split("."))):
            return value
    elif callable(value):
        return value
    raise ValueError(
        "expected module:function, such as my_package.images:augment, or in Python a function; "
        f"found {printable_with_kind(value)}"
    )


_PATH_SCHEMA: dict[str, Any] = {"type": "string", "minLength": 1}

Sources = Annotated[
    tuple[Path | lmdb.Environment, ...],
    PlainValidator(_sources),
    WithJsonSchema(
        {"anyOf": [_PATH_SCHEMA, {"type": "array", "items": _PATH_SCHEMA, "minItems": 1}]}
    ),
]
OptionalPath = Annotated[
    Path | None,
    PlainValidator(_optional_path),
    WithJsonSchema({"anyOf": [_PATH_SCHEMA, {"type": "null"}]}),
]
Threads = Annotated[
    int | Literal["auto"],
    PlainValidator(_threads),
    WithJsonSchema(
        {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": _MOST_THREADS}]}
    ),
]
Device = Annotated[
    Any,
    PlainValidator(_device),
    WithJsonSchema(
        {"anyOf": [{"enum": list(_DEVICES)}, {"type": "string", "pattern": r"^cuda:\d+$"}]}
    ),
]
Labels = Annotated[
    bool | Literal["pairs", "one_hot"],
    PlainValidator(_labels),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"enum": list(_FORMS_OF_LABELS)}]}),
]
MeanValue = Annotated[
    tuple[Annotated[float, AfterValidator(_single)], ...],
    BeforeValidator(_one_or_several),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}]}),
]
Scale = Annotated[
    float | tuple[float, ...],
    PlainValidator(_scale),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {"type": "array", "items": {"type": "number"}, "minItems": 1},
            ]
        }
    ),
]
OwnFunction = Annotated[
    Callable[..., Any] | str | None,
    PlainValidator(_own_function),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": r"^[\w.]+:[\w.]+$"}, {"type": "null"}]}
    ),
]
