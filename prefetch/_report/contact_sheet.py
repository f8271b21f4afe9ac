"""Contact sheets: images in a grid, each with its label and key, for a person to look at.

Small images are enlarged by whole factors and stay blocky, so that a pixel is seen as one; large
ones are made smaller by averaging. Text is drawn by OpenCV: version 5 has a font for most of the
world's scripts, version 4 draws ``?`` for what is not ASCII. Characters that no font has, such as
tabs and line ends, are drawn as their escapes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import cv2
import numpy as np

from prefetch._errors.printable import printable_line
from prefetch._files.output import is_written_into, write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import TypeAlias

    from numpy.typing import NDArray

    _Colour: TypeAlias = tuple[int, int, int]

# Colours are blue, green, red, as OpenCV takes them.
_PAPER: Final = (250, 249, 248)
_FRAME: Final = (255, 255, 255)
_EDGE: Final = (218, 214, 210)
_INK: Final = (45, 38, 32)
_FAINT: Final = (140, 128, 118)
_ALARM: Final = (48, 48, 205)

SIDE: Final = 144
"""Of an image's place, in pixels."""

_PAD: Final = 8
_GAP: Final = 12
_MARGIN: Final = 24
_LINE: Final = 20
_BRIGHT_ENOUGH: Final = 64


class _Font(NamedTuple):
    face: int
    size: float


_HEADING: Final = _Font(cv2.FONT_HERSHEY_DUPLEX, 0.62)
_TITLE: Final = _Font(cv2.FONT_HERSHEY_DUPLEX, 0.5)
_NOTE: Final = _Font(cv2.FONT_HERSHEY_SIMPLEX, 0.42)
_ALERT: Final = _Font(cv2.FONT_HERSHEY_SIMPLEX, 0.4)
_CAPTION: Final = _Font(cv2.FONT_HERSHEY_SIMPLEX, 0.38)


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """One image of a sheet.

    Attributes:
        pixels: uint8 or float (channels, height, width); None for a record that has none.
        title: Drawn in bold beneath it, such as the label.
        caption: Drawn beneath that, such as the key; cut in its middle where it is too long.
        alarm: What is wrong with it, drawn in red; empty where nothing is.
        values: Least and most of the finite values of the whole image; None: those of its pixels.
        frame: A box to be framed on the image: its top, left, height and width, as shares of the
            image's height and width.
    """

    pixels: NDArray[Any] | None
    title: str
    caption: str
    alarm: str = ""
    values: tuple[float, float] | None = None
    frame: tuple[float, float, float, float] | None = None


def make_tile(pixels: NDArray[Any], title: str, caption: str, alarm: str = "") -> Tile:
    """Return a tile that holds no more of an image than is drawn.

    Args:
        pixels: uint8 or float (channels, height, width); nothing refers to it afterwards.
        title: As of the tile.
        caption: As of the tile.
        alarm: As of the tile.
    """
    values = _finite_range(pixels)
    height, width = pixels.shape[1:]
    if max(height, width) <= SIDE or values is None:
        kept = pixels[:, :SIDE, :SIDE].copy()
    else:
        kept = np.stack([_shrink(plane, values) for plane in pixels])
    return Tile(kept, title, caption, alarm, values)


def _shrink(plane: NDArray[Any], values: tuple[float, float]) -> NDArray[Any]:
    """Return one channel, made as small as a tile by averaging."""
    finite = plane
    if plane.dtype != np.uint8:
        # One value that is not finite would take its neighbours with it.
        finite = np.nan_to_num(plane, nan=0.0, neginf=values[0], posinf=values[1])
        finite = finite.astype(np.float32, copy=False)
    return np.asarray(_average(np.ascontiguousarray(finite)), plane.dtype)


def _average(image: NDArray[Any]) -> NDArray[Any]:
    """Return an image or a plane made as small as a tile."""
    height, width = image.shape[:2]
    longer = max(height, width)
    size = max(1, round(width * SIDE / longer)), max(1, round(height * SIDE / longer))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA))


def _finite_range(pixels: NDArray[Any]) -> tuple[float, float] | None:
    """Return the least and the most of an image's finite values; None where it has none."""
    ranges = []
    for plane in pixels:  # one after the other: of a large image all at once take much memory
        finite = plane if plane.dtype == np.uint8 else plane[np.isfinite(plane)]
        if finite.size:
            ranges.append((float(finite.min()), float(finite.max())))
    return _widest(ranges)


def _widest(ranges: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    if not ranges:
        return None
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def contact_sheet(
    tiles: Sequence[Tile], *, heading: str, notes: Sequence[str] = (), blue_first: bool = True
) -> NDArray[np.uint8]:
    """Draw images in a grid.

    Pixels are shown as they are, 0 black and 255 white. Where that would make all of them nearly
    black, or some lie outside of 0 to 255, the range of the sheet is stretched to black and white,
    and the sheet says so. Three channels are taken for colours, four for colours and transparency,
    which is left out; of other numbers each channel is shown in grey.

    Args:
        tiles: The images, one or more.
        heading: First line of the sheet.
        notes: Lines beneath it.
        blue_first: Whether the first of three channels is blue; otherwise it is red.

    Returns:
        uint8 (height, width, 3), blue first.
    """
    low, high = _range(tiles)
    heading, lines = printable_line(heading), [printable_line(note) for note in notes]
    if (low, high) != (0.0, 255.0):
        lines.append(f"brightness stretched: black is {low:.4g}, white is {high:.4g}")
    cell_width, cell_height = SIDE + 2 * _PAD, SIDE + 2 * _PAD + 2 * _LINE + 4
    columns = _columns(len(tiles))
    rows = math.ceil(len(tiles) / columns)
    top = _MARGIN + 30 + _LINE * len(lines) + 8
    # Wide enough for the words above, also with few images.
    widths = [_width(heading, _HEADING), *(_width(line, _NOTE) for line in lines)]
    width = 2 * _MARGIN + max(columns * (cell_width + _GAP) - _GAP, *widths)
    height = top + rows * (cell_height + _GAP) - _GAP + _MARGIN
    sheet = np.full((height, width, 3), _PAPER, np.uint8)
    _write(sheet, heading, (_MARGIN, _MARGIN + 16), _HEADING, _INK)
    for number, line in enumerate(lines):
        _write(sheet, line, (_MARGIN, _MARGIN + 42 + _LINE * number), _NOTE, _FAINT)
    for number, tile in enumerate(tiles):
        row, column = divmod(number, columns)
        left, above = _MARGIN + column * (cell_width + _GAP), top + row * (cell_height + _GAP)
        cell = sheet[above : above + cell_height, left : left + cell_width]
        _draw_tile(cell, tile, low=low, high=high, blue_first=blue_first)
    return sheet


def stack_sheets(sheets: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Return sheets, one or more, one beneath the other."""
    width = max(sheet.shape[1] for sheet in sheets)
    whole = np.full((sum(len(sheet) for sheet in sheets), width, 3), _PAPER, np.uint8)
    top = 0
    for sheet in sheets:
        whole[top : top + len(sheet), : sheet.shape[1]] = sheet
        top += len(sheet)
    return whole


def can_write(path: Path) -> bool:
    """Return whether a picture can be written under a name: its ending says in which format."""
    # OpenCV ends the process over a name that is no UTF-8: it is shown the ending alone.
    ending = _ending(path)
    return ending[1:].isascii() and bool(ending and cv2.haveImageWriter(f"picture{ending}"))


def _ending(path: Path) -> str:
    return path.suffix or (".png" if is_written_into(path) else "")


def write_picture(path: Path, sheet: NDArray[np.uint8]) -> None:
    """Write a picture.

    Args:
        path: The file; its ending says in which format, such as .png. A device or a pipe without
            one is given PNG.
        sheet: uint8 (height, width, 3), blue first.

    Raises:
        ValueError: The ending is that of no format that is written.
        OutputError: The file cannot be written.
    """
    if not can_write(path):
        raise ValueError(f"{path}: no picture can be written under this name; end it in .png")
    write_whole(path, cv2.imencode(_ending(path), sheet)[1].tobytes())


def encode_png(sheet: NDArray[np.uint8]) -> bytes:
    """Return a picture, uint8 (height, width, 3), blue first, as the bytes of a PNG."""
    return cv2.imencode(".png", sheet)[1].tobytes()


def _draw_tile(
    cell: NDArray[np.uint8], tile: Tile, *, low: float, high: float, blue_first: bool
) -> None:
    height, width = cell.shape[:2]
    cell[:] = _FRAME
    cv2.rectangle(cell, (0, 0), (width - 1, height - 1), _ALARM if tile.alarm else _EDGE)
    room = width - 2 * _PAD
    if tile.pixels is None:
        place = cell[_PAD : _PAD + SIDE, _PAD : _PAD + SIDE]
        place[:] = _PAPER
        cv2.line(place, (0, 0), (SIDE - 1, SIDE - 1), _EDGE, 1, cv2.LINE_AA)
        cv2.line(place, (0, SIDE - 1), (SIDE - 1, 0), _EDGE, 1, cv2.LINE_AA)
    else:
        image = _fit(_to_colours(tile.pixels, low=low, high=high, blue_first=blue_first))
        rows, columns = image.shape[:2]
        top, left = _PAD + (SIDE - rows) // 2, _PAD + (SIDE - columns) // 2
        cell[top : top + rows, left : left + columns] = image
        if tile.frame is not None:
            _draw_frame(cell[top : top + rows, left : left + columns], tile.frame)
    base = _PAD + SIDE + 20
    title = _cut(printable_line(tile.title), room, _TITLE)
    _write(cell, title, (_PAD, base), _TITLE, _INK)
    if tile.alarm:
        spare = room - _width(title, _TITLE) - 8
        alarm = _cut(tile.alarm, spare, _ALERT)
        _write(cell, alarm, (width - _PAD - _width(alarm, _ALERT), base), _ALERT, _ALARM)
    caption = _cut(printable_line(tile.caption), room, _CAPTION)
    _write(cell, caption, (_PAD, base + 18), _CAPTION, _FAINT)


def _draw_frame(image: NDArray[np.uint8], frame: tuple[float, float, float, float]) -> None:
    """Draw a frame just within a box: dark and light, so that it is seen on any image."""
    rows, columns = image.shape[:2]
    top, left = round(frame[0] * rows), round(frame[1] * columns)
    bottom = max(top, round((frame[0] + frame[2]) * rows) - 1)
    right = max(left, round((frame[1] + frame[3]) * columns) - 1)
    for inset, colour in enumerate((_ALARM, _ALARM, _FRAME)):
        if left + inset <= right - inset and top + inset <= bottom - inset:
            corners = (left + inset, top + inset), (right - inset, bottom - inset)
            cv2.rectangle(image, *corners, colour)


def _columns(num: int) -> int:
    """Return how many images stand side by side: a sheet somewhat wider than high."""
    return min(num, max(4, min(12, math.ceil(math.sqrt(1.8 * num)))))


def _range(tiles: Sequence[Tile]) -> tuple[float, float]:
    """Return the values to be shown as black and as white."""
    ranges = [
        tile.values or _finite_range(tile.pixels) for tile in tiles if tile.pixels is not None
    ]
    low, high = _widest([values for values in ranges if values is not None]) or (0.0, 255.0)
    if low >= 0 and (_BRIGHT_ENOUGH <= high <= 255 or high == 0):
        return 0.0, 255.0
    return min(low, 0.0), high if high > min(low, 0.0) else low + 1


def _to_colours(
    pixels: NDArray[Any], *, low: float, high: float, blue_first: bool
) -> NDArray[np.uint8]:
    """Return an image as uint8 (height, width, 3), blue first."""
    scaled = (pixels.astype(np.float64) - low) * (255 / (high - low))
    planes = np.nan_to_num(scaled, nan=0.0).clip(0, 255).round().astype(np.uint8)
    channels = len(planes)
    if channels in {3, 4}:
        image = planes[:3].transpose(1, 2, 0)
        return np.ascontiguousarray(image if blue_first else image[:, :, ::-1])
    # Side by side and one above the other, with as few empty places as may be.
    across = math.ceil(math.sqrt(channels))
    down = math.ceil(channels / across)
    mosaic = np.full((down * planes.shape[1], across * planes.shape[2]), 255, np.uint8)
    for number, plane in enumerate(planes):
        row, column = divmod(number, across)
        rows, columns = plane.shape
        mosaic[row * rows : (row + 1) * rows, column * columns : (column + 1) * columns] = plane
    return np.repeat(mosaic[:, :, np.newaxis], 3, axis=2)


def _fit(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image as large as fits into a tile."""
    factor = SIDE // max(image.shape[:2])
    if factor:
        return image.repeat(factor, axis=0).repeat(factor, axis=1)
    return _average(image)


def _cut(text: str, room: int, font: _Font) -> str:
    """Return a text that fits, without its middle where it does not: keys differ at both ends."""
    if _width(text, font) <= room:
        return text
    for kept in range(len(text) - 1, 1, -1):
        tail = kept // 2
        cut = f"{text[: kept - tail]}...{text[len(text) - tail :]}"
        if _width(cut, font) <= room:
            return cut
    return ""


def _width(text: str, font: _Font) -> int:
    return int(cv2.getTextSize(text, font.face, font.size, 1)[0][0])


def _write(
    image: NDArray[np.uint8], text: str, where: tuple[int, int], font: _Font, colour: _Colour
) -> None:
    cv2.putText(image, text, where, font.face, font.size, colour, 1, cv2.LINE_AA)
