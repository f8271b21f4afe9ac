"""What many records are, in numbers; each thread counts its own, and the counts add up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prefetch._record.faults import Fault, Reason
    from prefetch._tools.examine_record import Finding, Shape

_KEYS_KEPT: Final = 5


@dataclass(slots=True)
class KeyedCount:
    """A number of records, and the keys of the first few of them."""

    count: int = 0
    keys: list[bytes] = field(default_factory=list)

    def count_key(self, key: memoryview | bytes) -> None:
        """Count one record."""
        self.count += 1
        if len(self.keys) < _KEYS_KEPT:
            self.keys.append(bytes(key))

    def add(self, later: KeyedCount) -> None:
        """Add the count of later records."""
        self.count += later.count
        self.keys += later.keys[: _KEYS_KEPT - len(self.keys)]


@dataclass(slots=True)
class RecordCounts:
    """Counts of findings.

    Attributes:
        num_examined: Records counted.
        num_decoded: Images among them that were decoded.
        with_restarts: How many JPEGs that were decoded have restart markers by which a feed decodes
            only what a crop needs (True), and how many have not.
        kinds: How many of each kind.
        shapes: How many of each (channels, height, width).
        labels: How many of each label.
        examples: Key of one record of each shape.
        faults: The bad records of each reason, and the fault of the first.
        odd: Records with values that are no finite numbers.
        turned: JPEGs that EXIF asks to turn.
        grey: Images that were decoded, and are grey in three equal channels.
        transparent: Images that were decoded, and have pixels that alpha hides.
        unlabelled: Records that say no label.
        remarked: JPEGs of which libjpeg says something that leaves their pixels as they are.
        remark: What it says of the first.
        key_bytes: Sum of the keys' sizes.
        value_bytes: Sum of the values' sizes.
        smallest: Size of the smallest value; 0 where nothing was counted.
        largest: Size of the largest value.
    """

    num_examined: int = 0
    num_decoded: int = 0
    with_restarts: Counter[bool] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    shapes: Counter[Shape] = field(default_factory=Counter)
    labels: Counter[int] = field(default_factory=Counter)
    examples: dict[Shape, bytes] = field(default_factory=dict)
    faults: dict[Reason, tuple[Fault, KeyedCount]] = field(default_factory=dict)
    odd: KeyedCount = field(default_factory=KeyedCount)
    turned: KeyedCount = field(default_factory=KeyedCount)
    grey: KeyedCount = field(default_factory=KeyedCount)
    transparent: KeyedCount = field(default_factory=KeyedCount)
    unlabelled: KeyedCount = field(default_factory=KeyedCount)
    remarked: KeyedCount = field(default_factory=KeyedCount)
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
        if finding.has_restarts is not None:
            self.with_restarts[finding.has_restarts] += 1
        self.kinds[finding.kind] += 1
        if finding.label is not None:
            self.labels[finding.label] += 1
        if finding.shape is not None:
            self.shapes[finding.shape] += 1
            if finding.shape not in self.examples:
                self.examples[finding.shape] = bytes(key)
        for is_one, counted in (
            (finding.num_odd, self.odd),
            (finding.is_turned, self.turned),
            (finding.is_grey, self.grey),
            (finding.is_transparent, self.transparent),
            (not finding.has_label, self.unlabelled),
            (finding.remark, self.remarked),
        ):
            if is_one:
                counted.count_key(key)
        self.remark = self.remark or finding.remark
        if finding.fault is not None:
            _, bad = self.faults.setdefault(finding.fault.reason, (finding.fault, KeyedCount()))
            bad.count_key(key)

    def add(self, later: RecordCounts) -> None:
        """Add the counts of later records."""
        sizes = [one.smallest for one in (self, later) if one.num_examined]
        self.smallest = min(sizes, default=0)
        self.largest = max(self.largest, later.largest)
        self.key_bytes += later.key_bytes
        self.value_bytes += later.value_bytes
        self.num_examined += later.num_examined
        self.num_decoded += later.num_decoded
        self.with_restarts.update(later.with_restarts)
        self.kinds.update(later.kinds)
        self.shapes.update(later.shapes)
        self.labels.update(later.labels)
        self.odd.add(later.odd)
        self.turned.add(later.turned)
        self.grey.add(later.grey)
        self.transparent.add(later.transparent)
        self.unlabelled.add(later.unlabelled)
        self.remarked.add(later.remarked)
        self.examples = later.examples | self.examples
        self.remark = self.remark or later.remark
        for reason, (fault, bad) in later.faults.items():
            self.faults.setdefault(reason, (fault, KeyedCount()))[1].add(bad)
