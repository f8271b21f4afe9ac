"""The configuration of a feed: its options, checked all at once.

Whatever is wrong is reported at once: faults of single options (pydantic finds them) together
with options that contradict each other (:mod:`prefetch._config.contradictions`).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from prefetch._config.contradictions import find_contradictions
from prefetch._config.faults import closest_key, explain_errors, with_ancestors
from prefetch._config.keywords import OPTIONS
from prefetch._config.models import FeedOptions
from prefetch._config.option_types import to_plain
from prefetch._errors.classes import ConfigError, ConfigFault

if TYPE_CHECKING:
    from typing import Unpack

    from prefetch._config.keywords import FeedKeywords

logger = logging.getLogger("prefetch")


class FeedConfig(FeedOptions):
    """Every option of a feed, checked; relative paths are taken from the working directory.

    Attributes are the options of the YAML file, by the same names. ``source`` is a tuple whatever
    was given, and its paths are absolute.

    Raises:
        ConfigError: An option is unknown, missing, of the wrong kind or out of range, or options
            contradict each other; it lists all of that at once.

    Example:
        >>> FeedConfig(source="digits_lmdb", batch_size=32).transform.crop_size
        0
    """

    def __init__(self, **options: Unpack[FeedKeywords]) -> None:
        given: dict[str, Any] = to_plain(options)
        faults: list[ConfigFault] = []
        try:
            super().__init__(**given)
        except ValidationError as error:
            faults.extend(explain_errors(error, type(self)))
            # Never to be seen: only to find what the sound options contradict among themselves.
            super().__init__(**_keep_sound({fault.key for fault in faults}, given))
        keys = list(_keys(given))
        at_fault = {name for fault in faults for name in with_ancestors(fault.key)}
        for found in find_contradictions(self):
            # With an option at fault, what contradicts it is unknown until it is put right.
            if at_fault.isdisjoint(found.keys):
                blamed = next((key for key in found.keys if key in keys), found.keys[0])
                faults.append(ConfigFault(blamed, found.message))
        if faults:
            ranks = {key: rank for rank, key in enumerate(keys)}
            faults.sort(key=lambda fault: _rank(fault.key, ranks))
            raise ConfigError("FeedConfig", tuple(faults))
        if self.max_batches_held == 1:
            logger.warning(
                "max_batches_held is 1: in 'for batch in feed' the variable still holds the batch "
                "before when the next one is asked for, which is refused unless the loop calls "
                "batch.release() or 'del batch'; 2 or more does without"
            )
        if self.prefetch == 1:
            logger.warning(
                "prefetch is 1: reading overlaps with the consumer, but one slow batch makes it "
                "wait; 2 or more evens that out"
            )


if FeedConfig.__doc__:  # python -OO leaves it out
    FeedConfig.__doc__ = f"{inspect.cleandoc(FeedConfig.__doc__)}\n\n{OPTIONS}"
# Without pydantic's annotations, which are a page of validators.
_signature = inspect.signature(FeedConfig)
FeedConfig.__signature__ = _signature.replace(
    parameters=[
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in _signature.parameters.values()
    ]
)


def _keys(options: Mapping[str, Any], group: str = "") -> Iterator[str]:
    """Yield the dotted names of the options that were given, in their order."""
    for name, value in options.items():
        yield f"{group}{name}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{group}{name}.")


def _rank(key: str, ranks: Mapping[str, int]) -> int:
    closest = closest_key(key, ranks)
    return len(ranks) if closest is None else ranks[closest]


def _keep_sound(
    refused: AbstractSet[str], options: Mapping[str, Any], group: str = ""
) -> dict[str, Any]:
    """Return the options that no fault names, with a stand-in for a source that one does."""
    sound: dict[str, Any] = {} if group else {"source": "/"}
    touched = refused | {name for key in refused for name in with_ancestors(key)}
    for name, value in options.items():
        key = f"{group}{name}"
        # What is left of a group in a group may lack an option that it must have.
        in_group = bool(group) and key in touched
        if isinstance(value, Mapping) and key not in refused and not in_group:
            sound[name] = _keep_sound(refused, value, f"{key}.")
        elif key not in touched:
            sound[name] = value
    return sound
