"""The distributions, built once from a copy of the checkout, and where the checkout is."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import DEADLINE_S

from make_digits import make_digits

CHECKOUT = Path(__file__).resolve().parents[2]
_NOT_SOURCES = shutil.ignore_patterns(
    ".git",
    ".venv*",
    ".*_cache",
    "_c*.so",
    ".hypothesis",
    "__pycache__",
    "*.egg-info",
    "build",
    "dist",
    "data",
)


@dataclass(frozen=True)
class Distribution:
    """What was built.

    Attributes:
        checkout: The copy that it was built from, in which the extension is not.
        wheel: The wheel.
        sdist: The source archive.
        installed: A folder with the wheel's content, as pip lays it.
    """

    checkout: Path
    wheel: Path
    sdist: Path
    installed: Path


@pytest.fixture(autouse=True)
def _unhurried_surveys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a survey look at all of its sample, however long the machine stands still meanwhile."""
    monkeypatch.setattr("prefetch._tools.survey.SAMPLING_S", 600.0)


@pytest.fixture(scope="session")
def checkout() -> Path:
    return CHECKOUT


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the database of digits; whoever changes it takes a copy."""
    folder = tmp_path_factory.mktemp("data") / "digits_lmdb"
    assert make_digits(folder)
    return folder


@pytest.fixture(scope="session")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    """Build from a copy, since setuptools writes build/ and *.egg-info beside its sources."""
    folder = tmp_path_factory.mktemp("distribution")
    copy = folder / "checkout"
    shutil.copytree(CHECKOUT, copy, ignore=_NOT_SOURCES)
    dist = folder / "dist"
    dist.mkdir()
    for build in ("build_sdist", "build_wheel"):
        code = f"import sys; from setuptools.build_meta import {build} as build; build(sys.argv[1])"
        subprocess.run(
            [sys.executable, "-c", code, str(dist)],
            cwd=copy,
            check=True,
            capture_output=True,
            timeout=DEADLINE_S,
        )
    (wheel,) = dist.glob("*.whl")
    (sdist,) = dist.glob("*.tar.gz")
    installed = folder / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command = [*pip, "--target", str(installed), str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
    return Distribution(copy, wheel, sdist, installed)


@pytest.fixture(scope="session")
def wheel_files(distribution: Distribution) -> list[str]:
    with zipfile.ZipFile(distribution.wheel) as archive:
        return sorted(archive.namelist())
