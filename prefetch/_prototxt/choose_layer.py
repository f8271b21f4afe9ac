"""Which layer of a network file is meant, and why the others are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prefetch._errors.classes import ConfigError, ConfigFault, UnsupportedSourceError
from prefetch._prototxt.field_names import COMPUTING_TYPES, correct_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from prefetch._prototxt.layers import NetworkLayer

KEYWORDS: Final[Mapping[str, str]] = {name: f"{name}=..." for name in ("layer", "phase", "stages")}
"""What a Python program calls the arguments that choose a layer."""

_TAKE_LMDB = "store its records as Datums in an LMDB and use a layer of type Data"
_INSTEAD = {
    "DummyData": "it makes up its values, and there is nothing to read",
    "HDF5Data": f"read its files with h5py, or {_TAKE_LMDB}",
    "ImageData": "convert its list with ringfeed convert and use a layer of type Data",
    "Input": "the program itself fills it, and there is nothing to read",
    "MemoryData": "the program itself fills it, and there is nothing to read",
    "WindowData": f"cut its windows out, {_TAKE_LMDB}",
}


def choose_layer(
    file: Path,
    layers: Sequence[NetworkLayer],
    phase: str,
    name: str | None,
    arguments: Mapping[str, str],
) -> NetworkLayer:
    """Return the layer meant: the named one, or the only Data layer that the network has."""
    sources = [
        layer
        for layer in layers
        if layer.included
        and not layer.parameter.bottom
        and layer.parameter.type not in COMPUTING_TYPES
    ]
    if name is not None:
        sources = [layer for layer in sources if layer.parameter.name == name] or [
            layer for layer in sources if name in layer.parameter.top
        ]
    found = [layer for layer in sources if layer.parameter.type == "Data"]
    if len(found) == 1:
        return found[0]
    if found:
        message = (
            f"expected one Data layer in phase {phase}, found {len(found)}: {_join_layers(found)}; "
            "choose by the layer's name or by a top that only one has "
            f"({arguments['layer']}), or by the network's stages ({arguments['stages']})"
        )
    elif sources:
        raise UnsupportedSourceError(str(file.absolute()), _kind_refusal(sources, phase))
    else:
        everywhere = [layer for layer in layers if layer.parameter.type == "Data"]
        wanted = "" if name is None else f" of the name or with the top {name!r}"
        message = f"found no Data layer{wanted} in phase {phase}; "
        if everywhere:
            message += (
                f"the file has {_join_layers(everywhere)}: "
                "ask for one by its phase, stages and name "
                f"({arguments['phase']}, {arguments['stages']}, {arguments['layer']})"
            )
        else:
            message += "the file has none in any phase; one that trains a network has"
    raise ConfigError(str(file), (ConfigFault("layer", message),))


def _join_layers(layers: Iterable[NetworkLayer]) -> str:
    return ", ".join(str(layer) for layer in layers)


def _kind_refusal(layers: Sequence[NetworkLayer], phase: str) -> str:
    refusals = [_refusal(layer) for layer in layers]
    return f"found no Data layer in phase {phase}; {'; '.join(refusals)}"


def _refusal(layer: NetworkLayer) -> str:
    kind = layer.parameter.type
    if not kind:
        return f'layer {layer} has no type; write type: "Data" for one that reads a database'
    guess = None if kind in _INSTEAD else correct_name(kind, ("Data", *_INSTEAD))
    if guess is not None:
        return f"layer {layer} is of type {kind}, which Caffe does not have; did you mean {guess}?"
    return (
        f"layer {layer} is of type {kind}, which is not read here: {_INSTEAD.get(kind, _TAKE_LMDB)}"
    )


def explain_backend(layer: NetworkLayer, source: Path) -> str:
    """Return why a layer whose backend is not LMDB is refused, and what to do about it."""
    if layer.parameter.data_param.HasField("backend"):
        named = "names backend LEVELDB"
    else:
        named = "names no backend, which is LEVELDB to Caffe"
    if (source / "data.mdb").exists():
        cure = f"{source} is an LMDB, so write backend: LMDB"
    else:
        cure = "copy the records into an LMDB, and write backend: LMDB"
    return f"layer {layer} {named}, and only LMDB is read here; {cure}"
