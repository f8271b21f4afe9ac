"""Find people's own functions, which options name, and say in a saved state which they were."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from memory.wording import nearest
from prefetch._errors.classes import ConfigError, ConfigFault
from prefetch._transform.own_function import OwnFunction, name_of_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prefetch._config.feed_config import FeedConfig
    from prefetch._transform.own_function import Option

_OPTIONS: tuple[Option, ...] = ("per_record", "per_batch")


def load_function(option: Option, value: Callable[..., Any] | str | None) -> OwnFunction | None:
    """Return the function of an option; imports the module that a text names.

    Args:
        option: The option.
        value: A function, ``module:function``, or None for none.

    Raises:
        ConfigError: There is no such function, or its module cannot be imported.
    """
    if value is None:
        return None
    function = _import(option, value) if isinstance(value, str) else value
    return OwnFunction(option, function)


def _import(option: Option, text: str) -> Callable[..., Any]:
    module_name, _, path = text.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        cure = ""
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(
            f"{error.name}."
        ):
            cure = "; install it, or put the folder that it is in on PYTHONPATH"
        raise _refusal(
            option, f"{text}: the module {module_name} cannot be imported ({reason}){cure}"
        ) from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            guess = nearest(name, [each for each in dir(found) if not each.startswith("_")])
            meant = f"; did you mean {guess}?" if guess else ""
            message = f"{text}: there is no {name} in {module_name}{meant}"
            raise _refusal(option, message) from error
    if not callable(found):
        raise _refusal(option, f"{text}: expected a function, found {type(found).__name__}")
    function: Callable[..., Any] = found
    return function


def _refusal(option: Option, reason: str) -> ConfigError:
    return ConfigError(option, (ConfigFault(option, reason),))


def names_of_functions(config: FeedConfig) -> dict[str, str]:
    """Return what the functions of a configuration are called, by option, those that it has.

    ``module:function``, as a YAML file would name it; for an object that is called, its class.
    """
    found = {option: getattr(config, option) for option in _OPTIONS}
    return {option: name_of_function(value) for option, value in found.items() if value is not None}


def without_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a state that are compared: all but the names of functions."""
    return {name: value for name, value in options.items() if name not in _OPTIONS}


def changes(saved: Mapping[str, Any], present: Mapping[str, str]) -> Iterator[str]:
    """Yield what to warn of where a state was saved with other functions."""
    for option in _OPTIONS:
        was, now = saved.get(option), present.get(option)
        if was != now:
            yield (
                f"{option} was {was or 'none'} when the state was saved, and is {now or 'none'}: "
                f"what remains of the epoch is made by another function than what was served"
            )
