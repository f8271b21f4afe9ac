"""What is wrong with a configuration, in words that name the option, the value and the cure.

Pydantic finds the faults; its texts name neither the option's place in a file nor the nearest
valid name, and differ in style from the rest of the package. Each of its errors becomes one
:class:`~prefetch.ConfigFault` here: *expected ..., found ...*, and what to write instead.
"""

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from memory.wording import nearest, printable_value, printable_with_kind
from prefetch._config.foreign_names import CALLED_HERE, FUNCTIONS
from prefetch._errors.classes import ConfigError, ConfigFault, ConfigNotFoundError, PrefetchError
from prefetch._errors.os_errors import describe_os_error
from prefetch._files.path_hints import hint

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence
    from pathlib import Path

    from pydantic.fields import FieldInfo

_MOST_DEPTH = 32
# Guessing takes 0.5 ms, a file may hold any number of unknown names, and an error shows 20.
_MOST_GUESSED = 20
# By the kinds of errors that the models' types and limits can give.
_EXPECTED = {
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "{ge} or more",
    "int_type": "an integer",
    "less_than_equal": "{le} or less",
    "model_type": "a mapping of options",
    "tuple_type": "a number, or a list of one a channel",
}
_CAMEL_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SPELLINGS_OF_BOOLEANS = frozenset({"true", "false", "on", "off", "yes", "no", "y", "n"})


@contextmanager
def file_context(path: Path, cure: str) -> Iterator[None]:
    """Turn what keeps a block from reading its file into an error that says what to do.

    Raises:
        ConfigNotFoundError: The file is not there.
        ConfigError: It is a folder, or cannot be read.
    """
    name = str(path)
    message = f"there is no such file; {cure}{hint(name)}"
    if is_folder(path):
        raise ConfigError(name, (ConfigFault("", f"expected a file, found a folder; {cure}"),))
    if "\0" in name:
        message = f"no path holds a NUL character; {cure}"
        raise ConfigNotFoundError(name.replace("\0", "\\x00"), (ConfigFault("", message),))
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigNotFoundError(name, (ConfigFault("", message),)) from None
    except OSError as error:
        if isinstance(error, PrefetchError):
            raise
        raise ConfigError(
            name, (ConfigFault("", f"cannot be read: {describe_os_error(error)}"),)
        ) from error


def is_folder(path: Path) -> bool:
    """Return whether a folder is at a path where a file is expected.

    Raises:
        ConfigError: The path cannot be looked at.
    """
    name = str(path)
    try:
        return "\0" not in name and path.is_dir()
    except OSError as error:
        raise ConfigError(
            name, (ConfigFault("", f"cannot be read: {describe_os_error(error)}"),)
        ) from error


def join_path(path: Iterable[str | int]) -> str:
    """Return the name of an option from its path: ``transform.mean_value[1]``."""
    name = ""
    for part in path:
        if isinstance(part, int):
            name += f"[{part}]"
        else:
            name += f".{part}" if name else part
    return name


def is_within(key: str, ancestor: str) -> bool:
    """Say whether the option ``key`` is ``ancestor`` or a part of it."""
    return key == ancestor or key.startswith((f"{ancestor}.", f"{ancestor}["))


def closest_key(key: str, keys: Container[str]) -> str | None:
    """Return the innermost of the options that ``key`` is or is a part of, or None."""
    return next((name for name in with_ancestors(key) if name in keys), None)


def with_ancestors(key: str) -> Iterator[str]:
    """Yield the option and those that it is a part of, the innermost first."""
    for _ in range(_MOST_DEPTH):
        if key:
            yield key
        key = key[: max(key.rfind("."), key.rfind("["), 0)]


def sort_by_line(faults: Iterable[ConfigFault]) -> tuple[ConfigFault, ...]:
    """Return the faults by their lines; those without one keep their order, at the end."""
    return tuple(sorted(faults, key=lambda f: math.inf if f.line is None else f.line))


def expected_one_of(value: object, choices: Sequence[str]) -> str:
    """Return the message for a value that is none of the choices."""
    message = f"expected one of {', '.join(choices)}; found {printable_with_kind(value)}"
    guess = nearest(value, choices)
    return f"{message}; did you mean {guess}?" if guess else message


def explain_errors(error: ValidationError, model: type[BaseModel]) -> Iterator[ConfigFault]:
    """Yield one fault for each of pydantic's errors.

    Args:
        error: What validation of the model raised.
        model: The outermost model, whose options and nested options are the valid names.
    """
    num_unknown = 0
    listed: set[str] = set()
    for found in error.errors(include_url=False):
        location = found["loc"]
        key = join_path(location)
        value = found["input"]
        match found["type"]:
            case "extra_forbidden":
                num_unknown += 1
                message = "is not an option"
                if num_unknown <= _MOST_GUESSED:
                    message += _suggest_option(location, model, listed)
            case "missing":
                missing = _model_at(location[:-1], model).model_fields[str(location[-1])]
                message = f"is missing, and has no default. {missing.description}"
            case "literal_error":
                message = expected_one_of(value, _choices(location, model))
            case "value_error":
                message = str(found["ctx"]["error"])
            case kind:
                field = _field_at(location, model)
                expected = _EXPECTED.get(kind, kind).format(**found.get("ctx", {}))
                if field is not None and field.default is None and kind.endswith("_type"):
                    expected += " or null"
                if kind.endswith("_type"):
                    expected = _other_forms(field) + expected
                message = (
                    f"expected {expected}, found {printable_with_kind(value)}{_cure(kind, value)}"
                )
        yield ConfigFault(key, message + _cure_of_null(location, value, model))


def _cure(kind: str, value: object) -> str:
    if kind == "model_type" and callable(value):
        return f"; {FUNCTIONS}"
    if kind in {"int_type", "float_type"} and isinstance(value, str) and _is_number(value):
        return "; write the number without quotes"
    if (
        kind == "int_type"
        and isinstance(value, float)
        and abs(value) < 2**53
        and value.is_integer()
    ):
        return f"; write {int(value)}"
    if kind == "bool_type" and isinstance(value, str) and value.lower() in _SPELLINGS_OF_BOOLEANS:
        return "; only true and false, without quotes, are booleans in YAML 1.2"
    return ""


def _cure_of_null(location: tuple[str | int, ...], value: object, model: type[BaseModel]) -> str:
    """Say what to do about a name with nothing behind it, which YAML reads as null."""
    field = _field_at(location, model)
    if value is not None or field is None or field.is_required():
        return ""
    default = field.default
    if isinstance(default, BaseModel):
        return "; leave it out for its default"
    spelled = default if isinstance(default, str) else printable_value(default)
    return f"; leave it out for its default, {spelled}"


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _suggest_option(
    location: tuple[str | int, ...], model: type[BaseModel], listed: set[str]
) -> str:
    """Say which option was meant: one of this name elsewhere, or one here of a similar name.

    Args:
        location: Where the unknown name stands.
        model: The outermost model.
        listed: Groups whose options have been listed already; takes this one.
    """
    name = str(location[-1])
    if name not in CALLED_HERE:
        name = _CAMEL_HUMP.sub("_", name).lower()  # RandomResizedCrop: random_resized_crop
    if name in CALLED_HERE:
        return f": {CALLED_HERE[name]}"
    outer, dot, inner = name.partition(".")
    here = list(_model_at(location[:-1], model).model_fields)
    everywhere = list(option_paths(model))
    guess = next((path for path in everywhere if path.rpartition(".")[2] == name), None)
    if dot and name in everywhere:
        guess = f"{outer}: {{{inner}: ...}}"
    elif guess is None and (similar := nearest(name, here)) is not None:
        guess = join_path([*location[:-1], similar])
    if guess is not None:
        return f"; did you mean {guess}?"
    group = join_path(location[:-1])
    if group in listed:
        return ""
    listed.add(group)
    return f"; valid here are {', '.join(here)}"


def option_paths(model: type[BaseModel]) -> Iterator[str]:
    """Yield the dotted name of every option, each group's before its members'."""
    for name, field in model.model_fields.items():
        yield name
        group = group_of(field.annotation)
        if group is not None:
            yield from (f"{name}.{inner}" for inner in option_paths(group))


def _model_at(location: tuple[str | int, ...], model: type[BaseModel]) -> type[BaseModel]:
    for part in location:
        model = group_of(model.model_fields[str(part)].annotation) or model
    return model


def group_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a nested group of options, also where the group may be null."""
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    # Of Annotated the first argument is the type, of a union each is one.
    inner = get_args(annotation)
    inner = inner[:1] if get_origin(annotation) is Annotated else inner
    return next((found for each in inner if (found := group_of(each)) is not None), None)


def _field_at(location: tuple[str | int, ...], model: type[BaseModel]) -> FieldInfo | None:
    """Return the option at a place; None for a part of one."""
    if isinstance(location[-1], int):
        return None
    return _model_at(location[:-1], model).model_fields.get(str(location[-1]))


def _other_forms(field: FieldInfo | None) -> str:
    """Return what an option, or a group of them, may be besides, to be followed by its own form."""
    if field is None:
        return ""
    # By name: the module of what adds to schemas stands above this one.
    extra = getattr(field.json_schema_extra, "__name__", "")
    if extra == "allow_size":
        return "[height, width], or "
    return "auto, or " if field.default == "auto" or extra == "allow_auto" else ""


def _choices(location: tuple[str | int, ...], model: type[BaseModel]) -> list[str]:
    annotation = _model_at(location[:-1], model).model_fields[str(location[-1])].annotation
    return list(_words_of(annotation))


def _words_of(annotation: Any) -> Iterator[str]:
    """Yield the words of a Literal, also of one in a union or with annotations."""
    for each in get_args(annotation):
        if get_origin(annotation) is Literal:
            yield str(each)
        elif get_args(each):
            yield from _words_of(each)
