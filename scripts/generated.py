"""What the scripts share that write files from the models: writing them, or only comparing."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def write_or_check(
    texts: Mapping[Path, str], *, script: str, doc: str | None, arguments: Sequence[str] | None
) -> int:
    """Write files, or with ``--check`` among the arguments only compare; return the exit status.

    Args:
        texts: What each of the files is to hold.
        script: Name of the script that is run.
        doc: Its docstring.
        arguments: Its arguments; None: those of the process.
    """
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare, and write nothing")
    check = parser.parse_args(arguments).check
    stale = [
        path
        for path, text in texts.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if check:
            print(f"{path} is not up to date; run: python scripts/{script}.py", file=sys.stderr)
        else:
            path.write_text(texts[path], encoding="utf-8")
    return 1 if check and stale else 0
