"""Counts of what many records are; two of them add up, so that threads count for themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prefetch._record.faults import Fault, Reason
    from prefetch._tools.examine import Finding, Shape

_KEYS_KEPT: Final = 5


@dataclass(slots=True)
class FaultTally:
    """Bad records of one reason.

    Attributes:
        fault: The first one's fault.
        count: How many there are.
        keys: Keys of the first few.
    """

    fault: Fault
    count: int = 0
    keys: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class RecordCounts:
    """Counts of findings.

    Attributes:
        num_examined: Records counted.
        num_decoded: Images among them that were decoded.
        kinds: How many of each kind.
        shapes: How many of each (channels, height, width).
        labels: How many of each label.
        examples: Key of one record of each shape.
        faults: The bad records, by reason.
        num_odd: Records with values that are no finite numbers.
        odd_keys: Keys of the first few of them.
        num_turned: JPEGs that EXIF asks to turn.
        turned_keys: Keys of the first few of them.
        num_remarked: JPEGs of which libjpeg says something that leaves their pixels as they are.
        remarked_keys: Keys of the first few of them.
        remark: What it says of the first.
        key_bytes: Sum of the keys' sizes.
        value_bytes: Sum of the values' sizes.
        smallest: Size of the smallest value; 0 where nothing was counted.
        largest: Size of the largest value.
    """

    num_examined: int = 0
    num_decoded: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    shapes: Counter[Shape] = field(default_factory=Counter)
    labels: Counter[int] = field(default_factory=Counter)
    examples: dict[Shape, bytes] = field(default_factory=dict)
    faults: dict[Reason, FaultTally] = field(default_factory=dict)
    num_odd: int = 0
    odd_keys: list[bytes] = field(default_factory=list)
    num_turned: int = 0
    turned_keys: list[bytes] = field(default_factory=list)
    num_remarked: int = 0
    remarked_keys: list[bytes] = field(default_factory=list)
    remark: str = ""
    key_bytes: int = 0
    value_bytes: int = 0
    smallest: int = 0
    largest: int = 0

    def count(self, key: memoryview | bytes, value: memoryview, finding: Finding) -> None:
        """Count one record."""
        size = len(value)
        self.smallest = min(self.smallest, size) if self.num_examined else size
        self.largest = max(self.largest, size)
        self.key_bytes += len(key)
        self.value_bytes += size
        self.num_examined += 1
        self.num_decoded += finding.decoded
        self.kinds[finding.kind] += 1
        if finding.label is not None:
            self.labels[finding.label] += 1
        if finding.shape is not None:
            self.shapes[finding.shape] += 1
            if finding.shape not in self.examples:
                self.examples[finding.shape] = bytes(key)
        if finding.num_odd:
            self.num_odd += 1
            _keep(self.odd_keys, key)
        if finding.is_turned:
            self.num_turned += 1
            _keep(self.turned_keys, key)
        if finding.remark:
            self.num_remarked += 1
            self.remark = self.remark or finding.remark
            _keep(self.remarked_keys, key)
        if finding.fault is not None:
            bad = self.faults.setdefault(finding.fault.reason, FaultTally(finding.fault))
            bad.count += 1
            _keep(bad.keys, key)

    def add(self, later: RecordCounts) -> None:
        """Count what another one has counted of later records."""
        if self.num_examined and later.num_examined:
            self.smallest = min(self.smallest, later.smallest)
        elif later.num_examined:
            self.smallest = later.smallest
        self.largest = max(self.largest, later.largest)
        self.key_bytes += later.key_bytes
        self.value_bytes += later.value_bytes
        self.num_examined += later.num_examined
        self.num_decoded += later.num_decoded
        self.kinds.update(later.kinds)
        self.shapes.update(later.shapes)
        self.labels.update(later.labels)
        self.examples = later.examples | self.examples
        self.num_odd += later.num_odd
        self.odd_keys += later.odd_keys[: _KEYS_KEPT - len(self.odd_keys)]
        self.num_turned += later.num_turned
        self.turned_keys += later.turned_keys[: _KEYS_KEPT - len(self.turned_keys)]
        self.num_remarked += later.num_remarked
        self.remarked_keys += later.remarked_keys[: _KEYS_KEPT - len(self.remarked_keys)]
        self.remark = self.remark or later.remark
        for reason, theirs in later.faults.items():
            ours = self.faults.setdefault(reason, FaultTally(theirs.fault))
            ours.count += theirs.count
            ours.keys += theirs.keys[: _KEYS_KEPT - len(ours.keys)]


def _keep(keys: list[bytes], key: memoryview | bytes) -> None:
    if len(keys) < _KEYS_KEPT:
        keys.append(bytes(key))
