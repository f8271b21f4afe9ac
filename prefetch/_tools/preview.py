"""Contact sheets of a database, and of a feed's batches before mean and scale."""

from __future__ import annotations

import secrets
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefetch._config.load import load_config
from prefetch._errors.printable import counted, printable_key, printable_name, printable_shape
from prefetch._feed.display import has_blue_first
from prefetch._feed.drawn_boxes import HEADING, box_tiles
from prefetch._feed.endless import endless
from prefetch._feed.open import open as open_feed
from prefetch._feed.shown_pixels import pixel_options, shown_pixels
from prefetch._record.faults import BadRecordError, Reason
from prefetch._record.layouts.datum import DATUM
from prefetch._report.contact_sheet import SIDE, Tile, contact_sheet, make_tile, stack_sheets
from prefetch._report.sheet import title_of, title_of_row
from prefetch._source.open_backend import open_database
from prefetch._source.sidecar_files import class_names
from prefetch._tools.examine_record import Examiner

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from prefetch._config.feed_config import FeedConfig
    from prefetch._ring.batch import Batch

MOST_TILES: Final = 64
"""Of a larger batch the first so many are shown."""


def record_sheet(
    path: str | os.PathLike[str], *, num_records: int = 48, blue_first: bool = True
) -> NDArray[np.uint8]:
    """Draw some of a database's records as they are stored; blocks while they are read.

    Args:
        path: The database's folder, or its data file.
        num_records: How many, drawn at random but the same each time; all where there are fewer.
        blue_first: Whether the first of three channels is shown as blue; otherwise as red.

    Returns:
        The picture, uint8 (height, width, 3), blue first.

    Raises:
        SourceError: The database cannot be read.
    """
    with closing(open_database(path)) as database:
        total, heading = database.num_records, database.path
        names = class_names([database.path])
        # About twice as many as needed, since their number varies. They come in key order, some
        # leaves at a time, so that those left out are drawn from all of them. A second sample
        # is the same again: an image is decoded only where it is shown.
        with closing(database.sample(2 * num_records)) as records:
            drawn = [order for order, _, _ in records]
        places = np.random.default_rng(0).permutation(len(drawn))[:num_records].tolist()
        chosen = {drawn[place] for place in places}
        with closing(database.sample(2 * num_records)) as records:
            shown = [
                (order, _record_tile(key, value, names))
                for order, key, value in records
                if order in chosen
            ]
        database.check()
    tiles = [tile for _, tile in sorted(shown, key=lambda one: one[0])]
    which = "all" if len(tiles) == total else f"{len(tiles)}, drawn at random,"
    colours = _colour_note(tiles, blue_first=blue_first)
    note = f"{which} of {counted(total, 'record')} as stored{colours}"
    return contact_sheet(
        tiles, heading=printable_name(heading), notes=[note], blue_first=blue_first
    )


def _colour_note(tiles: Sequence[Tile], *, blue_first: bool) -> str:
    """Say what is taken for which colour, where there are any."""
    if not any(tile.pixels is not None and len(tile.pixels) in {3, 4} for tile in tiles):
        return ""
    order = "blue, green, red" if blue_first else "red, green, blue"
    return f"; the first three channels are shown as {order}"


def _record_tile(key: bytes, value: memoryview, names: Sequence[str]) -> Tile:
    examiner = Examiner()
    label, alarm = "no Datum", ""
    try:
        label = title_of(DATUM.read(value).label, names)
        fault = examiner.examine(value, decode=False).fault
        alarm = "" if fault is None else _name_reason(fault.reason)
        return make_tile(examiner.pixels(value, SIDE), label, printable_key(key), alarm)
    except BadRecordError as bad:
        alarm = _name_reason(bad.reason)
    return Tile(None, label, printable_key(key), alarm)


def _name_reason(reason: Reason) -> str:
    return reason.name.lower().replace("_", " ").replace("hwc", "HWC")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchView:
    """One batch, as a network sees it and as a person does.

    Attributes:
        number: Its number in the epoch; both count from 0.
        least: Smallest value; this one and the three below it are after mean and scale.
        labels: The batch's fields but for the image, by name; empty where the feed makes no labels.
        class_names: Names by label; empty where none are known.
        blue_first: Whether the first of three channels is blue, as far as anybody knows.
        images: (n, channels, height, width) of the first records, before mean and scale.
        originals: Of these records as they are stored, with the box that was drawn; empty where
            none is drawn.
    """

    epoch: int
    number: int
    shape: tuple[int, ...]
    dtype: str
    least: float
    most: float
    mean: float
    deviation: float
    labels: dict[str, list[Any]]
    keys: list[bytes]
    images: NDArray[Any]
    class_names: tuple[str, ...] = ()
    blue_first: bool = True
    originals: tuple[Tile, ...] = ()


def view_batches(config: FeedConfig, num_batches: int) -> Iterator[BatchView]:
    """Yield the first batches of a feed.

    They are read on the CPU; the device of the configuration is not used, and no bad record is
    put into its quarantine.

    Raises:
        PrefetchError: As opening and reading the feed would.
        EmptyDatabaseError: An epoch has no batches.
    """
    fixed = _fix_draws(config)
    bare = load_config(fixed, transform=pixel_options(config.transform))
    # Without mean and scale the draws are the same: the second feed gives the very images that the
    # first one normalises, and the first gives the numbers.
    with open_feed(fixed) as feed, open_feed(bare) as bare_feed:
        pairs = zip(endless(feed), endless(bare_feed), strict=True)
        for sequence, (batch, plain) in zip(range(num_batches), pairs, strict=False):
            view = _view(batch, plain, channels_last=config.transform.layout == "nhwc")
            components = bare_feed._prefetcher.components  # noqa: SLF001 - for what it drew
            originals = box_tiles(components, plain, sequence=sequence, num=MOST_TILES)
            yield replace(
                view,
                class_names=feed.class_names,
                blue_first=has_blue_first(feed),
                images=shown_pixels(view.images, bare.transform),
                originals=tuple(originals),
            )


def _fix_draws(config: FeedConfig) -> FeedConfig:
    """Return a configuration that two feeds serve alike, with no effect but reading."""
    options: dict[str, Any] = {
        "device": "cpu",
        "threads": 1,
        "epochs": None,
        "transform": {"where": "host"},
    }
    if config.seed is None:
        options["seed"] = secrets.randbits(32)
    if config.quarantine is not None:
        options |= {"quarantine": None, "on_bad_record": "skip"}
    return load_config(config, **options)


def _view(batch: Batch, plain: Batch, *, channels_last: bool) -> BatchView:
    values = batch.data.numpy(writable=False)
    images = plain.data.numpy(writable=False)[:MOST_TILES]
    with np.errstate(invalid="ignore"):  # infinite values have no mean, and are shown as such
        mean = float(values.mean(dtype=np.float64))
        deviation = float(values.std(dtype=np.float64))
    labels = {
        name: blob.numpy(writable=False).tolist()
        for name, blob in batch.fields.items()
        if name != "image"
    }
    return BatchView(
        epoch=batch.epoch,
        number=batch.number,
        shape=batch.data.shape,
        dtype=str(batch.data.dtype),
        least=float(values.min()),
        most=float(values.max()),
        mean=mean,
        deviation=deviation,
        labels=labels,
        keys=batch.keys,
        images=(images.transpose(0, 3, 1, 2) if channels_last else images).copy(),
    )


def batch_sheet(
    view: BatchView, *, notes: tuple[str, ...] = (), blue_first: bool = True
) -> NDArray[np.uint8]:
    """Draw a batch.

    Args:
        view: The batch.
        notes: Lines to stand beneath the heading.
        blue_first: Whether the first of three channels is shown as blue; otherwise as red.

    Returns:
        The picture, uint8 (height, width, 3), blue first.
    """
    shape = printable_shape(view.shape)
    heading = f"batch {view.number} of epoch {view.epoch}: {shape} {view.dtype}"
    numbers = (
        f"values {view.least:.4g} to {view.most:.4g}, mean {view.mean:.4g}, "
        f"standard deviation {view.deviation:.4g}"
    )
    tiles = [
        make_tile(
            image,
            title_of_row(view.labels, row, view.class_names),
            printable_key(view.keys[row]),
        )
        for row, image in enumerate(view.images)
    ]
    which = "" if len(tiles) == len(view.keys) else f"the first {len(tiles)} "
    pictured = f"{which}shown before mean and scale{_colour_note(tiles, blue_first=blue_first)}"
    sheet = contact_sheet(
        tiles, heading=heading, notes=[*notes, numbers, pictured], blue_first=blue_first
    )
    if not view.originals:
        return sheet
    # The originals are blue first, unless whoever looks says that the batch is not as was thought.
    originals = contact_sheet(
        view.originals, heading=HEADING, blue_first=blue_first == view.blue_first
    )
    return stack_sheets([sheet, originals])
