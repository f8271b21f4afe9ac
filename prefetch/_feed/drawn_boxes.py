"""Where in the stored images the random-resized crops of a batch were taken, for people to look at.

A batch has the crops alone. The boxes are drawn once more from the random words of its records,
by the definition that the kernels are tested against.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefetch._errors.printable import printable_key
from prefetch._kernels.boxes import resized_box
from prefetch._kernels.contract import ResizeKind, Resizing
from prefetch._plan.draws import CounterDraws
from prefetch._plan.random_words import Word, reduce_word
from prefetch._record.decode import ImageDecoder
from prefetch._record.faults import BadRecordError
from prefetch._report.contact_sheet import Tile, make_tile
from prefetch._source.sidecar_files import raw_channel_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from prefetch._pipeline.components import Components
    from prefetch._ring.batch import Batch
    from prefetch._transform.options import Decoding

HEADING: Final = "the same images as stored, and the box that was drawn in each"


def box_tiles(components: Components, batch: Batch, *, sequence: int, num: int) -> list[Tile]:
    """Return a tile of the stored image, blue first, with its box, of a batch's first records.

    Blocks while they are read and decoded, at their full size.

    Args:
        components: Of the feed that served the batch.
        batch: Not released.
        sequence: Number of the batch among those that the feed has served, from 0.
        num: How many.

    Returns:
        Nothing where the feed draws no boxes.

    Raises:
        SourceError: The database is damaged, or was changed or truncated.
    """
    transform, draws = components.transform, components.augmentation
    resizing = transform.resizing
    if resizing is None or resizing.kind != ResizeKind.RANDOM_CROP:
        return []
    planned = components.order.plan(sequence)
    if planned is None or not isinstance(draws, CounterDraws):
        return []
    # Of the records that were served: some may stand in for bad ones.
    records = batch.indices[:num]
    words = draws.words_at(planned.epochs[:num], records).tolist()
    decoding = transform.decoding
    decoder = ImageDecoder(
        force_color=decoding.force_color,
        force_gray=decoding.force_gray,
        max_pixels_per_byte=decoding.max_pixels_per_byte,
    )
    tiles = []
    with components.source.reader().fetch(records) as found:
        for row, record in enumerate(records.tolist()):
            key = printable_key(batch.keys[row])
            try:
                pixels = _pixels(
                    found.values[row],
                    decoding,
                    decoder,
                    red_first=raw_channel_order(components.source.path_of(record)) == "rgb",
                )
            except BadRecordError:
                # It is other than it was: a database that changes is an error of the feed's.
                tiles.append(Tile(None, "cannot be used", key))
                continue
            is_mirrored = transform.mirror and reduce_word(words[row][Word.MIRROR], 2, modulo=False)
            tiles.append(
                _tile(pixels, words[row], resizing, decoding, is_mirrored=bool(is_mirrored))
            )
    return tiles


def _pixels(
    value: memoryview, decoding: Decoding, decoder: ImageDecoder, *, red_first: bool
) -> NDArray[Any]:
    """Return a record's pixels, (channels, height, width), blue first."""
    content = decoding.record_layout.read(value)
    if content.kind == "encoded":
        return decoder.decode(content.image_bytes()).transpose(2, 0, 1)
    pixels = content.pixels(np.dtype(np.float32))
    return pixels[::-1] if red_first and len(pixels) == 3 else pixels


def _tile(
    pixels: NDArray[Any],
    words: Sequence[int],
    resizing: Resizing,
    decoding: Decoding,
    *,
    is_mirrored: bool,
) -> Tile:
    height, width = pixels.shape[1:]
    if decoding.shorter is not None:
        side = decoding.shorter
        kept = Resizing(ResizeKind.SHORTER_SIDE, side, side, bicubic=False)
        height, width = kept.resized(height, width)
    box = resized_box(words, height, width, resizing)
    tile = make_tile(
        pixels,
        f"{box.height} x {box.width}" + (", mirrored" if is_mirrored else ""),
        f"at {box.top}, {box.left} of {height} x {width}",
    )
    frame = box.top / height, box.left / width, box.height / height, box.width / width
    return replace(tile, frame=frame)
