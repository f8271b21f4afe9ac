"""How many numbers a network's layers take from Caffe's generator while they are set up.

Caffe has one generator for a network, and sets its layers up in the order of the file. A Data
layer that mirrors or crops at random takes a seed for its transformer twice, and the second counts;
each Data layer takes one for its thread; layers with weights fill them. So which of the generator's
numbers seeds a layer follows from the layers before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prefetch._prototxt.field_names import COMPUTING_TYPES
from prefetch.caffe import Phase

if TYPE_CHECKING:
    from prefetch._prototxt.text_format import TextField
    from prefetch.caffe import LayerParameter

# WindowData and Python are not here: what they draw is decided elsewhere.
_COUNTED: Final = COMPUTING_TYPES | {"HDF5Data", "Input"}
_FIXED_FILLERS: Final = frozenset({"", "constant", "bilinear"})


def is_random(layer: LayerParameter, phase: int) -> bool:
    """Return whether a layer mirrors or crops at random, in a network of a phase."""
    of_layer = layer.phase if layer.HasField("phase") else phase
    transform = layer.transform_param
    return transform.mirror or (of_layer == Phase.TRAIN and transform.crop_size > 0)


def num_draws(layer: LayerParameter, written: TextField | None, phase: int) -> int | None:
    """Return how many numbers a layer draws; None where that is not known.

    Args:
        layer: The layer, in the present format.
        written: The layer as it stands in the file, whose weights' fillers are looked at.
        phase: The phase of its network, for a layer that names none.
    """
    images, seeds = layer.image_data_param, is_random(layer, phase)
    match layer.type:
        case "Data":
            return 2 * seeds + 1
        case "ImageData":
            return 2 * seeds + images.shuffle + (images.rand_skip > 0) + 1
        case "MemoryData":
            return int(seeds)  # it has no thread, before which the others draw again
        case "DummyData":
            return 0  # at random it is filled by each forward pass, and not before
    if written is None or layer.type not in _COUNTED or _fills_at_random(written):
        return None
    return 0


def _fills_at_random(field: TextField) -> bool:
    for inner in field.fields:
        if inner.name.endswith("filler"):
            kind = inner.find("type")
            if kind is not None and kind.text.strip("'\"") not in _FIXED_FILLERS:
                return True
        elif _fills_at_random(inner):
            return True
    return False
