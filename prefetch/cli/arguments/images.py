"""What a command makes of images: their size, their quality, what is behind them."""

from __future__ import annotations

import re
from typing import Annotated, Final

import typer

_COLORS: Final = {"white": (255, 255, 255), "black": (0, 0, 0), "gray": (128, 128, 128)}
_HEX: Final = re.compile("#?([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})")
_TRIPLE: Final = re.compile("([0-9]{1,3}),([0-9]{1,3}),([0-9]{1,3})", re.ASCII)

WidthOption = Annotated[
    int,
    typer.Option("--resize-width", "--resize_width", min=0, help="Width in pixels; 0: own."),
]
HeightOption = Annotated[
    int,
    typer.Option("--resize-height", "--resize_height", min=0, help="Height in pixels; 0: own."),
]
ShorterOption = Annotated[
    int,
    typer.Option(
        "--resize-shorter",
        min=0,
        max=65535,
        help="Shorter side in pixels, the longer one in proportion; 0: own.",
    ),
]
CropOption = Annotated[
    int,
    typer.Option(
        "--center-crop",
        min=0,
        max=65535,
        help="Side of the square to cut out of the middle, after resizing; 0: all.",
    ),
]
QualityOption = Annotated[
    int | None,
    typer.Option(min=1, max=100, help="Of JPEGs that are written; 95 if not given."),
]
RoiOption = Annotated[
    bool,
    typer.Option(
        "--roi",
        help="Give JPEGs restart markers, without a loss, so that a feed decodes only what a crop "
        "needs of them; with convert implies --encoded.",
    ),
]
BackgroundOption = Annotated[
    str,
    typer.Option(
        "--background",
        metavar="COLOR",
        help="Blend alpha with it instead of dropping alpha: white, black, gray, #rrggbb or R,G,B.",
    ),
]


def parse_color(text: str) -> tuple[int, int, int] | None:
    """Return red, green and blue of a colour; None for no text.

    Raises:
        BadParameter: It is no colour.
    """
    if not text:
        return None
    word = text.lower().replace("grey", "gray")
    if word in _COLORS:
        return _COLORS[word]
    if found := _HEX.fullmatch(word):
        red, green, blue = (int(digits, 16) for digits in found.groups())
        return red, green, blue
    if found := _TRIPLE.fullmatch(word.replace(" ", "")):
        red, green, blue = map(int, found.groups())
        if max(red, green, blue) < 256:
            return red, green, blue
    raise typer.BadParameter(
        f"--background: expected white, black, gray, #rrggbb or R,G,B from 0 to 255, found {text!r}"
    )
