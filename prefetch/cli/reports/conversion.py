"""What ``ringfeed convert`` warns of and reports."""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Any

from prefetch._errors.printable import counted, printable_shape
from prefetch.cli.reports.printing import printable_size, rows
from prefetch.cli.reports.restart_markers import restarts_as_fields, restarts_as_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from prefetch._tools.convert import Input, InputOptions, Report

logger = logging.getLogger(__name__)

_LINES_SHOWN = 10


def warn_of_input(options: InputOptions, opened: Input) -> None:
    """Log what is hardly meant about an input and its options."""
    if options.seed and not options.shuffle:
        logger.warning("--seed has no effect without --shuffle")
    for note in opened.notes:
        logger.warning("%s", note)
    if opened.num_keys_shortened:
        logger.warning(
            "%s longer than LMDB's keys, which hold the beginning and a digest",
            counted(opened.num_keys_shortened, "name"),
        )


def warn_of_output(database: Path, done: Report) -> None:
    """Log what a feed of the database needs, and what else is remarkable about it."""
    if done.was_finished:
        logger.warning(
            "%s: is finished already, by the same names, labels and options; nothing was done, and "
            "no content was compared",
            database.absolute(),
        )
    channels = sorted({shape[0] for shape in known_shapes(done)})
    if len(channels) > 1:
        logger.warning(
            "there are records of %s channels; a feed needs force_color or force_gray for them",
            " and ".join(map(str, channels)),
        )
    if len({shape[1:] for shape in known_shapes(done)}) > 1:
        logger.warning(
            "the images have several sizes; a feed needs a crop_size, resize or "
            "random_resized_crop for them"
        )
    if done.num_turned:
        logger.warning(
            "%s stored as they are, which EXIF asks to turn: a feed serves them upright with "
            "force_color or force_gray, and lying without",
            counted(done.num_turned, "JPEG"),
        )
    if done.remarks:
        logger.warning(
            "libjpeg remarks on %s, and leaves the pixels as they are: %s%s",
            counted(done.num_remarked, "image"),
            "; ".join(f"{path} ({remark})" for path, remark in done.remarks),
            "; ..." if done.num_remarked > len(done.remarks) else "",
        )


def conversion_as_json(
    database: Path, opened: Input, done: Report, listed_in: Path | None, elapsed_s: float
) -> dict[str, Any]:
    """Return a conversion's report for programs."""
    return {
        "database": str(database.absolute()),
        "input": str(opened.kind),
        "num_images": done.num_images,
        "num_records": done.num_stored,
        "num_resumed": done.num_resumed,
        "num_unchanged": done.num_unchanged,
        "num_unreadable": len(done.unreadable),
        "file_bytes": done.size_bytes,
        # What some of these were called before all commands had the same names.
        "images": done.num_images,
        "records": done.num_stored,
        "records_resumed": done.num_resumed,
        "records_unchanged": done.num_unchanged,
        "shapes": [
            {"shape": list(shape), "records": count} for shape, count in known_shapes(done).items()
        ],
        "has_labels": opened.has_labels,
        "class_names": {str(label): name for name, label in opened.classes},
        "classes": dict(opened.classes),
        "unreadable": len(done.unreadable),
        "unreadable_report": None if listed_in is None else str(listed_in),
        "size_bytes": done.size_bytes,
        **restarts_as_json(done),
        "elapsed_s": elapsed_s,
    }


def conversion_as_fields(
    database: Path,
    opened: Input,
    done: Report,
    listed_in: Path | None,
    elapsed_s: float,
    *,
    is_shuffled: bool,
) -> Iterator[tuple[str, str]]:
    """Yield names and values of a conversion's report for people."""
    yield "database", str(database)
    yield "input", f"{opened.kind}, {counted(done.num_images, 'image')}"
    resumed = f", {done.num_resumed} of them before" if done.num_resumed else ""
    yield "records", f"{done.num_stored}{resumed}, in {elapsed_s:.1f} s"
    if done.num_unchanged:
        yield "", f"{counted(done.num_unchanged, 'image file')} stored unchanged"
    yield from rows("shapes", _shapes(known_shapes(done)))
    if not opened.has_labels:
        yield "labels", "none"
    yield from rows("classes", _classes(opened.classes))
    if done.num_gray and done.num_gray == done.num_stored - done.num_resumed:
        yield "colours", "all grey, stored as three equal planes; --gray stores one"
    if done.num_alpha_dropped:
        dropped = counted(done.num_alpha_dropped, "image")
        yield "alpha", f"dropped of {dropped}, which may show what it hid; see --background"
    if opened.classes and not is_shuffled:
        yield "order", "class by class: train with shuffle: true, or store with --shuffle"
    if done.unreadable:
        left_out = counted(len(done.unreadable), "image")
        yield "unreadable", f"{left_out} left out, listed in {listed_in}"
    yield from restarts_as_fields(done)
    yield "size", printable_size(done.size_bytes)


def known_shapes(done: Report) -> dict[tuple[int, int, int], int]:
    """Return the shapes of records, without what is not known of copied ones."""
    return {shape: num for shape, num in done.shapes.items() if any(shape)}


def _shapes(shapes: dict[tuple[int, int, int], int]) -> Iterator[str]:
    for shape, count in islice(shapes.items(), _LINES_SHOWN):
        yield f"{printable_shape(shape)}: {count}"
    if len(shapes) > _LINES_SHOWN:
        yield f"and {counted(len(shapes) - _LINES_SHOWN, 'more shape')}"


def _classes(classes: Sequence[tuple[str, int]]) -> Iterator[str]:
    for name, label in classes[:_LINES_SHOWN]:
        yield f"{label}: {name}"
    if len(classes) > _LINES_SHOWN:
        yield f"and {len(classes) - _LINES_SHOWN} more; all are in classes.tsv"
