"""What is in the wheel and the sdist, and that the wheel works away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from email.parser import Parser
from typing import TYPE_CHECKING

from processes import DEADLINE_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.packaging.conftest import Distribution

_READ_A_BATCH = """
import sys
sys.path.insert(0, sys.argv[1])
import memory, prefetch, prefetch.caffe, prefetch.testing
assert memory.__file__.startswith(sys.argv[1]), memory.__file__
assert prefetch.__file__.startswith(sys.argv[1]), prefetch.__file__
import ringfeed
assert ringfeed.open is prefetch.open
with prefetch.testing.example_database(num_records=5) as source:
    with prefetch.open({"source": source, "batch_size": 5, "device": "simulated"}) as feed:
        print(*[batch.label.numpy().tolist() for batch in feed])
"""


def _metadata(distribution: Distribution) -> dict[str, list[str]]:
    (path,) = distribution.installed.glob("ringfeed-*.dist-info/METADATA")
    message = Parser().parsestr(path.read_text(encoding="utf-8"))
    return {name: message.get_all(name, []) for name in set(message)}


def test_the_wheel_s_top_level_is_the_packages_the_command_and_the_metadata(
    wheel_files: list[str], distribution: Distribution
) -> None:
    version = _metadata(distribution)["Version"][0]
    packages = {"memory", "prefetch", "ringfeed"}
    expected = {*packages, "ringfeed_cli.py", f"ringfeed-{version}.dist-info"}
    assert expected == {name.partition("/")[0] for name in wheel_files}


def test_the_wheel_holds_every_module_of_the_packages(
    wheel_files: list[str], checkout: Path
) -> None:
    modules = {
        path.relative_to(checkout).as_posix()
        for package in ("memory", "prefetch", "ringfeed")
        for path in (checkout / package).rglob("*.py*")
        if path.suffix in {".py", ".pyi"} and "__pycache__" not in path.parts
    }
    assert modules <= set(wheel_files)


def test_the_wheel_is_marked_as_typed(wheel_files: list[str]) -> None:
    typed = {f"{package}/py.typed" for package in ("memory", "prefetch", "ringfeed")}
    assert typed <= set(wheel_files)


def test_the_wheel_is_under_the_apache_licence_and_holds_its_text(
    distribution: Distribution, checkout: Path
) -> None:
    metadata = _metadata(distribution)
    (licence,) = distribution.installed.glob("ringfeed-*.dist-info/licenses/LICENSE")
    assert ["Apache-2.0"] == metadata["License-Expression"]
    assert (checkout / "LICENSE").read_bytes() == licence.read_bytes()


def test_the_sdist_holds_what_a_checkout_does(distribution: Distribution) -> None:
    with tarfile.open(distribution.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "CHANGELOG.md",
        "LICENSE",
        "Makefile",
        "README.md",
        "configs/digits.yaml",
        "docs/pipeline.svg",
        "proto/caffe_data.proto",
        "scripts/demo.py",
        "tests/packaging/test_wheel.py",
    } <= names


def test_the_wheel_works_installed_away_from_the_checkout(
    distribution: Distribution, tmp_path: Path
) -> None:
    run = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", _READ_A_BATCH, str(distribution.installed)],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert (0, "[0, 1, 2, 3, 4]\n", "") == (run.returncode, run.stdout, run.stderr)
