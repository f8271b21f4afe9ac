"""Names and keys as people read them, whatever bytes they are of."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefetch._errors.classes import (
    ConfigError,
    ConfigFault,
    ConfigNotFoundError,
    OutOfMemoryError,
    QuarantineError,
    RecordError,
    SourceError,
    StateError,
)
from prefetch._errors.printable import (
    printable_key,
    printable_line,
    printable_message,
    printable_name,
)
from prefetch._files.output import OutputError
from prefetch._tools.convert import InputError


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("größe 日.png".encode(), "größe 日.png"),
        (b"a\x1b[31m\n\xff", r"a\x1b[31m\n\xff"),
        (b"\t\r\0", r"\t\r\x00"),
        ("\N{RIGHT-TO-LEFT OVERRIDE}".encode(), r"\u202e"),
        (rb"bad\xff", r"bad\\xff"),
        (b"\\", r"\\"),
    ],
)
def test_what_is_no_text_or_would_steer_a_terminal_is_escaped(key: bytes, shown: str) -> None:
    assert shown == printable_key(key) == printable_name(os.fsdecode(key))


@given(*[st.lists(st.sampled_from([b"\\", b"x", b"f", b"t", b"\t", b"\xff", b"\n", b"n"]))] * 2)
def test_no_two_keys_are_shown_alike(one: list[bytes], other: list[bytes]) -> None:
    keys = b"".join(one), b"".join(other)
    assert (keys[0] == keys[1]) == (printable_key(keys[0]) == printable_key(keys[1]))


def test_what_is_shown_stays_as_it_is_in_lines_and_messages() -> None:
    shown = printable_key(b"a\\xff\xff\n")
    assert shown == printable_line(shown) == printable_message(shown)
    assert r"one\ntwo" == printable_line("one\ntwo")


def test_a_message_keeps_its_lines_and_what_is_shown_is_shown_as_it_is() -> None:
    assert "one\\t\\xff\ntwo" == printable_message("one\t\udcff\ntwo")
    assert r"\xff\t" == printable_message(printable_key(b"\xff\t"))
    assert r"\ud800" == printable_message("\ud800")


def test_the_reason_stands_soon_after_a_key_of_any_length() -> None:
    key = b"begin" + bytes(500) + b"\xffend"
    error = RecordError("bad", database="/db", record=1, key=key, stage="parse")
    assert str(error).startswith(r"/db: record 1, key 'begin\x00")
    assert str(error).endswith(r"\x00\xffend (509 bytes)', stage parse: bad")
    assert len(str(error)) < 400
    assert key == error.key


@pytest.mark.parametrize(
    "error",
    [
        RecordError("\x1b", database="\x1b", record=1, key=b"\x1b", stage="parse"),
        SourceError("\x1b", "\x1b"),
        ConfigError("\x1b", (ConfigFault("\x1b", "\x1b"),)),
        ConfigNotFoundError("\x1b", (ConfigFault("", "\x1b"),)),
        StateError(("\x1b",)),
        QuarantineError("\x1b", "\x1b"),
        OutOfMemoryError("\x1b", database="\x1b", stage="read"),
        InputError("\x1b", "\x1b"),
        OutputError("\x1b", OSError(5, "\x1b")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_error_steers_a_terminal(error: Exception) -> None:
    assert r"\x1b" in str(error)
    assert "\x1b" not in str(error)


def test_the_key_in_an_error_is_escaped_once() -> None:
    error = RecordError("bad", database="/db", record=1, key=b"\xff\t", stage="parse")
    assert r"/db: record 1, key '\xff\t', stage parse: bad" == str(error)
    error = RecordError("bad", database="/db", record=1, key=rb"\xff", stage="parse")
    assert r"/db: record 1, key '\\xff', stage parse: bad" == str(error)
