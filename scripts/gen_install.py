"""Write into the documents how the library is installed, as errors say it too.

Usage: python scripts/gen_install.py [--check]

With --check nothing is written, and the exit status is 1 where a document is not up to date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from generated import write_or_check
from memory.wording import CHECKOUT, INDEXED, pip_install

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).resolve().parent.parent

_COMMAND: Final = re.compile(
    rf"pip install (?P<quote>'?)(?:{CHECKOUT}|{INDEXED})"
    r"(?:\[(?P<extra>[\w-]+)\])?(?P=quote)(?![\w/-])"
)


def with_commands(text: str) -> str:
    """Return a document with each command that installs the library as it is today."""
    return _COMMAND.sub(lambda found: pip_install(found["extra"] or ""), text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the documents, and return the exit status."""
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    documents.remove(ROOT / "CHANGELOG.md")  # what was so then
    texts = {path: with_commands(path.read_text(encoding="utf-8")) for path in documents}
    return write_or_check(texts, script="gen_install", doc=__doc__, arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
