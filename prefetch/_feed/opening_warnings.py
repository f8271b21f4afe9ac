"""What works and is seldom meant, said once as a feed is opened: in the log, and by ``check``.

A few dozen records are looked at: some drawn from all, and the first ones in a row. Nothing is
looked at later, and nothing for a batch. Against false alarms: labels count as sorted where
neighbours are alike though chance would have told a good part of them apart; an image counts as
grey or transparent by its pixels, not by its format, and only where all (grey) or some (alpha) of
several are; for phase test, order and a last batch of one are as meant.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from prefetch._errors.classes import SourceError
from prefetch._errors.printable import counted, printable_key
from prefetch._record.appearance import (
    is_grey_in_colour,
    is_transparent,
    is_turned,
)
from prefetch._record.decode import ImageDecoder
from prefetch._record.faults import BadRecordError
from prefetch._record.layouts.datum import DATUM
from prefetch._source.sidecar_files import classes_differ, raw_channel_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prefetch._config.feed_config import FeedConfig
    from prefetch._plan.order import Order
    from prefetch._record.datum_view import DatumView
    from prefetch._source.source import RecordSource

logger = logging.getLogger("prefetch")

_SAMPLED: Final = 48
_IN_A_ROW: Final = 32
_DECODED: Final = 4
_SIDE: Final = 64  # of what is decoded: of a large JPEG that takes a tenth of the time
_MOST_S: Final = 0.05  # on a cold disk each record may cost a seek
_FEWEST_CHANGES: Final = 8  # that chance would have made
_SORTED_BELOW: Final = 0.25  # of them
_KEYS_NAMED: Final = 3


@dataclass(slots=True)
class _Seen:
    """What the records that were looked at are."""

    num: int = 0
    labels: list[int] = field(default_factory=list)
    labels_in_a_row: list[int] = field(default_factory=list)
    key_in_a_row: bytes = b""
    num_without_label: int = 0
    num_pictures: int = 0
    num_grey: int = 0
    turned: list[bytes] = field(default_factory=list)
    transparent: list[bytes] = field(default_factory=list)
    first_key: bytes = b""


def find_warnings(
    config: FeedConfig,
    source: RecordSource,
    order: Order,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[str, ...]:
    """Return what is seldom meant, one sentence each, with the cure; reads a few records.

    Nothing is said of records that cannot be read: whoever reads them says it.

    Args:
        config: The configuration.
        source: The records.
        order: In which order they are served.
        clock: Returns the time in seconds.
    """
    warnings = [*_of_options(config), *_of_last_batch(config, order)]
    try:
        seen = _look(source, clock)
    except SourceError:
        return tuple(warnings)
    warnings += [*_of_order(config, seen), *_of_labels(config, seen)]
    warnings += [*_of_pixels(config, seen)]
    return tuple(warnings)


def explain_classes(source: RecordSource) -> str | None:
    """Say that a label means another class in another database; None where it does not."""
    difference = classes_differ(source.paths)
    if difference is None:
        return None
    return (
        f"{difference}: a label means one thing here and another there; make the databases of one "
        f"folder of class folders, or give the images of one their labels by a LIST"
    )


def note_channel_order(config: FeedConfig, source: RecordSource, kind: str) -> None:
    """Log that nobody knows in which order raw records hold red, green and blue."""
    if config.transform.channels != "rgb" or kind != "raw" or raw_channel_order(source.path_of(0)):
        return
    logger.info(
        "transform.channels is rgb: raw records are taken for BGR, as Caffe's tools write them, "
        "and turned around; where they were made of RGB arrays write channels: stored"
    )


def _look(source: RecordSource, clock: Callable[[], float]) -> _Seen:
    seen, decoder = _Seen(), ImageDecoder()
    began = clock()
    with closing(source.sample(_SAMPLED)) as records:
        for key, value in records:
            is_late = clock() - began > _MOST_S
            try:
                datum = DATUM.read(value)
                _look_at(seen, key, datum, None if is_late else decoder)
            except BadRecordError:
                continue
            if is_late and seen.num >= _IN_A_ROW // 2:
                break
    if clock() - began <= _MOST_S:
        with source.walker().take(0, min(_IN_A_ROW, source.num_records)) as first:
            seen.key_in_a_row = bytes(first.keys[0])
            for value in first.values:
                try:
                    seen.labels_in_a_row.append(DATUM.read(value).label)
                except BadRecordError:
                    continue
    return seen


def _look_at(seen: _Seen, key: bytes, datum: DatumView, decoder: ImageDecoder | None) -> None:
    seen.num += 1
    seen.first_key = seen.first_key or key
    seen.labels.append(datum.label)
    seen.num_without_label += not datum.has_label
    if is_turned(datum):
        seen.turned.append(key)
    if datum.kind == "float":
        return
    if datum.encoded:
        if decoder is None or seen.num_pictures >= _DECODED:
            return
        planes = decoder.decode_small(datum.image_bytes(), _SIDE).transpose(2, 0, 1)
    else:
        planes = datum.pixels(np.dtype(np.uint8))
    seen.num_pictures += 1
    seen.num_grey += is_grey_in_colour(planes)
    if datum.encoded and is_transparent(planes):
        seen.transparent.append(key)


def _of_options(config: FeedConfig) -> Iterator[str]:
    transform = config.transform
    if config.phase == "test" and transform.mirror is True:
        yield (
            "transform.mirror flips images at random in phase test too, as in Caffe, so that two "
            "validations differ: write mirror: train, or mirror: false for phase test"
        )
    if config.phase == "train" and transform.preset == "imagenet-eval":
        yield (
            "transform.preset is imagenet-eval, and phase is train, so that crops are at random "
            "places and two validations differ: write phase: test"
        )
    if transform.normalize is not None and max(transform.normalize.mean) > 1:
        yield (
            f"transform.normalize.mean is {max(transform.normalize.mean):g}, and it is subtracted "
            "from pixels between 0 and 1: divide mean and std by 255, or take mean_value and scale"
        )


def _of_last_batch(config: FeedConfig, order: Order) -> Iterator[str]:
    samples, size = order.samples_per_epoch, config.batch_size
    is_cut = config.phase == "train" and config.last_batch == "partial"
    if is_cut and samples > size > 1 and samples % size == 1:
        yield (
            f"the last batch of each epoch has one record ({samples} = {samples // size} x {size} "
            "+ 1), which batch normalisation cannot train on: write last_batch: drop, or another "
            "batch_size"
        )


def _of_order(config: FeedConfig, seen: _Seen) -> Iterator[str]:
    if not config.labels or not _is_sorted(seen):
        return
    label = seen.labels_in_a_row[0]
    found = (
        f"records are sorted by label (the first {len(seen.labels_in_a_row)} are nearly all of "
        f"label {label}, from the key {printable_key(seen.key_in_a_row)} on)"
    )
    cut = config.subset
    if cut is not None and (cut.start or cut.stop is not None):
        yield (
            f"{found}, and subset cuts a range of them, which holds only some of the labels: make "
            "the database anew in random order (ringfeed convert --shuffle)"
        )
    elif config.phase == "train" and not config.shuffle:
        cure = (
            "write shuffle: true"
            if config.rng != "caffe" and config.shard.policy != "caffe"
            else "make the database anew in random order (ringfeed convert --shuffle)"
        )
        yield f"{found}, and served in that order, so that a batch has few labels: {cure}"


def _is_sorted(seen: _Seen) -> bool:
    labels, row = np.array(seen.labels), np.array(seen.labels_in_a_row)
    if not labels.size or row.size < 2:
        return False
    shares = np.unique(labels, return_counts=True)[1] / labels.size
    by_chance = (1 - float(np.sum(shares**2))) * (row.size - 1)
    changes = int(np.sum(row[1:] != row[:-1]))
    return by_chance >= _FEWEST_CHANGES and changes < _SORTED_BELOW * by_chance


def _of_labels(config: FeedConfig, seen: _Seen) -> Iterator[str]:
    if config.labels and seen.num and seen.num_without_label == seen.num:
        yield (
            f"none of {counted(seen.num, 'record')} looked at says a label, such as "
            f"{printable_key(seen.first_key)}, so that every label is 0: write labels: false, or "
            "make the database anew with labels"
        )


def _of_pixels(config: FeedConfig, seen: _Seen) -> Iterator[str]:
    options = config.transform
    if seen.num_grey >= _DECODED and seen.num_grey == seen.num_pictures and not options.force_gray:
        yield (
            f"images are grey, stored in three equal channels ({seen.num_grey} of "
            f"{seen.num_pictures} looked at, such as {printable_key(seen.first_key)}), which takes "
            "three times the memory: write force_gray: true where they are encoded, or convert "
            "them with --gray"
        )
    if seen.transparent and (options.force_color or options.force_gray):
        yield (
            f"images have transparent pixels ({_named(seen.transparent)}), which are served in "
            "whatever colour lies beneath, since force_color and force_gray leave alpha out: put "
            "them on a background as they are converted (--background)"
        )
    if seen.turned and not (options.force_color or options.force_gray):
        yield (
            f"{len(seen.turned)} of {counted(seen.num, 'record')} looked at are JPEGs that EXIF "
            f"asks to turn ({_named(seen.turned)}), which are served as they are stored: "
            "force_color or force_gray turns them upright"
        )


def _named(keys: list[bytes]) -> str:
    more = len(keys) - _KEYS_NAMED
    named = ", ".join(printable_key(key) for key in keys[:_KEYS_NAMED])
    return f"{named} and {more} more" if more > 0 else named
