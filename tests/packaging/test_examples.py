"""Every example that people read is run: Python and YAML in the documents, and all doctests.

A block of a document that has a title, as in ```` ```yaml title="noise.yaml" ````, becomes the file
of that name; then the document's Python blocks run in turn, in one namespace, in a folder with the
project's configs/, the digits database and class folders. Blocks of pycon have their output
compared. Of the pages whose commands make what their Python reads, the commands run too.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from image_folders import write_class_folders
from ruamel.yaml import YAML

import memory
import prefetch
from prefetch._config.presets import PRESETS
from prefetch.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHECKOUT = Path(__file__).resolve().parents[2]
_DOCUMENTS = [*sorted(_CHECKOUT.glob("*.md")), *sorted((_CHECKOUT / "docs").rglob("*.md"))]
_GUIDE = _CHECKOUT / "docs" / "guide"
_WITH_COMMANDS = [
    _GUIDE / f"{page}.md" for page in ("imagenet", "recipes", "splits", "several-labels")
]
_BLOCK = re.compile(
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _name(document: Path) -> str:
    return document.relative_to(_CHECKOUT).as_posix()


@pytest.fixture
def workplace(tmp_path: Path, digits: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, as the documents expect it."""
    shutil.copytree(_CHECKOUT / "configs", tmp_path / "configs")
    shutil.copytree(digits, tmp_path / "data" / "digits_lmdb")
    write_class_folders(tmp_path / "imagenet" / "train", 24)
    write_class_folders(tmp_path / "imagenet" / "val", 5)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _modules() -> Iterator[str]:
    """Yield every module, but for generated code and what needs a library that is not here."""
    without_cupy = importlib.util.find_spec("cupy") is None
    missing = {
        f"prefetch.{name}" for name in ("torch", "jax") if not importlib.util.find_spec(name)
    }
    for package in (memory, prefetch):
        yield package.__name__
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "._proto" in module.name or module.name in missing:
                continue
            if without_cupy and "._cuda." in module.name:
                continue
            yield module.name


@pytest.mark.parametrize("document", _DOCUMENTS, ids=_name)
@pytest.mark.usefixtures("workplace")
def test_every_example_in_a_document_works(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in _BLOCK.finditer(text):
        if block["title"]:
            Path(block["title"]).write_text(block["text"], encoding="utf-8")
        line = text.count("\n", 0, block.start("text"))
        if block["language"] == "python":
            # Line numbers of a traceback are those of the document.
            code = compile("\n" * line + block["text"], str(document), "exec")
            exec(code, namespace)  # noqa: S102 - our own documents
        elif block["language"] == "pycon":
            _check_session(block["text"], namespace, document, line)
        elif block["language"] == "sh" and document in _WITH_COMMANDS:
            for command in block["text"].splitlines():
                _run_command(shlex.split(command))


@pytest.mark.parametrize("document", _DOCUMENTS, ids=_name)
def test_every_link_of_a_document_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8"))
    missing = [link for link in links if not (document.parent / link).exists()]
    assert [] == missing


def test_the_page_on_recipes_writes_every_preset_out() -> None:
    page = (_GUIDE / "recipes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| `(\{.*\})` \|$", page, re.MULTILINE)
    written = {name: YAML(typ="safe", pure=True).load(text) for name, text in rows}
    assert json.loads(json.dumps(dict(PRESETS))) == written


def test_the_first_page_leads_to_every_page_of_the_guide() -> None:
    readme = (_CHECKOUT / "README.md").read_text(encoding="utf-8")
    navigation = (_CHECKOUT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {path.name for path in _GUIDE.glob("*.md")}
    assert {name for name in pages if f"guide/{name}" not in navigation} == set()
    # What this page is for is said on the two that it leads to.
    assert {name for name in pages if f"guide/{name}" not in readme} == {"torch-and-jax.md"}


@pytest.mark.parametrize("name", list(_modules()))
@pytest.mark.usefixtures("workplace")
def test_every_example_in_a_docstring_gives_what_it_shows(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=_FLAGS)
    assert 0 == result.failed


@pytest.mark.parametrize("package", ["memory", "prefetch"])
@pytest.mark.usefixtures("workplace")
def test_every_example_of_a_public_class_gives_what_it_shows(package: str) -> None:
    """Those of its methods too: doctest takes their modules, which are private, for others."""
    module = importlib.import_module(package)
    public = [getattr(module, name) for name in module.__all__]
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(optionflags=_FLAGS)
    for found in (cls for cls in public if inspect.isclass(cls)):
        for example in finder.find(found, module=False, globs=dict(vars(module))):
            runner.run(example)
    assert 0 == runner.failures
    assert runner.tries


def _run_command(words: list[str]) -> None:
    if words[0] == "ringfeed":
        assert main(words[1:]) == 0, words
    else:
        subprocess.run(words, check=True)


def _check_session(text: str, namespace: dict[str, Any], document: Path, line: int) -> None:
    session = doctest.DocTestParser().get_doctest(text, namespace, document.name, None, line)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=_FLAGS).run(session, out=report.append, clear_globs=False)
    assert [] == report
