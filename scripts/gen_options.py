"""Write the guide's table of options from the models that check a configuration.

Usage: python scripts/gen_options.py [--check]

With --check nothing is written, and the exit status is 1 where the table is not up to date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from prefetch._config.schema import option_table

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "guide" / "configuration.md"
BEGIN = "<!-- options: made by scripts/gen_options.py -->\n"
END = "<!-- end of options -->\n"


def with_table(text: str) -> str:
    """Return a document with the table between its two markers made anew.

    Raises:
        ValueError: A marker is missing.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"expected the lines {BEGIN!r} and {END!r}, in this order")
    rows = [
        f"| `{row.name}` | `{row.default}` | {row.description.replace('|', chr(92) + '|')} |\n"
        for row in option_table()
    ]
    table = "".join(["| option | default | what it does |\n", "| --- | --- | --- |\n", *rows])
    return f"{head}{begin}\n{table}\n{end}{tail}"


def main(arguments: list[str] | None = None) -> int:
    """Write or check the table, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare, and write nothing")
    check = parser.parse_args(arguments).check
    present = GUIDE.read_text(encoding="utf-8")
    wanted = with_table(present)
    if present == wanted:
        return 0
    if check:
        print(f"{GUIDE} is not up to date; run: python scripts/gen_options.py", file=sys.stderr)
        return 1
    GUIDE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
