"""The layers of a network file, whichever of Caffe's formats it is written in.

Old ``layers`` are read as Caffe's upgrade would rewrite them. Which layers a network has depends
on the state that it is built for (phase, level, stages); Caffe's rules for that are here as well.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf import text_format

from prefetch._config.faults import file_context, sort_by_line
from prefetch._errors.classes import ConfigError, ConfigFault, UnsupportedSourceError
from prefetch._files.input import read_text
from prefetch._prototxt.draws import num_draws
from prefetch._prototxt.field_names import find_misspelt_fields
from prefetch._prototxt.text_errors import explain
from prefetch._prototxt.text_format import TextField, join_signs, scan_fields
from prefetch.caffe import (
    LayerParameter,
    NetParameter,
    NetState,
    NetStateRule,
    Phase,
    SolverParameter,
    V1LayerParameter,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from google.protobuf.message import Message

# What the old layers that make data are called now; the rest matter by not being these.
_NEW_TYPES = {
    V1LayerParameter.DATA: "Data",
    V1LayerParameter.DUMMY_DATA: "DummyData",
    V1LayerParameter.HDF5_DATA: "HDF5Data",
    V1LayerParameter.IMAGE_DATA: "ImageData",
    V1LayerParameter.MEMORY_DATA: "MemoryData",
    V1LayerParameter.WINDOW_DATA: "WindowData",
}
_MOVED_BY_UPGRADE = ("scale", "mean_file", "crop_size", "mirror")


@dataclass(frozen=True, slots=True)
class NetworkLayer:
    """One layer, in Caffe's present format.

    Attributes:
        parameter: Its parameters.
        position: Where it stands in the file; None where that is not known.
        included: Whether the network has it in the state asked for.
        draws_before: How many numbers are known to be drawn from Caffe's generator before it is
            set up.
        uncounted: What draws besides, and how many numbers is not known.
    """

    parameter: LayerParameter
    position: TextField | None
    included: bool
    draws_before: int
    uncounted: tuple[str, ...]

    def line(self, *names: str) -> int | None:
        """Return the line of the field at a path inside the layer, or else of what is around it."""
        field = self.position
        for name in names:
            field = (field and field.find(name)) or field
        return None if field is None else field.line

    def __str__(self) -> str:
        parameter, line = self.parameter, self.line()
        rules = [f"include {_describe_rule(rule)}" for rule in parameter.include]
        rules += [f"exclude {_describe_rule(rule)}" for rule in parameter.exclude]
        where = [] if line is None else [f"line {line}"]
        details = "; ".join([*where, *rules])
        return f"{parameter.name!r} ({details})" if details else repr(parameter.name)


def read_layers(path: Path, phase: Phase, stages: Sequence[str] = ()) -> list[NetworkLayer]:
    """Read the layers of a network file, or of the networks inside a solver's file.

    Args:
        path: File in protobuf's text format. Fields that Caffe does not know are passed over,
            since its forks have fields of their own, but not those that are misspelt.
        phase: The phase that the network is built for.
        stages: Stages of the network's state. Without any, a solver's file is taken for what its
            own states say, all of them for the test networks.

    Raises:
        ConfigError: The file is no such text (it names line and column), a field is misspelt, or
            a layer has rules that Caffe refuses.
        UnsupportedSourceError: The network is in Caffe's first format, or in another file.
        ConfigNotFoundError: The file is not there.
        OSError: The file cannot be read.
    """
    # Old files have comments in other encodings than UTF-8, which do no harm.
    with file_context(path, "give the prototxt of a network with a Data layer"):
        text = join_signs(read_text(path, encoding="utf-8-sig", errors="backslashreplace"))
    network, solver = NetParameter(), SolverParameter()
    _parse(path, text, network)
    fields = scan_fields(text)
    if faults := tuple(find_misspelt_fields(fields)):
        raise ConfigError(str(path), sort_by_line(faults))
    if network.layer or network.layers:
        return list(_read_network(path, network, fields, [_state(phase, stages, network.state)]))
    _parse(path, text, solver)
    if phase == Phase.TRAIN:
        states = [solver.train_state]
        networks = {"train_net_param": [solver.train_net_param], "net_param": [solver.net_param]}
        files = [solver.train_net, solver.net]
    else:
        states = list(solver.test_state) or [NetState()]
        networks = {"test_net_param": [*solver.test_net_param], "net_param": [solver.net_param]}
        files = [*solver.test_net, solver.net]
    if stages:
        states = [NetState()]
    layers: list[NetworkLayer] = []
    for name, inner_networks in networks.items():
        positions = _find_positions(fields, name, len(inner_networks))
        for inner, position in zip(inner_networks, positions, strict=True):
            merged = [_state(phase, stages, inner.state, state) for state in states]
            # Caffe's solver has set up its training network when it comes to those for tests.
            earlier = () if phase == Phase.TRAIN else ("the solver's training network",)
            found = _read_network(path, inner, position.fields if position else [], merged, earlier)
            layers.extend(found)
    if not layers and any(files):
        raise UnsupportedSourceError(
            str(path.absolute()),
            "this is a solver's file, and its network is in another; open "
            + ", ".join(repr(name) for name in files if name),
        )
    return layers


def _parse(path: Path, text: str, message: Message) -> None:
    try:
        text_format.Parse(text, message, allow_unknown_field=True)
    except text_format.ParseError as error:
        line, column = error.GetLine(), error.GetColumn()
        if line is None or column is None:
            line, column = _place_of(error, text, type(message))
        fault = ConfigFault("", f"column {column}: {explain(str(error), text)}", line)
    except RecursionError:
        fault = ConfigFault("", "its messages are nested too deeply to be a network")
    else:
        return
    raise ConfigError(str(path), (fault,))


def _place_of(error: Exception, text: str, kind: type[Message]) -> tuple[int, int]:
    """Return line and column of an error that protobuf raises without them.

    It does so for a bad value of a field that the schema does not know. The place is where the
    shortest beginning of the text ends that is wrong in the same way.
    """

    def goes_wrong(length: int) -> bool:
        try:
            text_format.Parse(text[:length], kind(), allow_unknown_field=True)
        except text_format.ParseError as found:
            return str(found) == str(error)
        return False

    end = bisect.bisect_left(range(len(text)), True, key=goes_wrong)
    before = text[: end - 1]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def _read_network(
    path: Path,
    network: NetParameter,
    fields: Sequence[TextField],
    states: Sequence[NetState],
    uncounted: tuple[str, ...] = (),
) -> Iterator[NetworkLayer]:
    """Yield a network's layers, whichever of the two formats they are in."""
    parameters: list[LayerParameter]
    if network.layers and network.layer:
        present = _find_positions(fields, "layer", len(network.layer))[0]
        message = (
            "the network has old layers (layers) and layers of the present format (layer), which "
            "Caffe refuses to read together; write all of them as layer"
        )
        raise ConfigError(
            str(path), (ConfigFault("layer", message, None if present is None else present.line),)
        )
    if network.layers:
        if any(old.HasField("layer") for old in network.layers):
            raise UnsupportedSourceError(
                str(path.absolute()),
                "this network is in Caffe's first format (layers { layer { ... } }), whose data "
                "layers read LevelDB; rewrite it with Caffe's upgrade_net_proto_text",
            )
        parameters = [_upgrade(old) for old in network.layers]
        positions = _find_positions(fields, "layers", len(parameters))
    else:
        parameters = list(network.layer)
        positions = _find_positions(fields, "layer", len(parameters))
    num_drawn = 0
    for parameter, position in zip(parameters, positions, strict=True):
        is_there = any(is_included(parameter, state) for state in states)
        layer = NetworkLayer(parameter, position, is_there, num_drawn, uncounted)
        if is_there:
            draws = num_draws(parameter, position, states[0].phase)
            if draws is None:
                uncounted = (*uncounted, f"layer {layer}")
            else:
                num_drawn += draws
        if parameter.include and parameter.exclude:
            message = f"layer {layer} has include and exclude rules, and Caffe takes one kind"
            raise ConfigError(str(path), (ConfigFault("exclude", message, layer.line("exclude")),))
        yield layer


def _find_positions(
    fields: Iterable[TextField], name: str, count: int
) -> Sequence[TextField | None]:
    found = [field for field in fields if field.name == name]
    return found if len(found) == count else [None] * count


def _upgrade(old: V1LayerParameter) -> LayerParameter:
    """Return an old layer as Caffe's upgrade writes it: its pixels' options in transform_param."""
    new = LayerParameter(
        name=old.name,
        type=_NEW_TYPES.get(old.type, V1LayerParameter.LayerType.Name(old.type)),
        bottom=old.bottom,
        top=old.top,
        include=old.include,
        exclude=old.exclude,
    )
    for name in ("transform_param", "data_param", "image_data_param"):
        if old.HasField(name):
            getattr(new, name).CopyFrom(getattr(old, name))
    if new.type in {"Data", "ImageData"}:
        options = new.data_param if new.type == "Data" else new.image_data_param
        for name in _MOVED_BY_UPGRADE:
            if options.HasField(name):
                setattr(new.transform_param, name, getattr(options, name))
                options.ClearField(name)
    return new


def _state(phase: Phase, stages: Iterable[str], *parts: NetState) -> NetState:
    """Return the state that a network is built for; parts of it stand in the file."""
    state = NetState()
    for part in parts:
        state.MergeFrom(part)
    state.stage.extend(stages)
    state.phase = phase
    return state


def is_included(layer: LayerParameter, state: NetState) -> bool:
    """Say whether a network in this state has the layer (Caffe's Net::FilterNet)."""
    if layer.include:
        return any(meets_rule(state, rule) for rule in layer.include)
    return not any(meets_rule(state, rule) for rule in layer.exclude)


def meets_rule(state: NetState, rule: NetStateRule) -> bool:
    """Say whether a state has all that a rule asks for (Caffe's Net::StateMeetsRule)."""
    return (
        (not rule.HasField("phase") or rule.phase == state.phase)
        and (not rule.HasField("min_level") or state.level >= rule.min_level)
        and (not rule.HasField("max_level") or state.level <= rule.max_level)
        and set(rule.stage) <= set(state.stage)
        and not set(rule.not_stage) & set(state.stage)
    )


def _describe_rule(rule: NetStateRule) -> str:
    parts = [Phase.Name(rule.phase)] if rule.HasField("phase") else []
    parts += [f"stage {stage}" for stage in rule.stage]
    parts += [f"not stage {stage}" for stage in rule.not_stage]
    if rule.HasField("min_level"):
        parts.append(f"level {rule.min_level} or more")
    if rule.HasField("max_level"):
        parts.append(f"level {rule.max_level} or less")
    return ", ".join(parts) or "always"
