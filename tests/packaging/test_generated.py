"""What scripts write into documents and modules is up to date: options, their types, commands."""

from __future__ import annotations

import re

import pytest

import gen_install
import gen_keywords
import gen_options
from memory.wording import INDEXED


def test_the_guide_s_table_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    status = gen_options.main(["--check"])
    assert (0, "") == (status, capsys.readouterr().err)


def test_only_what_is_between_the_markers_is_written() -> None:
    stale = f"before\n{gen_options.BEGIN}stale\n{gen_options.END}after\n"
    head, _, rest = gen_options.with_table(stale).partition(gen_options.BEGIN)
    table, _, tail = rest.partition(gen_options.END)
    assert ("before\n", "after\n", False) == (head, tail, "stale" in table)


def test_a_missing_marker_is_an_error() -> None:
    with pytest.raises(ValueError, match="end of options"):
        gen_options.with_table(gen_options.BEGIN)


def test_the_types_of_keywords_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    status = gen_keywords.main(["--check"])
    assert (0, "") == (status, capsys.readouterr().err)


def test_documents_say_how_to_install_as_errors_do(capsys: pytest.CaptureFixture[str]) -> None:
    status = gen_install.main(["--check"])
    assert (0, "") == (status, capsys.readouterr().err)


def test_the_advice_is_that_of_an_index_once_one_has_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (
        "pip install '/path/to/checkout[cuda13]' or `pip install /path/to/checkout`, pip install x"
    )
    assert text == gen_install.with_commands(text)
    monkeypatch.setattr("memory.wording.DISTRIBUTION", INDEXED)
    indexed = "pip install 'ringfeed[cuda13]' or `pip install ringfeed`, pip install x"
    assert indexed == gen_install.with_commands(text) == gen_install.with_commands(indexed)


def test_no_other_text_names_what_is_installed_from() -> None:
    folders = (gen_install.ROOT / name for name in ("memory", "prefetch", "ringfeed"))
    naming = [
        path.relative_to(gen_install.ROOT).as_posix()
        for folder in folders
        for path in folder.rglob("*.py")
        if re.search(r"/path/to/checkout|pip install '?ringfeed", path.read_text(encoding="utf-8"))
    ]
    assert ["memory/wording.py"] == naming
