"""Write configs/schema.json, the JSON schema that editors check configurations by.

Usage: python scripts/gen_schema.py [--check]

With --check nothing is written, and the exit status is 1 where the file is not up to date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from generated import write_or_check
from prefetch._config.schema import config_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = Path(__file__).resolve().parent.parent / "configs" / "schema.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the schema, and return the exit status."""
    text = json.dumps(config_schema(), indent=2, ensure_ascii=False) + "\n"
    return write_or_check({SCHEMA: text}, script="gen_schema", doc=__doc__, arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
