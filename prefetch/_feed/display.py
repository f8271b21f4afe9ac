"""Feeds and batches for people to look at, in a notebook above all.

A batch knows its arrays and not its feed, since it is made thousands of times a second. Who shows
one looks for the feed in whose ring its memory is.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from memory import SyncedMemoryError
from prefetch._errors.classes import EmptyDatabaseError, PrefetchError
from prefetch._feed.ranks import Ranks
from prefetch._feed.shown_pixels import pixel_options, shown_pixels
from prefetch._ring.batch import Drawing

if TYPE_CHECKING:
    from collections.abc import Callable

    from prefetch._config.feed_config import FeedConfig
    from prefetch._pipeline.prefetcher import Prefetcher
    from prefetch._report.sheet import ContactSheet
    from prefetch._ring.batch import Batch


class ShownFeed(Protocol):
    """A feed, as it is drawn."""

    config: FeedConfig
    _prefetcher: Prefetcher
    _open_another: Callable[[FeedConfig, Ranks], Any]

    @property
    def rank(self) -> int:
        """Number of its process among those that share each epoch."""
        ...

    @property
    def world_size(self) -> int:
        """How many processes share each epoch."""
        ...

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the labels; none where there are none."""
        ...


_feeds: WeakSet[ShownFeed] = WeakSet()


def show_batch(batch: Batch, num: int) -> ContactSheet:
    """Draw a batch's first images: of the values that they have, or of pixels (`shown_pixels`)."""
    from prefetch._report.sheet import MOST_SHOWN, sheet_of  # noqa: PLC0415 - OpenCV is slow to import

    _check_num(num)
    feed = _feed_of(batch)
    images = batch.data.numpy(writable=False)[:num]
    labels = {
        name: blob.numpy(writable=False)[:num].tolist()
        for name, blob in batch.fields.items()
        if name != "image"
    }
    # Without its feed nobody knows: more than four are no channels, but columns.
    is_nhwc = images.shape[1] > 4 >= images.shape[3]
    if feed is not None:
        is_nhwc = feed.config.transform.layout == "nhwc"
    images = images.transpose(0, 3, 1, 2) if is_nhwc else images
    if feed is not None:
        images = shown_pixels(images[:MOST_SHOWN], feed.config.transform)
    return sheet_of(
        images,
        words=f"batch {batch.number} of epoch {batch.epoch}",
        num=len(batch),
        labels=labels,
        keys=batch.keys,
        class_names=() if feed is None else feed.class_names,
        blue_first=feed is None or has_blue_first(feed),
    )


def has_blue_first(feed: ShownFeed) -> bool:
    """Return whether the first of a feed's three channels is blue, as far as anybody knows."""
    from prefetch._source.sidecar_files import raw_channel_order  # noqa: PLC0415 - for those who look

    wanted = feed.config.transform.channels
    components = feed._prefetcher.components  # noqa: SLF001 - of its own room
    if wanted == "stored":
        wanted = "rgb" if raw_channel_order(components.source.path_of(0)) == "rgb" else "bgr"
    return wanted == "bgr"


def show_feed(feed: ShownFeed, num: int) -> ContactSheet:
    """Draw the first images of the feed's epoch, read by a feed of its own that is closed again."""
    from prefetch._config.load import load_config  # noqa: PLC0415 - pydantic is slow to import

    _check_num(num)
    config = feed.config
    is_mixed = config.transform.mixup is not None or config.transform.cutmix is not None
    # A mixed image has its partner from the whole batch.
    size = config.batch_size if is_mixed else min(num, config.batch_size)
    options: dict[str, Any] = {
        "device": "cpu",
        "threads": 1,
        "prefetch": 2,
        "batch_size": size,
        "last_batch": "partial" if config.last_batch == "drop" else config.last_batch,
        "epochs": None,
        # Drawn where the option is null: another feed would draw another order.
        "seed": feed._prefetcher.components.order.seed,  # noqa: SLF001 - of its own room
        # It expects batches as served, behind mean and scale.
        "per_batch": None,
        # Before mean and scale, which nobody can look at.
        "transform": pixel_options(config.transform),
    }
    if config.quarantine is not None:
        options |= {"quarantine": None, "on_bad_record": "skip"}
    other: Any = None
    try:
        # As the feed has them now: after reshard() the environment says otherwise.
        ranks = Ranks(feed.rank, feed.world_size, "")
        with feed._open_another(load_config(config, **options), ranks) as other:  # noqa: SLF001
            batch = next(iter(other), None)
            if batch is not None:
                return _with_boxes(show_batch(batch, num), other, batch)
    except PrefetchError as error:
        # Its frames refer to the other feed, and that to the error: the database would stay open.
        failure = error.with_traceback(None)
    else:
        failure = EmptyDatabaseError(str(config.source[0]), "an epoch of this rank has no batch")
    other = None
    try:
        raise failure
    finally:
        del failure


def _with_boxes(sheet: ContactSheet, feed: ShownFeed, batch: Batch) -> ContactSheet:
    """Return a sheet of a feed's first batch, with the boxes that were drawn for it beneath."""
    from prefetch._feed.drawn_boxes import HEADING, box_tiles  # noqa: PLC0415 - as above
    from prefetch._report.contact_sheet import contact_sheet  # noqa: PLC0415 - as above
    from prefetch._report.sheet import MOST_SHOWN  # noqa: PLC0415 - as above

    components = feed._prefetcher.components  # noqa: SLF001 - of its own room
    tiles = box_tiles(components, batch, sequence=0, num=MOST_SHOWN)
    return sheet.above(contact_sheet(tiles, heading=HEADING)) if tiles else sheet


def batch_html(batch: Batch) -> str:
    """Return what a notebook shows of a batch."""
    from prefetch._report.sheet import MOST_SHOWN, as_html  # noqa: PLC0415 - as above

    try:
        sheet = None if batch.released else show_batch(batch, MOST_SHOWN)
    except (PrefetchError, SyncedMemoryError) as error:
        return as_html(f"{batch!r}\n{error}", None)
    return as_html(repr(batch), sheet)


def feed_html(feed: ShownFeed) -> str:
    """Return what a notebook shows of a feed."""
    from prefetch._report.sheet import MOST_SHOWN, as_html  # noqa: PLC0415 - as above

    try:
        return as_html(repr(feed), show_feed(feed, MOST_SHOWN))
    except (PrefetchError, SyncedMemoryError) as error:
        return as_html(f"{feed!r}\n{error}", None)


def note_feed(feed: ShownFeed) -> None:
    """Have the batches of a feed shown as its configuration says."""
    _feeds.add(feed)


def _check_num(num: int) -> None:
    if index(num) < 1:
        raise ValueError(f"show: expected 1 image or more, found {num}")


def _feed_of(batch: Batch) -> ShownFeed | None:
    lease = batch._lease  # noqa: SLF001 - nothing else leads to the feed
    slot = None if lease is None else lease._slot  # noqa: SLF001
    for feed in list(_feeds):
        if slot in feed._prefetcher.coordinator.ring.slots:  # noqa: SLF001
            return feed
    return None


Drawing.draw, Drawing.draw_as_html = show_batch, batch_html
