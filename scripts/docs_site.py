"""What ``make docs`` adds to docs/: hooks of mkdocs for the reference, and for what lies beside it.

README.md, which becomes the first page, CONTRIBUTING.md and their like are written for the
checkout. Their links, and those that lead out of docs/, are turned into links within the site; one
to a file that is no page of it, such as a test, becomes the file's name.
"""

from __future__ import annotations

import ast
import logging
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent

BESIDE_DOCS: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
    "LICENSE": "LICENSE.txt",
    "configs": "configs.md",
}
"""Paths in the checkout, and what they are in the site."""

OF_GENERATED_CODE: Final = "    options: {show_if_no_docstring: true, summary: false}\n"

_LINK: Final = re.compile(
    r"\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
)
_log = logging.getLogger("mkdocs.hooks.docs_site")


def on_config(config: MkDocsConfig) -> None:
    """List the pages that come by themselves: the reference's, and those of docs/design."""
    sections: dict[str, list[str]] = {}
    for entry in config.nav or []:
        if isinstance(entry, dict):
            sections |= entry
    sections["Reference"] += [_reference(module) for module in public_modules()]
    sections["Inside"] += ["design/README.md"]
    designs = sorted((ROOT / "docs" / "design").glob("0*.md"))
    sections["Inside"] += [f"design/{path.name}" for path in designs]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that do not lie in docs/."""
    for path, uri in BESIDE_DOCS.items():
        beside = ROOT / path
        text = _configurations(beside) if beside.is_dir() else beside.read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=text))
    for module in public_modules():
        options = OF_GENERATED_CODE if module == "prefetch.caffe" else ""
        text = f"# {module}\n\n::: {module}\n{options}"
        files.append(File.generated(config, _reference(module), content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of a page into links within the site."""
    del config
    in_checkout = {uri: path for path, uri in BESIDE_DOCS.items()}
    here = in_checkout.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def link(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), found["path"]))
        uri = BESIDE_DOCS.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(uri) is None and (ROOT / path).exists():
            return found["text"]
        start = posixpath.dirname(page.file.src_uri)
        return f"[{found['text']}]({posixpath.relpath(uri, start)}{found['anchor'] or ''})"

    return _LINK.sub(link, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Take a docstring's reStructuredText for what it is: roles, and ``::`` before code."""
    del page, config, files
    html = re.sub(r":(?:mod|class|func|meth|attr|exc|data):(?=<code>)", "", html)
    html = html.replace("<p>::</p>", "")
    return re.sub(r'::</p>(?=\s*<div class="[^"]*highlight)', ":</p>", html)


def on_post_build(config: MkDocsConfig) -> None:
    """Warn, which ends a strict build, of public names that the reference does not have."""
    for module, names in public_modules().items():
        page = Path(config.site_dir) / _reference(module).replace(".md", ".html")
        found = set(re.findall(r'id="([^"]+)"', page.read_text(encoding="utf-8")))
        for name in names:
            if f"{module}.{name}" not in found:
                _log.warning("%s is public, and has no docstring for the reference", name)


def public_modules() -> dict[str, list[str]]:
    """Return the modules that people import: those with an ``__all__``; prefetch comes first."""
    return {name: names for folder in ("prefetch", "memory") for name, names in _modules(folder)}


def _modules(folder: str) -> Iterator[tuple[str, list[str]]]:
    for path in sorted((ROOT / folder).glob("*.py")):
        if path.stem.startswith("_") and path.stem != "__init__":
            continue
        module = folder if path.stem == "__init__" else f"{folder}.{path.stem}"
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                yield module, ast.literal_eval(node.value)


def _reference(module: str) -> str:
    return f"reference/{module.replace('.', '-')}.md"


def _configurations(folder: Path) -> str:
    """Return the page of the configurations to copy."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml"))}
    parts = [f"\n## {name}\n\n```yaml\n{text}```\n" for name, text in texts.items()]
    return "".join(["# Configurations to copy\n", *parts])
