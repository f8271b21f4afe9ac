"""Write the guide's table of options from the models that check a configuration.

Usage: python scripts/gen_options.py [--check]

With --check nothing is written, and the exit status is 1 where the table is not up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from generated import write_or_check
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
    return write_or_check(
        {GUIDE: with_table(GUIDE.read_text(encoding="utf-8"))},
        script="gen_options",
        doc=__doc__,
        arguments=arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
