"""The command's standard streams: closed, full, or without a reader, it says so and ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from processes import run_code, run_in_shell

if TYPE_CHECKING:
    from processes import Ended

pytestmark = pytest.mark.slow  # each is a process

COMMANDS = {
    "convert": "convert x.npy db --json",
    "mean": "mean data/lmdb --json",
    "inspect": "inspect data/lmdb",
    "show": "show feed.yaml b.png --json",
    "check": "check feed.yaml",
    "schema": "schema",
    "from-prototxt": "from-prototxt net.prototxt",
    "bench": "bench feed.yaml --rounds 1 --batches 1 --consumer-ms 0.1",
    "version": "--version",
    "help": "convert --help",
}


def told(ended: Ended) -> str:
    """Return the messages, but for that of a busy machine."""
    lines = ended.stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("warning: this machine is busy"))


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("workplace")
def test_a_reader_that_has_left_ends_it_with_the_status_of_sigpipe(name: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = run_in_shell(COMMANDS[name], stdout=writing)
    finally:
        os.close(writing)
    assert (141, "") == (ended.returncode, told(ended))


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("workplace")
def test_an_output_on_a_full_disk_is_an_error(name: str) -> None:
    ended = run_in_shell(COMMANDS[name], ">/dev/full")
    words = "error: the standard output cannot be written: No space left on device\n"
    assert (1, words) == (ended.returncode, told(ended))


@pytest.mark.parametrize("name", ["convert", "inspect", "version"])
@pytest.mark.usefixtures("workplace")
def test_a_closed_output_is_refused_before_anything_is_done(name: str) -> None:
    before = sorted(Path().iterdir())
    ended = run_in_shell(COMMANDS[name], ">&-")
    assert (1, 1) == (ended.returncode, len(ended.stderr.splitlines()))
    assert ended.stderr.startswith("error: the standard output is closed;")
    assert before == sorted(Path().iterdir())


@pytest.mark.parametrize(
    ("command", "redirection", "status"),
    [
        ("schema --json", "2>/dev/full", 2),
        ("schema --json", ">/dev/full 2>/dev/full", 2),
        ("schema --json", "2>&-", 2),
        ("nonsense", "2>/dev/full", 2),
        ("", "2>/dev/full", 2),
        ("check none.yaml", "2>/dev/full", 2),
        ("--debug inspect none", "2>/dev/full", 1),
        ("-v check feed.yaml", "2>/dev/full", 0),
        ("-v check feed.yaml", ">/dev/full 2>/dev/full", 1),
        ("bench feed.yaml --rounds 1 --batches 1 --consumer-ms 0.1", "2>/dev/full", 0),
    ],
)
@pytest.mark.usefixtures("workplace")
def test_where_no_message_can_be_written_the_status_is_as_ever(
    command: str, redirection: str, status: int
) -> None:
    assert status == run_in_shell(command, redirection).returncode


@pytest.mark.parametrize("arguments", [["--version"], ["nonsense"], ["inspect", "none"]])
def test_a_program_that_calls_the_command_keeps_its_own_streams(arguments: list[str]) -> None:
    code = """
        import sys
        from prefetch.cli import main
        before = sys.stdout, sys.stderr
        main(sys.argv[1:])
        assert before == (sys.stdout, sys.stderr)
        print("out"), print("err", file=sys.stderr)
    """
    ended = run_code(code, *arguments)
    assert 0 == ended.returncode, ended.stderr
    assert "out" == ended.stdout.splitlines()[-1]
    assert "err" == ended.stderr.splitlines()[-1]


@pytest.mark.parametrize("closed", ["2>&-", "<&-", "2>&- <&-", "2>/dev/full"])
@pytest.mark.usefixtures("workplace")
def test_without_the_other_streams_it_does_its_work(closed: str) -> None:
    Path("warned").mkdir()
    for name in ("1", "2"):
        (Path("warned") / name).mkdir()
        (Path("warned") / name / "a.pgm").write_bytes(b"P5 2 2 255\n\0\1\2\3")
    ended = run_in_shell("convert warned db", closed)  # which warns
    assert 0 == ended.returncode, ended.stderr
    assert "records" in ended.stdout
    ended = run_in_shell("inspect db", closed)
    assert 0 == ended.returncode, ended.stderr
