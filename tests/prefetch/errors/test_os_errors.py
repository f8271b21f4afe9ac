"""What the operating system refuses is told with its place and its cure, wherever it strikes."""

from __future__ import annotations

import errno
import importlib
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from databases import images_fixture

import memory
import prefetch
from prefetch._errors.context import error_context, with_context
from prefetch._errors.os_errors import describe_limit, describe_os_error, describe_text

if TYPE_CHECKING:
    from pathlib import Path

FEW_FILES = OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/lib/module.py")


source = images_fixture(9)


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "other processes"),
        (errno.ENOMEM, "ulimit -v"),
        (errno.EACCES, "permitted"),
        (errno.EPERM, "permitted"),
        (errno.ENAMETOOLONG, "so long a name"),
        (errno.EIO, "its disk, or to the network that it is reached by"),
        (errno.ENOLCK, "set lock: false"),
    ],
)
def test_what_the_system_says_comes_with_what_to_do(number: int, cure: str) -> None:
    says = os.strerror(number)
    assert re.fullmatch(f"{says}; .*{cure}.*", describe_os_error(OSError(number, says)))
    assert re.fullmatch(f"/db: {says}; .*{cure}.*", describe_text(f"/db: {says}"))


def test_what_has_no_known_cure_is_told_as_it_is() -> None:
    assert describe_os_error(OSError(errno.ESRCH, "No such process")) == "No such process"
    assert describe_os_error(OSError("is a pipe")) == "is a pipe"
    assert describe_text("is no database") == "is no database"


def test_a_limit_of_the_process_is_told_apart_from_other_errors() -> None:
    cure = "close what the process has open, or allow it more open files (ulimit -n)"
    assert describe_limit(FEW_FILES) == f"Too many open files at /lib/module.py; {cure}"
    library = ImportError("libx.so: cannot open shared object file: Too many open files")
    assert describe_limit(library) == f"{library}; {cure}"
    assert describe_limit(PermissionError(errno.EACCES, "Permission denied")) is None
    assert describe_limit(ImportError("no libx.so")) is None
    assert describe_limit(ValueError("x")) is None
    refused = memory.DeviceUnavailableError("cuda", reason="x", cure="y")
    assert describe_limit(refused) is None


def test_a_reader_that_may_open_no_more_files_names_database_and_stage() -> None:
    told_so = with_context(FEW_FILES, database="/db", stage="fill")
    assert isinstance(told_so, prefetch.SourceError)
    assert str(told_so).startswith("/db: stage fill: Too many open files at /lib/module.py; close")
    assert told_so.__cause__ is FEW_FILES


def test_opening_that_may_open_no_more_files_names_the_database() -> None:
    words = "/db: stage open: Too many open files"
    with pytest.raises(prefetch.SourceError, match=words), error_context("/db", "open"):
        raise FEW_FILES
    other = FileNotFoundError(errno.ENOENT, "No such file", "/x")
    with pytest.raises(FileNotFoundError) as caught, error_context("/db", "open"):
        raise other
    assert caught.value is other


_OPEN_WITH_FEW_FILES = """
import os, resource, sys
import prefetch
from memory import SyncedMemoryError
have = len(os.listdir("/proc/self/fd")) - 1
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (have + int(sys.argv[2]), limits[1]))
try:
    with prefetch.open({"source": sys.argv[1], "batch_size": 4}) as feed:
        print("served", sum(len(batch) for batch in feed))
except (prefetch.PrefetchError, SyncedMemoryError) as error:
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("num_files", range(6))
def test_a_process_of_few_files_is_told_of_them_whatever_it_was_about_to_open(
    source: Path, num_files: int
) -> None:
    """Modules that are imported at their first need are files as well."""
    done = subprocess.run(
        [sys.executable, "-c", _OPEN_WITH_FEW_FILES, str(source), str(num_files)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "served 9\n" or re.fullmatch(
        r"\w+Error: .*Too many open files.*\(ulimit -n\)\n", done.stdout
    )


def test_a_device_that_cannot_be_loaded_is_no_sign_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise auto would be cpu on a machine with a GPU."""

    def refuse(_: str) -> None:
        raise FEW_FILES

    monkeypatch.setattr(importlib, "import_module", refuse)
    for spec in ("auto", "cuda", "cuda:1"):
        with pytest.raises(memory.DeviceUnavailableError, match=r"open files.*\(ulimit -n\)") as e:
            memory.open_device(spec)
        assert e.value.device == spec
        assert e.value.__cause__ is FEW_FILES


def test_a_file_whose_bytes_cannot_be_read_is_named() -> None:
    with pytest.raises(prefetch.SourceError, match=r"/proc/self/mem: cannot be read: .*its disk"):
        prefetch.open({"source": "/proc/self/mem"})


def test_a_path_too_long_for_any_file_is_not_shown_in_full() -> None:
    with pytest.raises(prefetch.SourceError, match=r"\(\d+ characters\): ") as caught:
        prefetch.open({"source": "a" * 5000})
    assert len(str(caught.value)) < 400
    assert len(caught.value.path) > 5000


def test_a_mean_file_of_too_long_a_name_is_a_fault(source: Path) -> None:
    with pytest.raises(prefetch.ConfigError, match="File name too long; no file system"):
        prefetch.open({"source": source, "transform": {"mean_file": "a" * 5000}})


def test_a_configuration_that_cannot_be_looked_at_is_a_fault() -> None:
    for name in ("a" * 300 + ".yaml", "a" * 5000):
        with pytest.raises(prefetch.ConfigError, match="File name too long; no file") as caught:
            prefetch.open(name)
        assert len(str(caught.value)) < 800


def test_a_configuration_that_may_not_be_read_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "feed.yaml"
    path.write_text("source: db")

    def denied(_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("prefetch._config.yaml.read_text", lambda path, **_: denied(path))
    with pytest.raises(prefetch.ConfigError, match=r"feed\.yaml: .*\n.*denied; have reading it"):
        prefetch.open(path)


def test_a_quarantine_of_too_long_a_name_is_a_fault(source: Path) -> None:
    options: dict[str, Any] = {"source": source, "on_bad_record": "quarantine"}
    with pytest.raises(prefetch.ConfigError, match=r"^mapping: .*\n  quarantine: .*so long a name"):
        prefetch.open(options, quarantine="q" * 300)


def test_a_quarantine_is_told_of_a_limit_and_not_of_space() -> None:
    text = str(prefetch.QuarantineError("/q", "/q: Too many open files"))
    assert "ulimit -n" in text
    assert "space" not in text


def test_bytes_in_the_place_of_a_path_are_shown_as_bytes() -> None:
    words = re.escape("found b'/db' (bytes); give it as text, as os.fsdecode does")
    for options in ({"source": b"/db"}, {"source": "x", "quarantine": b"/db"}):
        with pytest.raises(prefetch.ConfigError, match=words):
            prefetch.open(options)


@pytest.mark.parametrize("kind", ["mapping", "file", "FeedConfig"])
def test_faults_that_show_at_opening_name_the_configuration(
    source: Path, tmp_path: Path, kind: str
) -> None:
    """As those do that show before."""
    file = tmp_path / "feed.yaml"
    cure = "use policy pad, or fewer ranks"
    shard = {"rank": 9, "world_size": 10, "policy": "drop"}
    file.write_text(f"source: {source}\nlast_batch: wrap\nshard: {shard}\n")
    options: dict[str, Any] = {"source": source, "last_batch": "wrap", "shard": shard}
    given: dict[str, tuple[Any, str]] = {
        "mapping": (options, "mapping"),
        "file": (file, str(file)),
        "FeedConfig": (prefetch.FeedConfig(**options), "FeedConfig"),
    }
    config, origin = given[kind]
    with pytest.raises(prefetch.ConfigError) as caught:
        prefetch.open(config)
    assert caught.value.origin == origin
    line = "line 3: " if kind == "file" else ""
    assert str(caught.value).splitlines() == [
        f"{origin}: 1 fault in the configuration",
        f"  {line}shard.policy: rank 9 of 10 gets none of the 9 records with policy drop; {cure}",
    ]


def test_a_feed_that_was_saved_at_its_end_is_at_its_end_again(source: Path) -> None:
    """Its rank has a share, of which nothing is left."""
    options = {"source": source, "batch_size": 4, "last_batch": "wrap", "epochs": 2}
    with prefetch.open(options) as feed:
        assert sum(len(batch) for batch in feed) == 18
        state = feed.state_dict()
    with prefetch.open(options) as feed:
        feed.load_state_dict(state)
        with pytest.raises(prefetch.EpochsExhaustedError):
            next(iter(feed))
