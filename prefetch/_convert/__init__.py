"""Making databases: of listed images, of class folders, of arrays.

`open_input` finds out what the input is and returns its examples; `convert` stores them. Between
the two, `Examples` is all that either knows of the other.
"""

from __future__ import annotations

from prefetch._convert._conversion import convert
from prefetch._convert._draft import check_free
from prefetch._convert._errors import (
    ChangedInputError,
    ConversionError,
    InputError,
    NothingConvertedError,
    OptionsError,
    ShapesDifferError,
    Unreadable,
    UnreadableImagesError,
    read_or_written,
)
from prefetch._convert._finished import Report, is_finished
from prefetch._convert._images import Treatment
from prefetch._convert._inputs import Input, InputOptions, Kind, open_input
from prefetch._convert._labels import LabelRule

__all__ = [
    "ChangedInputError",
    "ConversionError",
    "Input",
    "InputError",
    "InputOptions",
    "Kind",
    "LabelRule",
    "NothingConvertedError",
    "OptionsError",
    "Report",
    "ShapesDifferError",
    "Treatment",
    "Unreadable",
    "UnreadableImagesError",
    "check_free",
    "convert",
    "is_finished",
    "open_input",
    "read_or_written",
]
