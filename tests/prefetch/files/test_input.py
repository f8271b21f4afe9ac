"""Files that a user has named: pipes, sockets and devices neither hang nor end the process."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from prefetch._config.yaml import read_yaml
from prefetch._files import input as input_file
from prefetch._files.input import check_regular, open_regular, read_file_or_pipe, read_regular
from prefetch._prototxt.layers import read_layers
from prefetch._tools.convert import InputError, InputOptions, Kind, OptionsError, open_input
from prefetch._transform.mean_file import load_mean
from prefetch.caffe import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(params=["pipe", "socket", "device", "folder", "missing"])
def no_file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Give a path that no file is at, and what is said of it."""
    path = tmp_path / "it"
    match request.param:
        case "pipe":
            os.mkfifo(path)
            yield path, r"is a pipe \(FIFO\), and a regular file is expected"
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(path))
                yield path, "is a socket, and a regular file is expected"
        case "device":
            yield Path("/dev/zero"), "is a device, and a regular file is expected"
        case "folder":
            yield tmp_path, "Is a directory"
        case "missing":
            yield path, "No such file"


@pytest.mark.parametrize("read", [check_regular, open_regular, read_regular])
def test_what_is_no_file_is_refused_with_what_it_is(
    read: Callable[[Path], object], no_file: tuple[Path, str]
) -> None:
    path, words = no_file
    with pytest.raises(OSError, match=words) as caught:
        read(path)
    assert str(path) == caught.value.filename


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(b"a\0b")
    assert b"a\0b" == read_regular(tmp_path / "it") == read_file_or_pipe(tmp_path / "it")
    (tmp_path / "link").symlink_to("it")
    assert b"a\0b" == read_regular(tmp_path / "link")


def test_a_pipe_is_read_to_its_end() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "wb") as pipe:
        pipe.write(b"x" * 3000)
        pipe.close()
        assert b"x" * 3000 == read_file_or_pipe(Path(f"/dev/fd/{reading}"))


def test_a_pipe_that_nobody_writes_into_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_file, "SILENCE_S", 0.01)
    os.mkfifo(tmp_path / "it")
    with pytest.raises(TimeoutError, match=r"from which nothing came for 0\.01 s"):
        read_file_or_pipe(tmp_path / "it")


def _lists(path: Path) -> None:
    open_input([path.parent, path], InputOptions(), kind=Kind.LIST)


def _arrays(path: Path) -> None:
    np.save(path.parent / "x.npy", np.zeros((1, 3, 4, 4), np.uint8))
    open_input([path.parent / "x.npy", path], InputOptions())


def _mnist(path: Path) -> None:
    open_input([path, path], InputOptions(), kind=Kind.MNIST)


def _cifar(path: Path) -> None:
    open_input([path], InputOptions(), kind=Kind.CIFAR)


def _guessed(path: Path) -> None:
    open_input([path, path], InputOptions())


@pytest.mark.parametrize(
    "read",
    [
        _lists,
        _arrays,
        _mnist,
        _cifar,
        _guessed,
        load_mean,
        read_yaml,
        lambda path: read_layers(path, Phase.TRAIN),
    ],
    ids=["list", "arrays", "mnist", "cifar", "guessed", "mean", "yaml", "network"],
)
def test_no_reader_of_files_waits_for_a_pipe(
    read: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_file, "SILENCE_S", 0.01)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises((OSError, ValueError), match="is a pipe"):
        read(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["pipe.npy", "pipe.npz", "pipe.bin"])
def test_the_kind_of_input_is_told_without_waiting_for_a_pipe(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises((OSError, InputError, OptionsError), match="is a pipe"):
        open_input([tmp_path / name], InputOptions())
