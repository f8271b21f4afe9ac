"""Labels as text and as arrays: which are taken as they are, and which are refused.

A Datum has one label, an int32. Networks index their outputs with it, so that a negative label is
nearly always a mistake, and one that was cut or bent always is.
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from prefetch._errors.printable import printable_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NAME = re.compile(r"(?!(?:nan|inf|infinity)$)[^\W\d]", re.IGNORECASE)
_LEADING_INTEGER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)", re.ASCII)
_INT32 = range(-(2**31), 2**31)
_MOST_DIGITS = 20  # more than 64 bits have; int() refuses thousands of them

FLOATS_HINT = (
    "for labels of floats, or several a record, make a second database from a .npy array of "
    "float32 (records, labels, 1, 1)"
)

NAMES_HINT = (
    "number the classes from 0 and write the numbers into the list, or put the images into class "
    "folders, whose names are kept: ringfeed convert FOLDER DB"
)


class LabelRule(enum.StrEnum):
    """Which labels are accepted."""

    STRICT = "strict"
    """Integers from 0 to 2147483647."""

    INT32 = "int32"
    """Integers that fit int32, negative ones too."""

    CAFFE = "caffe"
    """Whatever C's atoi makes of a text: the integer it begins with, cut to 32 bits, or 0."""


class LabelError(ValueError):
    """Raised for a label that a rule does not accept.

    Attributes:
        cure: What to do about it, and about all others like it; empty where the message says it.
    """

    def __init__(self, message: str, cure: str = "") -> None:
        self.cure = cure
        super().__init__(message)


def parse_label(text: str, rule: LabelRule) -> int:
    """Return the label that a text is.

    Raises:
        LabelError: The rule does not accept it.
    """
    if rule is LabelRule.CAFFE:
        return _atoi(text)
    if not _INTEGER.fullmatch(text):
        hint = NAMES_HINT if _NAME.match(text) else FLOATS_HINT
        raise LabelError(f"the label '{printable_start(text)}' is no integer", hint)
    return _accept(_integer(text), rule, printable_start(text))


def check_labels(labels: NDArray[Any], rule: LabelRule) -> NDArray[np.int32]:
    """Return labels of an array as int32.

    Args:
        labels: (n,) of any type.
        rule: Which are accepted.

    Raises:
        LabelError: They are no integers, or the rule does not accept one of them.
    """
    if labels.dtype.kind not in "iub":
        raise LabelError(
            f"the labels are of type {labels.dtype}, and integers are expected; {FLOATS_HINT}"
        )
    if labels.size:
        for extreme in (labels.argmin(), labels.argmax()):
            try:
                _accept(int(labels[extreme]), rule, str(labels[extreme]))
            except LabelError as error:
                raise LabelError(f"record {extreme}: {error}") from None
    return labels.astype(np.int32)


def _accept(label: int, rule: LabelRule, shown: str) -> int:
    if label not in _INT32:
        raise LabelError(f"the label {shown} does not fit int32, which a Datum's label is")
    if label < 0 and rule is LabelRule.STRICT:
        raise LabelError(f"the label {shown} is negative; --labels int32 accepts it")
    return label


def _atoi(text: str) -> int:
    """Return what atoi does where long has 64 bits."""
    found = _LEADING_INTEGER.match(text)
    value = min(max(_integer(found[1]), -(2**63)), 2**63 - 1) if found else 0
    return ((value + 2**31) & 0xFFFF_FFFF) - 2**31


def _integer(text: str) -> int:
    """Return the integer that a text is, or one as far beyond 64 bits."""
    digits = text.lstrip("+-").lstrip("0") or "0"
    value = int(digits) if len(digits) <= _MOST_DIGITS else 10**_MOST_DIGITS
    return -value if text.startswith("-") else value


def printable_start(text: str, most: int = 40) -> str:
    """Return a text of a list as it stands in a message; of a long one, how it begins."""
    return printable_name(text if len(text) <= most else f"{text[:most]}...")
