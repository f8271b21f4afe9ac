"""The examples of the pages on PyTorch and JAX: each block of ``py``, in turn, in one namespace.

A block with a title, as in ```` ```py title="ddp.py" ````, is a program: it becomes the file of
that name, and is run; where it joins a process group, by torchrun with two processes. The folder
has the project's configs/ and the digits database. Examples in docstrings are run too, and the
program of the page on ImageNet.
"""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from image_folders import write_class_folders

from prefetch.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKOUT = Path(__file__).resolve().parents[2]
GUIDE = CHECKOUT / "docs" / "guide"
BLOCK = re.compile(
    r'^```py(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL
)
FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^ringfeed (.+)$", re.MULTILINE)

pytestmark = pytest.mark.filterwarnings("ignore")  # of other people's packages


@pytest.fixture
def _in_a_folder_with_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    from make_digits import make_digits  # noqa: PLC0415 - needs scikit-learn, as few tests do

    shutil.copytree(CHECKOUT / "configs", tmp_path / "configs")
    make_digits(tmp_path / "data" / "digits_lmdb")
    monkeypatch.chdir(tmp_path)


def _blocks(library: str) -> list[re.Match[str]]:
    page = {"torch": "pytorch.md", "jax": "jax.md"}[library]
    return list(BLOCK.finditer((GUIDE / page).read_text(encoding="utf-8")))


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.usefixtures("_in_a_folder_with_digits")
def test_every_block_of_the_page_works(library: str) -> None:
    pytest.importorskip(library)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in _blocks(library):
        if not block["title"]:
            exec(compile(block["text"], f"{library} page", "exec"), namespace)  # noqa: S102 - our own


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "program", [block for block in _blocks("torch") if block["title"]], ids=lambda block: block[1]
)
@pytest.mark.usefixtures("_in_a_folder_with_digits")
def test_every_program_of_the_page_works(
    program: re.Match[str], torchrun: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    for library in re.findall(r"^(?:import|from) (\w+)", program["text"], re.MULTILINE):
        pytest.importorskip(library)
    path = Path(program["title"])
    path.write_text(program["text"], encoding="utf-8")
    if "init_process_group" in program["text"]:
        done = torchrun(path.absolute(), num_ranks=2)
    else:
        done = subprocess.run(
            [sys.executable, path], capture_output=True, text=True, check=False, timeout=200
        )
    assert done.returncode == 0, done


@pytest.mark.timeout(300)
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_the_page_on_imagenet_trains(
    num_ranks: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    torchrun: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    write_class_folders(tmp_path / "imagenet" / "train", 50)
    write_class_folders(tmp_path / "imagenet" / "val", 5)
    page = (GUIDE / "imagenet.md").read_text(encoding="utf-8")
    for name, text in FILE.findall(page):
        Path(name).write_text(text, encoding="utf-8")
    for command in COMMAND.findall(page):
        assert main(shlex.split(command)) == 0, command
    done = torchrun(Path("train.py").absolute(), num_ranks=num_ranks)
    assert done.returncode == 0, done
    counted = sum(map(int, re.findall(r"^epoch 1: .* of (\d+)$", done.stdout, re.MULTILINE)))
    assert counted == 15, done  # of all ranks together, each image once


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_the_examples_in_the_docstrings_give_what_they_show(library: str) -> None:
    pytest.importorskip(library)
    result = doctest.testmod(importlib.import_module(f"prefetch.{library}"))
    assert (result.failed, result.attempted > 0) == (0, True)
