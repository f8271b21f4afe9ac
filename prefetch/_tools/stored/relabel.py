"""New labels for stored records, and how many records have which."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from prefetch._errors.printable import printable_name
from prefetch._files.input import read_file_or_pipe
from prefetch._record.faults import BadRecordError
from prefetch._record.layouts.datum import DATUM
from prefetch._tools.convert.errors import InputError, UnreadableError
from prefetch._tools.convert.inputs.labels import LabelError, LabelRule, parse_label
from prefetch._tools.convert.inputs.list_file import lines_of
from prefetch._tools.stored.copies import copy_record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from prefetch._tools.convert.examples import Example
    from prefetch._tools.stored.copies import Change


def read_new_labels(path: Path, rule: LabelRule) -> dict[bytes, int]:
    """Read a list of new labels: a key, a space and a label a line.

    Raises:
        InputError: Lines are wrong, all of them named; or a key is there twice.
        OSError: The file cannot be read.
    """
    labels: dict[bytes, int] = {}
    faults = []
    for number, line in enumerate(lines_of(read_file_or_pipe(path)), 1):
        key, space, text = line.rpartition(b" ")
        shown = printable_name(os.fsdecode(line[:100]))
        if not (space and key):
            faults.append(f"line {number}: expected a key, a space and a label, found '{shown}'")
            continue
        try:
            label = parse_label(os.fsdecode(text), rule)
        except LabelError as error:
            faults.append(f"line {number}: {error}")
            continue
        if labels.setdefault(key, label) != label:
            faults.append(f"line {number}: the key has another label before: '{shown}'")
    if faults:
        raise InputError(os.fspath(path.absolute()), *faults)
    return labels


def relabel(labels: Mapping[bytes, int]) -> Change:
    """Return what gives records new labels by their keys; all else of a record stays.

    A record that has its label already, or is not among them, stays bit for bit.
    """

    def change(key: bytes, value: bytes) -> Example:
        label = labels.get(key)
        if label is None:
            return copy_record(key, value)
        try:
            datum = DATUM.read(memoryview(value))
        except BadRecordError as bad:
            raise UnreadableError(f"has no label: {bad.at(0).message()}") from None
        has_it = datum.has_label and datum.label == label
        return copy_record(key, value if has_it else _with_label(value, label))

    return change


def _with_label(value: bytes, label: int) -> bytes:
    from prefetch.caffe import Datum  # noqa: PLC0415 - protobuf takes 40 ms

    datum = Datum.FromString(value)
    datum.label = label
    changed: bytes = datum.SerializeToString()
    return changed
