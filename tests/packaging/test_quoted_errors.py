"""What the page of troubles quotes is what the code says."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

_CHECKOUT = Path(__file__).resolve().parents[2]
_PAGE = _CHECKOUT / "docs" / "guide" / "troubleshooting.md"
_VALUE = "\0"


def _quoted() -> list[str]:
    """Return the first column of the table by text."""
    section = _PAGE.read_text("utf-8").split("## By what you see\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def _text_of(node: ast.expr) -> str:
    """Return a text as written, with a mark where a value is put in."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else _VALUE
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text_of, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text_of(node.left) + _text_of(node.right)
    return _VALUE


@cache
def _said() -> str:
    texts = []
    for package in ("memory", "prefetch"):
        for path in (_CHECKOUT / package).rglob("*.py"):
            tree = ast.parse(path.read_text("utf-8"))
            texts += [
                re.sub(r"%[sdr]|\{\w*\}", _VALUE, _text_of(node))
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp)
            ]
    return "\n".join(texts)


@pytest.mark.parametrize("quoted", _quoted())
def test_each_text_that_is_quoted_is_one_that_the_code_says(quoted: str) -> None:
    parts = [re.escape(part.strip()) for part in quoted.split("…")]
    pattern = rf"[^\n]*{_VALUE}[^\n]*".join(part for part in parts if part)
    assert re.search(pattern, _said()), quoted


def test_the_table_is_there() -> None:
    assert len(_quoted()) >= 20
