"""Where a configuration was written, for faults that only opening brings to light."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from prefetch._config.faults import closest_key
from prefetch._errors.classes import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prefetch._config.feed_config import FeedConfig

_NAME = "_place"  # pydantic compares, copies and shows no attribute of this kind


@dataclass(frozen=True, slots=True)
class ConfigPlace:
    """Where the options of a configuration stand.

    Attributes:
        origin: The file.
        options: What an option is called there, and its line; None where that is not known.
    """

    origin: str
    options: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)


def put_place(config: FeedConfig, place: ConfigPlace | None) -> FeedConfig:
    """Return the configuration, which knows from now on where it was written."""
    if place is not None:
        config.__dict__[_NAME] = place
    return config


def place_of(config: FeedConfig) -> ConfigPlace | None:
    """Return where a configuration was written; None where it was no file."""
    place = config.__dict__.get(_NAME)
    return place if isinstance(place, ConfigPlace) else None


def locate_faults(error: ConfigError, config: FeedConfig) -> ConfigError:
    """Return an error found at opening as one of the file in which the option stands."""
    place = place_of(config)
    if place is None:
        return error
    faults = []
    for fault in error.faults:
        option = closest_key(fault.key, place.options)
        if option is None:
            return error  # it was given beside the file
        name, line = place.options[option]
        key = fault.key if option != fault.key else name
        about = f"{error.origin}: " if Path(error.origin).is_absolute() else ""
        faults.append(replace(fault, key=key, line=line, message=f"{about}{fault.message}"))
    return ConfigError(place.origin, tuple(faults))
