"""The names of fields and layers in network files, and which unknown ones must be misspelt.

Caffe refuses a file with a field that it does not know. Its forks have fields of their own, whose
files are read here as well: a field is refused where its name is a slip away from one that Caffe
knows, and anywhere inside of a rule, which decides what a network has. The others are no fault;
of the layer that is served they are warned about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from memory.wording import nearest
from prefetch._errors.classes import ConfigFault
from prefetch.caffe import (
    DataParameter,
    NetState,
    NetStateRule,
    TransformationParameter,
    V1LayerParameter,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from google.protobuf.message import Message

    from prefetch._prototxt.text_format import TextField


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _parameters(stems: Iterable[str]) -> frozenset[str]:
    return frozenset(f"{stem}_param" for stem in stems)


NETWORK_FIELDS: Final = _words(
    "debug_info force_backward input input_dim input_shape layer layers name state"
)
SOLVER_FIELDS: Final = _words(
    """
    average_loss base_lr clip_gradients debug_info delta device_id display gamma iter_size
    layer_wise_reduce lr_policy max_iter momentum momentum2 net net_param power random_seed
    regularization_type rms_decay snapshot snapshot_after_train snapshot_diff snapshot_format
    snapshot_prefix solver_mode solver_type stepsize stepvalue test_compute_loss
    test_initialization test_interval test_iter test_net test_net_param test_state train_net
    train_net_param train_state type weight_decay weights
    """
)
_PARAMETERS_OF_BOTH: Final = _words(
    """
    accuracy argmax concat contrastive_loss convolution data dropout dummy_data eltwise exp
    hdf5_data hdf5_output hinge_loss image_data infogain_loss inner_product loss lrn memory_data
    mvn pooling power relu sigmoid slice softmax tanh threshold transform window_data
    """
)
_PARAMETERS_OF_LAYER: Final = _words(
    """
    batch_norm bias clip crop elu embed flatten input log parameter prelu python recurrent
    reduction reshape scale spp swish tile
    """
)
LAYER_FIELDS: Final = _parameters(_PARAMETERS_OF_BOTH | _PARAMETERS_OF_LAYER) | _words(
    "blobs bottom exclude include loss_weight name param phase propagate_down top type"
)
OLD_LAYER_FIELDS: Final = _parameters(_PARAMETERS_OF_BOTH) | _words(
    """
    blob_share_mode blobs blobs_lr bottom exclude include layer loss_weight name param top type
    weight_decay
    """
)
COMPUTING_TYPES: Final = _words(
    """
    AbsVal Accuracy ArgMax BNLL BatchNorm BatchReindex Bias Clip Concat ContrastiveLoss Convolution
    Crop Deconvolution Dropout ELU Eltwise Embed EuclideanLoss Exp Filter Flatten HDF5Output
    HingeLoss Im2col InfogainLoss InnerProduct LRN LSTM LSTMUnit Log MVN MultinomialLogisticLoss
    PReLU Parameter Pooling Power RNN ReLU Reduction Reshape SPP Scale Sigmoid
    SigmoidCrossEntropyLoss Silence Slice Softmax SoftmaxWithLoss Split Swish TanH Threshold Tile
    """
) | frozenset(name for name, _ in V1LayerParameter.LayerType.items() if not name.endswith("DATA"))
"""Types of Caffe's layers that make no data, in the present and the old format."""

# What decides whether a layer is there, and whether it is one that serves data.
_SHAPING: Final = _words("bottom data_param exclude include name phase top transform_param type")


def _names(message: type[Message]) -> frozenset[str]:
    return frozenset(message.DESCRIPTOR.fields_by_name)


_RULES: Final = {
    "exclude": _names(NetStateRule),
    "include": _names(NetStateRule),
    "state": _names(NetState),
    "test_state": _names(NetState),
    "train_state": _names(NetState),
}
_BLOCKS: Final = {
    "data_param": _names(DataParameter),
    "transform_param": _names(TransformationParameter),
}
LAYERS: Final = {"layer": LAYER_FIELDS, "layers": OLD_LAYER_FIELDS}
"""The fields of a layer, by what the field that holds it is called."""

_MOST_SLIPS: Final = 2
_NETWORKS: Final = frozenset({"net_param", "test_net_param", "train_net_param"})
_KINDS: Final = {
    **dict.fromkeys(_RULES, "a rule"),
    **{block: block for block in _BLOCKS},
    **dict.fromkeys(LAYERS, "a layer"),
    **dict.fromkeys(_NETWORKS, "a network"),
}


def find_misspelt_fields(fields: Iterable[TextField]) -> Iterator[ConfigFault]:
    """Yield a fault for each field of a network's or a solver's file that must be a slip."""
    for field in fields:
        if field.name not in NETWORK_FIELDS | SOLVER_FIELDS:
            guess = correct_name(field.name, NETWORK_FIELDS | SOLVER_FIELDS)
            if guess is not None:
                yield _fault(field, "", "a network", guess)
        yield from _check_inside(field)


def _check_inside(field: TextField) -> Iterator[ConfigFault]:
    """Yield the faults inside of a field of a network or a solver."""
    if field.name in _NETWORKS:
        yield from _find_slips(field, NETWORK_FIELDS)
        for inner in field.fields:
            yield from _check_inside(inner)
    elif field.name in _RULES:
        yield from _find_unknown(field)
    elif field.name in LAYERS:
        # A layer that computes has nothing to do with the data, and its names are left to forks.
        computes = any(inner.name == "bottom" for inner in field.fields)
        known = LAYERS[field.name]
        yield from _find_slips(field, known, _SHAPING & known if computes else known)
        for inner in field.fields:
            if inner.name == "phase" and "phase" not in known:
                message = (
                    "is no field of an old layer (layers) in Caffe, which refuses the file; write "
                    "include { phase: ... }, or the layer in the present format"
                )
                yield ConfigFault("phase", message, inner.line)
            if inner.name in _RULES:
                yield from _find_unknown(inner)
            elif inner.name in _BLOCKS:
                yield from _find_slips(inner, _BLOCKS[inner.name])


def _find_slips(
    field: TextField, known: frozenset[str], choices: frozenset[str] | None = None
) -> Iterator[ConfigFault]:
    for inner in field.fields:
        if inner.name not in known:
            guess = correct_name(inner.name, known if choices is None else choices)
            if guess is not None:
                yield _fault(inner, field.name, _KINDS[field.name], guess)


def _find_unknown(field: TextField) -> Iterator[ConfigFault]:
    known = _RULES[field.name]
    for inner in field.fields:
        if inner.name not in known:
            guess = correct_name(inner.name, known) or nearest(inner.name, known)
            yield _fault(inner, field.name, _KINDS[field.name], guess, sorted(known))


def _fault(
    field: TextField, outer: str, kind: str, guess: str | None, known: Sequence[str] = ()
) -> ConfigFault:
    cure = f"did you mean {guess}?" if guess else f"Caffe knows {', '.join(known)}"
    key = field.name if outer in {"", *LAYERS, *_NETWORKS} else f"{outer}.{field.name}"
    return ConfigFault(key, f"is no field of {kind} in Caffe; {cure}", field.line)


def correct_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a name is a slip or an abbreviation of, or None.

    Stricter than `nearest`: whether a file is refused depends on it.

    One letter in four may be wrong, missing, too many or in its neighbour's place; ``_param``
    counts for nothing, for the names of forks end in it too.
    """
    choices = sorted(known)
    word = name.lower()
    # Most pairs differ too much at a glance, and a file may hold any number of names of any length.
    slips = {
        choice: _num_slips(word, choice.lower())
        for choice in choices
        if abs(len(choice) - len(word)) <= _MOST_SLIPS
        and len({*word}.difference(choice.lower())) <= _MOST_SLIPS
    }
    if slips:
        closest = min(slips, key=slips.__getitem__)
        stem = closest.removesuffix("_param")
        if slips[closest] <= max(1, min(_MOST_SLIPS, len(stem) // 4)):
            return closest
    return next((choice for choice in choices if choice.startswith(f"{word}_")), None)


def _num_slips(one: str, other: str) -> int:
    """Return how many letters to change, add, drop or swap with the next make one the other."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(row[j - 1] + 1, before[j] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]
