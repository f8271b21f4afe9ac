"""A feed's saved state: where the consumer is, and over what.

The state says what the consumer has *taken*, in terms that do not depend on how it is read: the
epoch, and how many of its samples all ranks together have been served. What was read ahead, the
number of threads, the depth of the ring, the batch size and the number of ranks do not matter, and
may be others when it is loaded. What would change the samples must be the same, and is compared
option by option, so that a refusal names the difference.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memory.wording import printable_value
from prefetch._errors.classes import PrefetchWarning, StateError
from prefetch._feed.own_functions import changes, names_of_functions, without_names
from prefetch._plan.mersenne import MAX_MERSENNE_SEED
from prefetch._plan.philox import MAX_SEED
from prefetch._plan.position import Position
from prefetch._plan.saved_values import is_same, is_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

    from prefetch._config.feed_config import FeedConfig
    from prefetch._source.source import RecordSource
    from prefetch._transform.options import Transform

FORMAT = 1

_ENTRIES = frozenset(
    {"format", "dataset", "config", "world_size", "epoch", "served", "seed", "rng"}
)
_MOST_NAMED = 20
# Far more epochs or ranks than there will be, and few enough for every sum in 64 bits.
MOST = 2**53

# What may be another at loading: how batches are made, and by whom, not which samples they hold.
_FREE = {
    "source",  # compared by its fingerprint: databases may be moved
    "threads",
    "prefetch",
    "device",
    "batch_size",
    "max_batches_held",
    "quarantine",
    "stall_warning_s",
    "draws_before",  # contained in the generator's own state
    "per_record",  # named in the state, and a difference warned of
    "per_batch",
    "shard.rank",
    "shard.world_size",
    "transform.where",
    "transform.preset",  # its options are compared
    "transform.mean_file",  # compared by its contents
}


# The defaults of options that states of format 1 need not name: they were saved before.
_LATER_OPTIONS = {
    "cache.decoded.shorter": None,
    "num_classes": None,
    "subset.complement": False,
    "subset.fraction": None,
    "subset.seed": 0,
    "subset.stratify": False,
    "transform.color_jitter": None,
    "transform.cutmix": None,
    "transform.max_pixels_per_byte": 2048,
    "transform.mixup": None,
    "transform.normalize": None,
    "transform.pad": 0,
    "transform.random_erasing": None,
    "transform.random_resized_crop": None,
    "transform.resize": None,
}


@dataclass(frozen=True, slots=True)
class Identity:
    """What a state belongs to.

    Attributes:
        dataset: Fingerprint of the records.
        options: Every option that decides about the samples, by dotted name.
        world_size: Ranks; matters under ``rng: caffe`` only.
        functions: Names of people's own functions, by option; noted, and not compared.
    """

    dataset: Mapping[str, Any]
    options: Mapping[str, Any]
    world_size: int
    functions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, config: FeedConfig, source: RecordSource, transform: Transform, *, world_size: int
    ) -> Identity:
        """Return the identity of a feed; reads its first record."""
        from prefetch._config.option_types import to_plain  # noqa: PLC0415 - pydantic is slow to import

        # Not by model_dump(): pydantic turns Ctrl-C in one of its serializers into an error of its
        # own, or into the next alternative of a union.
        options = dict(_flatten(to_plain(config)))
        for name in _FREE:
            options.pop(name, None)
        # But for the size of its images a cache is nobody's concern, whether there is one or not.
        shorter = options.get("cache.decoded.shorter")
        options = {name: value for name, value in options.items() if not name.startswith("cache.")}
        options["cache.decoded.shorter"] = shorter
        mean = transform.mean_image
        options["transform.mean_file"] = None if mean is None else _digest(mean)
        return cls(_fingerprint(source), options, world_size, names_of_functions(config))

    def state(self, position: Position) -> dict[str, Any]:
        """Return the state that JSON can hold."""
        return {
            "format": FORMAT,
            "dataset": dict(self.dataset),
            "config": {**self.options, **self.functions},
            "world_size": self.world_size,
            "epoch": position.epoch,
            "served": position.served,
            "seed": position.seed,
            "rng": None if position.rng is None else dict(position.rng),
        }

    def position(self, state: Mapping[str, Any]) -> Position:
        """Return the position that a state was saved at.

        Warns with a `PrefetchWarning` where people's own functions are others than they were.

        Raises:
            StateError: It is no state, or belongs to other records or another configuration; names
                every difference.
        """
        differences = list(self._find_differences(state))
        if differences:
            raise StateError(tuple(differences))
        for change in changes(state["config"], self.functions):
            warnings.warn(change, PrefetchWarning, stacklevel=2)
        return Position(state["epoch"], state["served"], state["seed"], state["rng"])

    def _find_differences(self, state: object) -> Iterator[str]:
        if not isinstance(state, dict) or not is_whole(state.get("format"), most=MOST):
            found = state.get("format") if isinstance(state, dict) else state
            yield f"expected a state of format {FORMAT}, found {printable_value(found)}"
            return
        if state["format"] != FORMAT:
            yield f"expected a state of format {FORMAT}, found {state['format']}"
            return
        if set(state) != _ENTRIES:
            lacking = sorted(_ENTRIES - set(state))
            more = sorted(printable_value(name) for name in set(state) - _ENTRIES)
            rest = f" and {len(more) - _MOST_NAMED} more" if len(more) > _MOST_NAMED else ""
            yield (
                f"it was cut, or something was added: it lacks {lacking}, and has besides "
                f"{more[:_MOST_NAMED]}{rest}"
            )
            return
        bad = list(self._find_damage(state))
        if bad:
            yield f"it is damaged: {', '.join(bad)}"
            return
        yield from _compare("dataset", state["dataset"], self.dataset)
        # An option that came later had its default where a state does not name it.
        later = {name: _LATER_OPTIONS[name] for name in _LATER_OPTIONS if name in self.options}
        yield from _compare("config", later | without_names(state["config"]), self.options)
        named = state["config"].get("seed")
        if named is not None and is_same(named, self.options["seed"]) and state["seed"] != named:
            yield f"seed is {state['seed']}, and config seed is {named}"
        if state["served"] >= self.dataset["records"]:
            yield f"served is {state['served']}, of {self.dataset['records']} records"
        if self.options["rng"] == "caffe" and state["world_size"] != self.world_size:
            yield (
                f"world_size was {state['world_size']}, is {self.world_size}; under rng: caffe "
                f"each rank has a stream of its own, and their number cannot change"
            )

    def _find_damage(self, state: Mapping[str, Any]) -> Iterator[str]:
        """Yield the entries that no feed of this configuration can have saved."""
        caffe = self.options["rng"] == "caffe"
        most_seed = MAX_MERSENNE_SEED if caffe else MAX_SEED
        epochs = self.options["epochs"]
        for name, least, most in (
            ("epoch", 0, MOST if epochs is None else epochs),
            ("served", 0, MOST),
            ("seed", 0, most_seed),
            ("world_size", 1, MOST),
        ):
            if not is_whole(state[name], least=least, most=most):
                yield f"{name} is {printable_value(state[name])}, no integer from {least} to {most}"
        for name in ("dataset", "config"):
            if not isinstance(state[name], dict):
                yield f"{name} is {printable_value(state[name])}"
        if not isinstance(state["rng"], dict if caffe else type(None)):
            yield f"rng is {printable_value(state['rng'])}"


def _compare(what: str, saved: Mapping[Any, Any], present: Mapping[str, Any]) -> Iterator[str]:
    for name, now in present.items():
        if name not in saved:
            yield f"{what} {name}: was not there, is {printable_value(now)}"
        elif not is_same(saved[name], now):
            yield f"{what} {name}: was {printable_value(saved[name])}, is {printable_value(now)}"
    for name, was in saved.items():
        if name not in present:
            yield f"{what} {printable_value(name)}: was {printable_value(was)}, is unknown here"


def _flatten(options: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, Any]]:
    """Yield options by dotted name, with values that JSON gives back as they are."""
    for name, value in options.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{group}{name}.")
        else:
            yield f"{group}{name}", list(value) if isinstance(value, tuple) else value


def _digest(array: np.ndarray[Any, np.dtype[np.float32]]) -> str:
    shape = " x ".join(map(str, array.shape))
    return f"{shape}, sha256 {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"


def _fingerprint(source: RecordSource) -> dict[str, Any]:
    """Return what tells databases apart without reading them: their size and first record."""
    records = source.walker().take(0, 1)
    try:
        key, value = bytes(records.keys[0]), bytes(records.values[0])
    finally:
        records.release()
    return {
        "records": source.num_records,
        "first_key": key.decode("utf-8", "backslashreplace"),
        "first_sha256": hashlib.sha256(value).hexdigest()[:16],
    }
