"""Where and how a process was started makes nothing wrong that is right elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from databases import images_fixture, records_of
from processes import DEADLINE_S, environment

import prefetch
from prefetch.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

_NETWORK = (
    'layer {{ name: "d" type: "Data" top: "d" '
    'data_param {{ source: "{}" batch_size: 2 backend: LMDB }} }}'
)
_OF_THE_C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


source = images_fixture(4)


# --- a working directory that has been removed ----------------------------------------------------


@pytest.fixture
def _gone(tmp_path: Path) -> Iterator[None]:
    before = Path.cwd()
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    yield
    os.chdir(before)


@pytest.mark.usefixtures("_gone")
def test_without_a_working_directory_absolute_paths_are_opened(
    source: Path, tmp_path: Path
) -> None:
    (source.parent / "feed.yaml").write_text("source: db\n")
    (tmp_path / "net.prototxt").write_text(_NETWORK.format(source))
    np.save(tmp_path / "mean.npy", np.zeros((3, 8, 8), np.float32))
    mean = {"mean_file": str(tmp_path / "mean.npy")}
    quarantine: Any = {"on_bad_record": "quarantine", "quarantine": tmp_path / "aside"}
    for feed in (
        prefetch.open({"source": str(source), "device": "cpu", "transform": mean}),
        prefetch.open(source, device="cpu"),
        prefetch.open(source.parent / "feed.yaml", device="cpu", **quarantine),
        prefetch.open_prototxt(tmp_path / "net.prototxt", device="cpu"),
    ):
        with feed:
            assert 0 == next(iter(feed)).indices[0]


@pytest.mark.usefixtures("_gone")
def test_without_a_working_directory_a_relative_path_is_refused_for_that(tmp_path: Path) -> None:
    words = "db is relative to the working directory, which has been removed; change into another"
    with pytest.raises(prefetch.ConfigError, match=f"source: {words}"):
        prefetch.open({"source": "db"})
    with pytest.raises(prefetch.ConfigError, match=r"source: d\* is relative to the working dir"):
        prefetch.open("d*")
    with pytest.raises(prefetch.ConfigNotFoundError, match="there is nothing here"):
        prefetch.open("db")
    (tmp_path / "net.prototxt").write_text(_NETWORK.format("db"))
    with pytest.raises(FileNotFoundError, match=words):
        prefetch.open_prototxt(tmp_path / "net.prototxt")


@pytest.mark.usefixtures("_gone")
def test_without_a_working_directory_commands_work_on_absolute_paths_alone(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.prototxt").write_text(_NETWORK.format(source))
    network, config = str(tmp_path / "net.prototxt"), str(tmp_path / "net.yaml")
    assert 0 == main(["inspect", str(source)])
    assert 0 == main(["mean", str(source), str(tmp_path / "mean.npy")])
    assert 0 == main(["from-prototxt", network, config])
    assert 0 == main(["check", config])
    assert 0 == main(["show", config, str(tmp_path / "batches.png")])
    capsys.readouterr()
    for arguments in (
        ["inspect", "db"],
        ["mean", str(source), "mean.npy"],
        ["check", "net.yaml"],
        ["show", config, "batches.png"],
        ["from-prototxt", network, "net.yaml"],
        ["convert", "images", str(tmp_path / "images_lmdb")],
    ):
        assert 1 == main(arguments)
        assert (
            "error: the working directory has been removed; change into another one, or give "
            "absolute paths\n"
        ) == capsys.readouterr().err


# --- a locale without the letters of a path ---------------------------------------------------


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
        env=environment() | _OF_THE_C_LOCALE,
    )


@pytest.fixture
def named(source: Path, tmp_path: Path) -> Path:
    """Return a folder of things whose names are not ASCII."""
    folder = tmp_path / "größe"
    folder.mkdir()
    source.rename(folder / "ünï")
    np.save(folder / "mïttel.npy", np.zeros((3, 8, 8), np.float32))
    text = "source: ünï\ndevice: cpu\ntransform: {mean_file: mïttel.npy}\n"
    (folder / "cönf.yaml").write_text(text, encoding="utf-8")
    (folder / "net.prototxt").write_text(_NETWORK.format("ünï"), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_in_a_locale_without_its_letters_a_path_is_opened_as_utf_8_has_it(named: Path) -> None:
    code = r"""
import prefetch, sys
assert sys.getfilesystemencoding() != "utf-8", sys.getfilesystemencoding()
quarantine = {"on_bad_record": "quarantine", "quarantine": "\xe4side"}
for feed in (
    prefetch.open("c\xf6nf.yaml", **quarantine),
    prefetch.open({"source": "\xfcn\xef", "device": "cpu"}),
    prefetch.open_prototxt("net.prototxt", device="cpu"),
):
    with feed:
        print(next(iter(feed)).indices[0])
def open_source(source):
    return prefetch.open({"source": source})

for what in ("\u6f22", "a\ud800"):
    for opening in (prefetch.open, prefetch.open_prototxt, open_source):
        try:
            opening(what)
        except prefetch.PrefetchError as error:
            print(type(error).__name__, "half a character" in str(error))
"""
    ended = _run(named, "-c", code)
    expected = [
        *["0"] * 3,
        *["ConfigNotFoundError False"] * 2,
        "DatabaseNotFoundError False",
        *["ConfigError True"] * 3,
    ]
    assert expected == ended.stdout.decode().splitlines(), ended.stderr.decode()


@pytest.mark.slow
def test_commands_work_in_a_locale_without_the_letters_of_their_paths(named: Path) -> None:
    images = named / "imgs"
    for number, name in enumerate(("hünd", "kätz")):
        (images / name).mkdir(parents=True)
        file = cv2.imencode(".png", np.full((8, 8, 3), number, np.uint8))[1].tobytes()
        (images / name / "bïld.png").write_bytes(file)
    for arguments in (
        ["check", "cönf.yaml"],
        ["inspect", "ünï"],
        ["mean", "ünï", "mä.npy"],
        ["from-prototxt", "net.prototxt", "öut.yaml"],
        ["check", "öut.yaml"],
        ["show", "öut.yaml", "blätter.png"],
        ["convert", "imgs", "döb"],
    ):
        ended = _run(named, "-m", "prefetch.cli", *arguments)
        assert 0 == ended.returncode, ended.stderr.decode()
    assert 'source: "ünï"\n' in (named / "öut.yaml").read_text("utf-8")
    assert "0\thünd\n1\tkätz\n" == (named / "döb" / "classes.tsv").read_text("utf-8")
    assert {"mä.npy", "blätter.png"} < {path.name for path in named.iterdir()}
    assert 2 == len(records_of(named / "döb"))
