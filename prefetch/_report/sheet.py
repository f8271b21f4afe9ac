"""A contact sheet as an object: a notebook draws it, and anybody may save it."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefetch._errors.printable import printable_key
from prefetch._report.contact_sheet import (
    contact_sheet,
    encode_png,
    make_tile,
    stack_sheets,
    write_picture,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

MOST_SHOWN: Final = 24
"""Images of one sheet, so that its PNG has two megabytes at the most."""


class ContactSheet:
    """Images in a grid with labels and keys, made by `Feed.show` and `Batch.show`.

    As the last expression of a notebook's cell it is drawn there.

    Args:
        pixels: uint8 (height, width, 3), blue first.
        words: What it shows, in a line.

    Example:
        >>> import prefetch, prefetch.testing
        >>> with prefetch.testing.example_database() as path:
        ...     with prefetch.open({"source": path}, batch_size=6) as feed:
        ...         feed.show(2)
        <ContactSheet batch 0 of epoch 0: 2 of 2 images; show it in a notebook, or save("x.png")>
    """

    def __init__(self, pixels: NDArray[np.uint8], words: str) -> None:
        self._pixels = pixels
        self._words = words

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture; the ending says in which format.

        Args:
            path: Such as ``batch.png``. What is there is replaced.

        Raises:
            ValueError: The ending is that of no format that is written.
            OutputError: The file cannot be written.
        """
        write_picture(Path(path), self._pixels)

    def above(self, pixels: NDArray[np.uint8]) -> ContactSheet:
        """Return this one with another picture beneath it."""
        return ContactSheet(stack_sheets([self._pixels, pixels]), self._words)

    def _repr_png_(self) -> bytes:
        return encode_png(self._pixels)

    def __repr__(self) -> str:
        return f'<ContactSheet {self._words}; show it in a notebook, or save("x.png")>'


def sheet_of(
    images: NDArray[Any],
    *,
    words: str,
    num: int,
    labels: Mapping[str, Sequence[Any]],
    keys: Sequence[bytes],
    class_names: Sequence[str] = (),
    blue_first: bool = True,
) -> ContactSheet:
    """Draw images.

    Args:
        images: (n, channels, height, width), one or more; `MOST_SHOWN` of them are drawn.
        words: What they are.
        num: How many there are in all.
        labels: As for `title_of_row`.
        keys: One an image.
        class_names: Names by label.
        blue_first: Whether the first of three channels is blue; otherwise it is red.
    """
    shown = min(len(images), MOST_SHOWN)
    tiles = [
        make_tile(
            np.asarray(images[row], images.dtype if images.dtype == np.uint8 else np.float32),
            title_of_row(labels, row, class_names),
            printable_key(keys[row]),
        )
        for row in range(shown)
    ]
    words = f"{words}: {shown} of {num} images"
    return ContactSheet(contact_sheet(tiles, heading=words, blue_first=blue_first), words)


def title_of(label: float, class_names: Sequence[str]) -> str:
    """Return a label in words, with its class where that has a name."""
    is_named = label == int(label) and 0 <= label < len(class_names)
    return f"{class_names[int(label)]} ({label:.15g})" if is_named else f"label {label:.15g}"


def title_of_row(labels: Mapping[str, Sequence[Any]], row: int, class_names: Sequence[str]) -> str:
    """Return the label of an image of a batch in words; of a mixed one those of both.

    Args:
        labels: The batch's fields but for the image: ``label``, a number or a list of one a class
            for each image, and with pairs ``label2`` and ``lam``; empty where there are no labels.
        row: Which image.
        class_names: Names by label.
    """
    if "label" not in labels:
        return "no label"
    label = labels["label"][row]
    if "lam" in labels:
        lam = labels["lam"][row]
        shares = [(label, lam), (labels["label2"][row], 1 - lam)]
    elif isinstance(label, list):
        shares = [(number, share) for number, share in enumerate(label) if share]
    else:
        return title_of(label, class_names)
    shares = [(one, share) for one, share in shares if share > 0]
    if len(shares) == 1:
        return title_of(shares[0][0], class_names)
    return " + ".join(f"{share:.2f} {_name_of(one, class_names)}" for one, share in shares)


def _name_of(label: int, class_names: Sequence[str]) -> str:
    return class_names[label] if 0 <= label < len(class_names) else str(label)


def as_html(words: str, sheet: ContactSheet | None) -> str:
    """Return a line of words and a picture beneath it, in one piece that asks for nothing else."""
    text = f"<pre>{html.escape(words)}</pre>"
    if sheet is None:
        return text
    picture = base64.b64encode(sheet._repr_png_()).decode()
    return f'{text}<img alt="contact sheet" src="data:image/png;base64,{picture}">'
