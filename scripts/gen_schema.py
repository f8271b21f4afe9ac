"""Write configs/schema.json, the JSON schema that editors check configurations by.

Usage: python scripts/gen_schema.py [--check]

With --check nothing is written, and the exit status is 1 where the file is not up to date.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from prefetch._config.schema import config_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = Path(__file__).resolve().parent.parent / "configs" / "schema.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the schema, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare, and write nothing")
    check = parser.parse_args(arguments).check
    text = json.dumps(config_schema(), indent=2, ensure_ascii=False) + "\n"
    if check:
        if SCHEMA.exists() and SCHEMA.read_text(encoding="utf-8") == text:
            return 0
        print(f"{SCHEMA} is not up to date; run: python scripts/gen_schema.py", file=sys.stderr)
        return 1
    SCHEMA.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
