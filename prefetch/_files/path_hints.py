"""What a path may have been meant as that leads to no database, or to nothing."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

NETWORK_SUFFIXES: Final = frozenset({".prototxt", ".pbtxt"})
"""How the name of a network's file ends."""

URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
"""How a URL begins."""

# In a path that was made absolute a URL has one slash left, and the working directory before it.
_HINTS: Final = (
    (
        re.compile(r"(?:^|/)[A-Za-z][A-Za-z0-9+.-]+:(?:/|$)"),
        "URLs are not read yet; give a local path",
    ),
    (
        re.compile(r"(?:^|/)[A-Za-z]:(?:\\|/|$)"),
        "paths of Windows are not read; in WSL the drive C: is the folder /mnt/c",
    ),
    (re.compile(r"\$\w|\$\{"), "variables such as $HOME are not replaced in paths; write it out"),
    (
        re.compile(r"(?:^|/)~(?:/|$)"),
        "a shell replaces ~ only outside of quotes and at the beginning",
    ),
)
_IMAGES: Final = "a database of images is made by: ringfeed convert ROOT LIST DB"
_KINDS: Final = tuple(
    (re.compile(begin, re.DOTALL), kind)
    for begin, kind in (
        (rb"\xff\xd8\xff", f"a JPEG image; {_IMAGES}"),
        (rb"\x89PNG", f"a PNG image; {_IMAGES}"),
        (rb"GIF8|BM....\0\0|II\*\0|MM\0\*|RIFF....WEBP", f"an image; {_IMAGES}"),
        (rb"\x93NUMPY", "an array (.npy); a database is made by: ringfeed convert ARRAYS DB"),
        (rb"PK\x03\x04", "a zip or .npz archive; unpack it, or ringfeed convert FILE.npz DB"),
        (rb"\x1f\x8b", "a gzip archive; unpack it first"),
        (rb"\x89HDF", "an HDF5 file, which is not read here"),
        (rb"SQLite format 3", "an SQLite file, which is not read here"),
        (rb"\s*(?:<|[A-Za-z_]+:)", "text, such as a web page or a configuration"),
    )
)
_IMAGE_SUFFIXES: Final = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


def hint(path: str) -> str:
    """Return what to add to an error about a path that nothing is at; often nothing."""
    found = next((words for pattern, words in _HINTS if pattern.search(path)), None)
    return "" if found is None else f"; {found}"


def kind_of(head: bytes) -> str | None:
    """Return what a file that begins like this is, with what to do; None where that is unknown."""
    return next((kind for begin, kind in _KINDS if begin.match(head)), None)


def images_hint(folder: str, names: Sequence[str]) -> str:
    """Return what makes a database of a folder of images or of class folders; nothing for others.

    Args:
        folder: The folder.
        names: What is in it.
    """
    if any(name.lower().endswith(_IMAGE_SUFFIXES) for name in names):
        return f"; to make a database of its images: ringfeed convert {folder} LIST DB"
    if any(os.path.isdir(os.path.join(folder, name)) for name in names[:5]):  # noqa: PTH112, PTH118 - plain strings
        return f"; to make a database of class folders: ringfeed convert {folder} DB"
    return ""
