"""A Caffe network's Data layer as the configuration of a feed.

Caffe's whole behaviour: an endless stream that wraps around, Caffe's own random numbers and
stride over the ranks, float32 labels, labels only for a second top. What Caffe passes over in
silence is named in a warning; what is not read here is refused with what to do instead.

``data_param.prefetch`` is taken as it stands. Caffe counts the batch that the consumer holds as
one of them, so the same number reads one batch further ahead here; the bytes are the same.
"""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prefetch._config.fault_places import ConfigPlace, put_place
from prefetch._config.faults import closest_key, expected_one_of, sort_by_line
from prefetch._config.feed_config import FeedConfig
from prefetch._config.load import drop_overridden, merge_options, option_leaves
from prefetch._config.option_types import to_plain
from prefetch._config.paths import make_absolute, make_encodable
from prefetch._errors.classes import (
    ConfigError,
    ConfigFault,
    PrefetchWarning,
    UnsupportedSourceError,
)
from prefetch._prototxt.choose_layer import KEYWORDS, choose_layer, explain_backend
from prefetch._prototxt.draws import is_random
from prefetch._prototxt.field_names import LAYERS
from prefetch._prototxt.layers import NetworkLayer, read_layers
from prefetch.caffe import DataParameter, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from google.protobuf.message import Message

_PHASES = {"TRAIN": Phase.TRAIN, "TEST": Phase.TEST}

# The options that a layer's fields give, by name.
_FIELDS = {
    "source": "data_param.source",
    "batch_size": "data_param.batch_size",
    "prefetch": "data_param.prefetch",
    "transform": "transform_param",
    "transform.crop_size": "transform_param.crop_size",
    "transform.force_color": "transform_param.force_color",
    "transform.force_gray": "transform_param.force_gray",
    "transform.mean_file": "transform_param.mean_file",
    "transform.mean_value": "transform_param.mean_value",
    "transform.mirror": "transform_param.mirror",
    "transform.scale": "transform_param.scale",
}
_NEEDED = {
    "source": "write the folder of the LMDB that the layer reads",
    "batch_size": "write how many records a batch has, as in batch_size: 64",
}
_MOST_UNCOUNTED: Final = 3  # named of what draws before a layer
_ARGUMENTS = {"shard.rank": "rank", "shard.world_size": "world_size"}


@dataclass(frozen=True, slots=True)
class DataLayer:
    """A network's Data layer, as a feed's configuration.

    Attributes:
        name: The layer's name.
        tops: Names of its blobs: the data, and the labels where there is a second.
        config: What it asks for.
        ignored: What its fields say without effect, one sentence each.
        unlike: Why its crops and mirrors are not Caffe's for a seed; None where they are.
    """

    name: str
    tops: tuple[str, ...]
    config: FeedConfig
    ignored: tuple[str, ...]
    unlike: str | None


def read_data_layer(
    path: str | os.PathLike[str],
    *,
    phase: str = "TRAIN",
    layer: str | None = None,
    stages: str | Sequence[str] = (),
    root: str | os.PathLike[str] = ".",
    seed: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    argument_names: Mapping[str, str] = KEYWORDS,
    **overrides: Any,
) -> DataLayer:
    """Read one Data layer of a network file as the configuration of a feed.

    Warns with a `PrefetchWarning` for each field that has no effect, and where a seed is given and
    cannot give Caffe's crops and mirrors, on behalf of the caller's caller:
    `prefetch.open_prototxt` is between.

    Args:
        path: The network's file, or a solver's file with the network in it.
        phase: ``TRAIN`` or ``TEST``.
        layer: Name of the layer, or of one of its tops; None: the only Data layer of the phase.
        stages: Stage or stages of the network's state, for layers that are there in some only.
        root: Folder that the file's relative paths start from, as Caffe's do from where it runs.
        seed: What Caffe's generator is seeded with before the network is set up, of 32 bits.
        rank: This process among the ranks.
        world_size: How many ranks share the database.
        argument_names: What the user calls ``layer``, ``phase`` and ``stages``.
        **overrides: Options of a feed, in place of what the layer says or has by nature.

    Raises:
        ConfigError: The file cannot be parsed, no layer or several could be meant, or the layer
            has faults.
        UnsupportedSourceError: The layer is of another type, or its database no LMDB.
        OSError: The file cannot be read.
    """
    try:
        file = Path(make_encodable(os.fspath(path)))
    except ValueError as error:
        raise ConfigError("network", (ConfigFault("", str(error)),)) from None
    of_network = _PHASES.get(str(phase).upper())
    if of_network is None:
        message = expected_one_of(phase, list(_PHASES))
        raise ConfigError(str(file), (ConfigFault("phase", message),))
    layers = read_layers(file, of_network, [stages] if isinstance(stages, str) else stages)
    chosen = choose_layer(file, layers, phase.upper(), layer, argument_names)
    parameter, data = chosen.parameter, chosen.parameter.data_param
    folder = Path(root)
    given = to_plain(overrides)
    if data.backend != DataParameter.LMDB and "source" not in given:
        raise UnsupportedSourceError(
            str(file.absolute()), explain_backend(chosen, make_absolute(data.source, folder))
        )
    of_layer = parameter.phase if parameter.HasField("phase") else of_network
    config = _check(
        file,
        chosen,
        {
            "source": make_absolute(data.source, folder) if data.source else "",
            "batch_size": data.batch_size,
            "prefetch": data.prefetch,
            "phase": Phase.Name(of_layer).lower(),
            "seed": seed,
            "rng": "caffe",
            "draws_before": (
                chosen.draws_before
                if is_random(parameter, of_network) and given.get("rng", "caffe") == "caffe"
                else 0
            ),
            "last_batch": "wrap",
            "shard": {"rank": rank, "world_size": world_size, "policy": _policy(given)},
            "transform": _translate_transform(chosen, folder),
            "label_dtype": "float32",
            "labels": len(parameter.top) > 1,
        },
        _spell_out_shard(given),
    )
    ignored = tuple(_find_ignored(chosen))
    unlike = _explain_difference(chosen) if is_random(parameter, of_network) else None
    for message in ignored if seed is None or unlike is None else (*ignored, unlike):
        warnings.warn(message, PrefetchWarning, stacklevel=3)
    return DataLayer(parameter.name, tuple(parameter.top), config, ignored, unlike)


def _policy(given: Mapping[str, Any]) -> str:
    """Return Caffe's way of sharding, or the one that goes with what is given in place of it."""
    is_caffes = given.get("last_batch", "wrap") == "wrap" and not given.get("shuffle", False)
    return "caffe" if is_caffes else "pad"


def _spell_out_shard(given: dict[str, Any]) -> dict[str, Any]:
    """Return options with ``shard: auto`` as a mapping, so that the policy stays."""
    is_auto = given.get("shard") == "auto"
    return {**given, "shard": {"rank": "auto", "world_size": "auto"}} if is_auto else given


def _translate_transform(layer: NetworkLayer, folder: Path) -> dict[str, Any]:
    param = layer.parameter.transform_param
    (scale,) = _as_written(layer, "scale", [param.scale])
    mean_file = param.mean_file if param.HasField("mean_file") else None
    return {
        "crop_size": param.crop_size,
        "force_color": param.force_color,
        "force_gray": param.force_gray,
        "mean_file": make_absolute(mean_file, folder) if mean_file else mean_file,
        "mean_value": _as_written(layer, "mean_value", param.mean_value),
        "mirror": param.mirror,
        "scale": scale,
    }


def _as_written(layer: NetworkLayer, name: str, values: Iterable[float]) -> list[float]:
    """Return a field's numbers; as they are written where a float32 cannot hold them."""
    numbers = list(values)
    block = layer.position and layer.position.find("transform_param")
    texts = [field.text for field in block.fields if field.name == name] if block else []
    if len(texts) != len(numbers) or all(map(math.isfinite, numbers)):
        return numbers
    with contextlib.suppress(ValueError):  # such as 3.5e38f
        return [float(text) for text in texts]
    return numbers


def _check(
    file: Path, layer: NetworkLayer, options: dict[str, Any], overrides: dict[str, Any]
) -> FeedConfig:
    """Return the configuration; its faults are named by the layer's fields, with their lines.

    Args:
        file: The network's file.
        layer: The layer.
        options: Options of the configuration.
        overrides: Options that the caller gave in place of the layer.
    """
    faults: list[ConfigFault] = []
    if len(layer.parameter.top) not in {1, 2}:
        found = ", ".join(layer.parameter.top) or "none"
        message = f"expected one top, or a second for the labels; found {found}"
        faults.append(ConfigFault("top", message, layer.line("top")))
    missing = [
        name
        for name in _NEEDED
        if name not in overrides and not layer.parameter.data_param.HasField(name)
    ]
    for needed in missing:
        message = f"is missing; {_NEEDED[needed]}"
        faults.append(ConfigFault(_FIELDS[needed], message, layer.line("data_param")))
    overridden = list(option_leaves(overrides))
    try:
        config = FeedConfig(**merge_options(options, overrides))
    except ConfigError as error:
        for fault in error.faults:
            if fault.key in missing:
                continue
            is_given = closest_key(fault.key, overridden) is not None
            option = None if is_given else closest_key(fault.key, _FIELDS)
            if option is None:
                key = fault.key if is_given else _ARGUMENTS.get(fault.key, fault.key)
                faults.append(replace(fault, key=key))
            else:
                name = _FIELDS[option]
                faults.append(replace(fault, key=name, line=layer.line(*name.split("."))))
    else:
        if not faults:
            place = {
                option: (name, layer.line(*name.split("."))) for option, name in _FIELDS.items()
            }
            return put_place(config, drop_overridden(ConfigPlace(str(file), place), overridden))
    raise ConfigError(str(file), sort_by_line(faults))


def _explain_difference(layer: NetworkLayer) -> str | None:
    """Return why a seed does not give the layer's crops and mirrors in Caffe, if so."""
    if not layer.uncounted:
        return None
    more = len(layer.uncounted) - _MOST_UNCOUNTED
    named = [*layer.uncounted[:_MOST_UNCOUNTED], *([f"{more} more"] if more > 0 else [])]
    return (
        f"layer {layer}: its crops and mirrors are others than Caffe's for the same seed; Caffe "
        f"sets up {', '.join(named)} first, and how many random numbers that takes is not known "
        "here"
    )


def _find_ignored(layer: NetworkLayer) -> Iterator[str]:
    """Yield a sentence for each field of the layer that is set and has no effect."""
    parameter = layer.parameter
    for name in ("scale", "mean_file", "crop_size", "mirror"):
        if _is_changed(parameter.data_param, name):
            yield (
                f"layer {layer}: data_param.{name} has no effect, in Caffe neither; "
                f"write it as transform_param.{name}"
            )
    if _is_changed(parameter.data_param, "rand_skip"):
        yield f"layer {layer}: data_param.rand_skip has no effect; Caffe's Data layer never skips"
    if _is_changed(parameter.data_param, "force_encoded_color"):
        yield (
            f"layer {layer}: data_param.force_encoded_color has no effect, in Caffe neither; "
            "write transform_param.force_color"
        )
    known_fields = LAYERS[layer.position.name] if layer.position else frozenset()
    for field in layer.position.fields if layer.position else ():
        if field.name not in known_fields:
            yield _no_such_field(layer, field.name, field.line)
    for message, group in (
        (parameter.data_param, "data_param"),
        (parameter.transform_param, "transform_param"),
    ):
        position = layer.position and layer.position.find(group)
        known = message.DESCRIPTOR.fields_by_name
        for unknown in position.fields if position else ():
            if unknown.name not in known:
                yield _no_such_field(layer, f"{group}.{unknown.name}", unknown.line)


def _no_such_field(layer: NetworkLayer, name: str, line: int) -> str:
    return f"layer {layer}: {name} on line {line} has no effect; Caffe has no such field"


def _is_changed(message: Message, name: str) -> bool:
    default = message.DESCRIPTOR.fields_by_name[name].default_value
    return message.HasField(name) and getattr(message, name) != default
