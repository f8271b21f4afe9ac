"""What a path may have been meant as that leads nowhere."""

from __future__ import annotations

import re
from typing import Final

URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
"""How a URL begins."""

# In a path that was made absolute a URL has one slash left, and the working directory before it.
_HINTS: Final = (
    (re.compile(r"(?:^|/)[A-Za-z][A-Za-z0-9+.-]+:(?:/|$)"), "URLs are not read; give a local path"),
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


def hint(path: str) -> str:
    """Return what to add to an error about a path that nothing is at; often nothing."""
    found = next((words for pattern, words in _HINTS if pattern.search(path)), None)
    return "" if found is None else f"; {found}"
