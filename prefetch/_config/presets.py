"""Recipes that have a name: the options that each is short for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_IMAGENET: Final[dict[str, Any]] = {
    "channels": "rgb",
    "force_color": True,
    "dtype": "float32",
    "normalize": {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
}

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "imagenet-train": _IMAGENET | {"random_resized_crop": {"size": 224}, "mirror": "train"},
    "imagenet-eval": _IMAGENET | {"resize": {"shorter": 256}, "crop_size": 224},
    "cifar-train": {
        "channels": "rgb",
        "dtype": "float32",
        "pad": 4,
        "crop_size": 32,
        "mirror": "train",
        "normalize": {"mean": (0.4914, 0.4822, 0.4465), "std": (0.247, 0.2435, 0.2616)},
    },
}
"""The options of ``transform`` that each preset is short for."""


def expand_preset(given: object) -> object:
    """Return a transformation's options with those of its preset, where they were not given.

    An option that is null switches off what the preset has. Options in groups are replaced one by
    one, so that ``random_resized_crop: {size: 128}`` keeps the bounds.
    """
    if not isinstance(given, Mapping):
        return given
    name = given.get("preset")
    preset = PRESETS.get(name) if isinstance(name, str) else None
    if preset is None:
        return given
    merged = dict(preset) | dict(given)
    for option, value in preset.items():
        own = given.get(option)
        if isinstance(value, Mapping) and isinstance(own, Mapping):
            merged[option] = {**value, **own}
            # One of two ways to say a size takes the place of the other.
            if own.get("size") is not None and "shorter" not in own:
                merged[option].pop("shorter", None)
    return merged
