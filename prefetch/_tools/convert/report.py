"""What a conversion reports, and the file beside a finished database that keeps it.

By that file a conversion that is resumed once more finds that it is finished: by the same list,
labels and options, not on what the images hold.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from prefetch._tools.convert.errors import Unreadable

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypeAlias

    Shape: TypeAlias = tuple[int, int, int]

FINISHED_FILE: Final = "conversion.json"


@dataclass(frozen=True, slots=True)
class Report:
    """What a conversion did.

    Attributes:
        num_images: Images of the input.
        num_stored: Records in the database.
        num_resumed: Those of them that an earlier process had stored.
        num_unchanged: Records that hold an image file as it was.
        shapes: How many records have which shape.
        unreadable: Images left out.
        size_bytes: Size of the database's file.
        num_turned: Files that this process stored as they were and that EXIF asks to turn.
        remarks: Some of the files that libjpeg remarked on in this process, and what it said; their
            pixels are as they were.
        num_remarked: How many there are.
        num_gray: Images that this process stored as three equal planes.
        num_alpha_dropped: Files with alpha that this process stored without.
        num_marked: Image files that this process stored with restart markers.
        whole: Those that it stored without, and was to store with them, by the reason.
        bytes_added: How much larger the former are by them, less where they are smaller.
        bytes_marked: How large they are.
        was_finished: Whether an earlier process had finished it, so that nothing was done.
    """

    num_images: int
    num_stored: int
    num_resumed: int
    num_unchanged: int
    shapes: dict[Shape, int]
    unreadable: tuple[Unreadable, ...]
    size_bytes: int
    num_turned: int = 0
    remarks: tuple[tuple[str, str], ...] = ()
    num_remarked: int = 0
    num_gray: int = 0
    num_alpha_dropped: int = 0
    num_marked: int = 0
    whole: dict[str, int] = field(default_factory=dict)
    bytes_added: int = 0
    bytes_marked: int = 0
    was_finished: bool = False


def finished_text(description: dict[str, Any], report: Report) -> str:
    """Return what is kept of a conversion in `FINISHED_FILE`."""
    return json.dumps(
        {
            "description": description,
            "images": report.num_images,
            "unchanged": report.num_unchanged,
            "shapes": [[*shape, count] for shape, count in report.shapes.items()],
            "unreadable": [[one.index, one.path, one.reason] for one in report.unreadable],
        }
    )


def is_finished(database: Path) -> bool:
    """Return whether a database is there that says what it was made of."""
    return (database / FINISHED_FILE).is_file() and (database / "data.mdb").is_file()


def finished_report(database: Path, description: dict[str, Any]) -> Report | None:
    """Return what was reported of a database; None where it is of something else, or does not say.

    Args:
        database: Its folder.
        description: What is to be converted.
    """
    try:
        size_bytes = (database / "data.mdb").stat().st_size
        kept = json.loads((database / FINISHED_FILE).read_bytes())
        if kept["description"] != description:
            return None
        shapes = {(c, height, width): count for c, height, width, count in kept["shapes"]}
        num_stored = sum(shapes.values())
        return Report(
            num_images=kept["images"],
            num_stored=num_stored,
            num_resumed=num_stored,
            num_unchanged=kept["unchanged"],
            shapes=shapes,
            unreadable=tuple(Unreadable(*one) for one in kept["unreadable"]),
            size_bytes=size_bytes,
            was_finished=True,
        )
    except (OSError, ValueError, TypeError, KeyError):  # none is there, or it is damaged
        return None
