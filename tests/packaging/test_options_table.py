"""The table of options, and the types of keywords, are those that the models give."""

from __future__ import annotations

import pytest

import gen_keywords
import gen_options


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
