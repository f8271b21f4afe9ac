"""What is wrong with a database, or remarkable, by the counts of a survey."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from prefetch._errors.printable import printable_shape
from prefetch._record.faults import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from prefetch._tools.record_counts import KeyedCount, RecordCounts

_SEVERITIES: Final = ("error", "warning", "note")
_SHAPES_NAMED: Final = 5
# Fewer labels than this say nothing about their order.
_FEWEST_LABELS: Final = 8
_FEWEST_GREY: Final = 4
# Of sorted records almost no two neighbours differ; of shuffled ones nearly as many as can.
_SORTED_BELOW: Final = 0.25
_NUMBER: Final = re.compile(rb"(\d+)(?:[_.\-].*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing found.

    Attributes:
        severity: ``error``: a feed cannot use these records; ``warning``: it can with the option
            named, or hardly as meant; ``note``: worth knowing.
        kind: A name for programs: ``bad_records``, ``looks_hwc``, ``mixed_shapes``,
            ``mixed_channels``, ``mixed_kinds``, ``not_finite``, ``turned_images``,
            ``grey_in_colour``, ``transparent``, ``libjpeg_remarks``, ``no_labels``,
            ``negative_labels``, ``one_label``, ``sorted_by_label``, ``key_order``,
            ``unused_pages``.
        message: What it is and what to do.
        num_records: How many of the records examined it concerns; None where it concerns the
            database as a whole.
        keys: Keys of some of them.
    """

    severity: Literal["error", "warning", "note"]
    kind: str
    message: str
    num_records: int | None = None
    keys: tuple[bytes, ...] = ()


def find_problems(
    counts: RecordCounts,
    *,
    sampled_keys: Sequence[bytes],
    sampled_labels: npt.NDArray[np.int64],
    file_bytes: int,
    used_bytes: int,
) -> tuple[Problem, ...]:
    """Return what is wrong or remarkable: errors, warnings, notes.

    Args:
        counts: What was counted.
        sampled_keys: Keys of a sample, in the order of the database.
        sampled_labels: (n,) labels of a sample, in the order of the database.
        file_bytes: Size of the data file.
        used_bytes: What its records take of that.
    """
    problems = (
        *_bad_records(counts),
        *_shapes(counts),
        *_kinds(counts.kinds),
        *_not_finite(counts),
        *_jpegs(counts),
        *_appearance(counts),
        *_no_labels(counts),
        *_labels(counts.labels, sampled_labels),
        *_key_order(sampled_keys),
        *_find_unused(file_bytes, used_bytes),
    )
    return tuple(sorted(problems, key=lambda problem: _SEVERITIES.index(problem.severity)))


def _bad_records(counts: RecordCounts) -> Iterator[Problem]:
    by_count = sorted(counts.faults.items(), key=lambda item: (-item[1][1].count, item[0]))
    for reason, (fault, bad) in by_count:
        kind = "looks_hwc" if reason == Reason.LOOKS_HWC else "bad_records"
        yield Problem("error", kind, fault.message(), bad.count, tuple(bad.keys))


def _shapes(counts: RecordCounts) -> Iterator[Problem]:
    channels: Counter[int] = Counter()
    for shape, count in counts.shapes.items():
        channels[shape[0]] += count
    if len(channels) > 1:
        rarest = min(channels, key=channels.__getitem__)
        keys = (key for shape, key in counts.examples.items() if shape[0] == rarest)
        yield Problem(
            "warning",
            "mixed_channels",
            f"the records have {_numbers(channels)} channels, and a batch takes records of one "
            f"number of channels only: {_channels_cure(counts.kinds)}",
            channels[rarest],
            tuple(keys)[:_SHAPES_NAMED],
        )
    if len({shape[1:] for shape in counts.shapes}) > 1:
        (common, num), *others = counts.shapes.most_common()
        named = [
            f"{_are(count)} {printable_shape(shape)}" for shape, count in others[:_SHAPES_NAMED]
        ]
        left = sum(count for _, count in others[_SHAPES_NAMED:])
        named += [f"{_are(left)} of other sizes"] if left else []
        yield Problem(
            "warning",
            "mixed_shapes",
            f"of the records {_are(num)} {printable_shape(common)} (channels x height x width), "
            f"but {_words(named)}; a batch takes records of one size only: set crop_size, resize "
            "or random_resized_crop, or resize the images when the database is made",
            sum(count for _, count in others),
            tuple(counts.examples[shape] for shape, _ in others[:_SHAPES_NAMED]),
        )


def _are(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'}"


def _channels_cure(kinds: Mapping[str, int]) -> str:
    """Say what makes the channels of all records as many."""
    pixels, encoded = _pixels_and_encoded(kinds)
    if not pixels:
        return "set force_color or force_gray"
    if not encoded:
        return (
            "a feed changes them of encoded records only, and these are raw; make the database "
            "anew of images with one number of channels"
        )
    return (
        "set force_color or force_gray for the encoded ones, to as many as the raw ones have, "
        "which stay as they are"
    )


def _pixels_and_encoded(kinds: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Return the kinds of records that are pixels, and those that are image files."""
    pixels = [kind for kind in ("raw", "float") if kind in kinds]
    return pixels, [kind for kind in kinds if kind not in {"raw", "float", "damaged"}]


def _kinds(kinds: Mapping[str, int]) -> Iterator[Problem]:
    pixels, encoded = _pixels_and_encoded(kinds)
    if pixels and encoded:
        yield Problem(
            "note",
            "mixed_kinds",
            f"{_words([*pixels, *encoded])} records are mixed; force_color and force_gray work on "
            "the encoded ones only",
        )


def _not_finite(counts: RecordCounts) -> Iterator[Problem]:
    if counts.odd.count:
        yield Problem(
            "warning",
            "not_finite",
            "float_data holds values that are no finite numbers (NaN, or infinite), which a feed "
            "serves as they are and a network learns nothing from: write these records again",
            counts.odd.count,
            tuple(counts.odd.keys),
        )


def _note(kind: str, message: str, counted: KeyedCount) -> Problem:
    return Problem("note", kind, message, counted.count, tuple(counted.keys))


def _jpegs(counts: RecordCounts) -> Iterator[Problem]:
    if counts.turned.count:
        yield _note(
            "turned_images",
            "EXIF asks to turn these JPEGs: a feed serves them upright with force_color or "
            "force_gray, and as they are stored without",
            counts.turned,
        )
    if counts.remarked.count:
        yield _note(
            "libjpeg_remarks",
            f"libjpeg remarks on these JPEGs, of the first: {counts.remark}; it leaves their "
            "pixels as they are, and a feed serves them",
            counts.remarked,
        )


def _appearance(counts: RecordCounts) -> Iterator[Problem]:
    # Of a few images among others it is as they are.
    if counts.grey.count >= _FEWEST_GREY and counts.grey.count == counts.num_decoded:
        yield _note(
            "grey_in_colour",
            "images are grey, stored in three equal channels: a feed serves them in one with "
            "force_gray, and convert --gray stores one",
            counts.grey,
        )
    if counts.transparent.count:
        yield _note(
            "transparent",
            "images have transparent pixels, which force_color and force_gray serve in whatever "
            "colour lies beneath: put them on a background as they are converted (--background)",
            counts.transparent,
        )


def _no_labels(counts: RecordCounts) -> Iterator[Problem]:
    num = counts.unlabelled.count
    if num and num == counts.labels.total():
        yield Problem(
            "note",
            "no_labels",
            "no record says a label, and a feed makes every one 0: set labels: false",
            num,
            tuple(counts.unlabelled.keys),
        )


def _labels(labels: Mapping[int, int], in_order: npt.NDArray[np.int64]) -> Iterator[Problem]:
    negative = sum(count for label, count in labels.items() if label < 0)
    if negative:
        yield Problem(
            "warning",
            "negative_labels",
            "labels are negative; a loss over classes takes 0 and more",
            negative,
        )
    if len(labels) == 1 and sum(labels.values()) > 1:
        yield Problem("note", "one_label", f"every label is {next(iter(labels))}")
    elif _is_sorted(in_order):
        yield Problem(
            "warning",
            "sorted_by_label",
            "records are sorted by label, so that a batch holds few classes: set shuffle: true",
        )


def _is_sorted(labels: npt.NDArray[np.int64]) -> bool:
    """Return whether neighbours are alike far more often than chance has it."""
    if labels.size < _FEWEST_LABELS:
        return False
    shares = np.unique(labels, return_counts=True)[1] / labels.size
    by_chance = 1 - float(np.sum(shares**2))
    changes = float(np.mean(labels[1:] != labels[:-1]))
    # Even sorted, classes of one record each differ from neighbour to neighbour.
    return by_chance > 0 and changes < _SORTED_BELOW * by_chance


def _key_order(keys: Sequence[bytes]) -> Iterator[Problem]:
    matches = [_NUMBER.fullmatch(key) for key in keys]
    numbers = [int(match[1]) for match in matches if match and len(match[1]) <= 18]
    if len(numbers) < len(keys):
        return
    for place in range(1, len(numbers)):
        if numbers[place] < numbers[place - 1]:
            yield Problem(
                "warning",
                "key_order",
                f"keys are numbers of unequal length, and sorted as text: "
                f"{numbers[place - 1]} comes before {numbers[place]}; write them with leading "
                "zeros where the order matters",
                None,
                (keys[place - 1], keys[place]),
            )
            return


def _find_unused(file_bytes: int, used_bytes: int) -> Iterator[Problem]:
    spare = file_bytes - used_bytes
    if spare > max(used_bytes, 1 << 20):
        yield Problem(
            "note",
            "unused_pages",
            f"{spare} of the file's {file_bytes} bytes are unused; a compacted copy is smaller: "
            "python -m lmdb copy -c -e DB NEW",
        )


def _numbers(values: Mapping[int, int]) -> str:
    return _words([str(value) for value in sorted(values)])


def _words(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
