"""Making databases: of listed images, of class folders, of arrays.

`open_input` finds out what the input is and returns its examples; `convert` stores them. Between
the two, `Examples` is all that either knows of the other.
"""

from __future__ import annotations

from prefetch._tools.convert.conversion import convert
from prefetch._tools.convert.draft_folder import check_free
from prefetch._tools.convert.errors import (
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
from prefetch._tools.convert.inputs.labels import LabelRule
from prefetch._tools.convert.inputs.open import Input, InputOptions, Kind, open_input
from prefetch._tools.convert.inputs.treatment import Treatment
from prefetch._tools.convert.report import Report, is_finished

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
