"""What the pages for whoever works on this point at, as ``file:function``, is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
DESIGN = CHECKOUT / "docs" / "design"
PAGE = (DESIGN / "README.md").read_text(encoding="utf-8")
PAGES = [CHECKOUT / "CONTRIBUTING.md", *sorted(DESIGN.glob("*.md"))]
# What a page about one room leaves out.
FOLDERS = [CHECKOUT, *(CHECKOUT / "prefetch" / room for room in ("", "_kernels", "_record"))]
PLACE = re.compile(r"`([\w/]+/\w+\.(?:py|c))(?::(\w+))?`")


def is_defined(name: str, file: Path) -> bool:
    definition = {
        ".py": rf"^ *(?:async )?(?:def|class) {name}\b|^{name}\b.* = ",
        ".c": rf"^[\w ]+[ *]{name}\([^;]*\)\n\{{|^PY_FUNCTION\({name}\)$",
    }[file.suffix]
    return re.search(definition, file.read_text(encoding="utf-8"), re.MULTILINE) is not None


def missing(page: str) -> list[str]:
    """Return the places that a page names and that are not there."""
    found = []
    for path, name in PLACE.findall(page):
        files = [folder / path for folder in FOLDERS if (folder / path).is_file()]
        if not files or (name and not is_defined(name, files[0])):
            found.append(f"{path}:{name}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_place_that_a_page_names_is_there(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8")) == []


def test_the_page_names_a_place_for_each_question() -> None:
    _, _, after = PAGE.partition("## Where is ...")
    table, _, _ = after.partition("\n## ")
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 25
    assert [1] * len(rows) == [len(PLACE.findall(row)) for row in rows]


def test_a_place_that_is_gone_is_found() -> None:
    wrong = (
        "`_plan/order.py:no_such_function` `_plan/gone.py:plan` `memory/gone.py` "
        "`_kernels/native/loops_choice.c:chosen` `_kernels/native/transform.c:choose_loops`"
    )
    assert len(missing(wrong)) == 5
    assert missing("`_plan/order.py:plan` `_kernels/native/transform.c:choose_window`") == []
