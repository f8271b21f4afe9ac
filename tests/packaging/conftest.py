"""The distributions, built once from a copy of the checkout, and where the checkout is."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
_NOT_SOURCES = shutil.ignore_patterns(
    ".git",
    ".venv*",
    ".*_cache",
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
        wheel: The wheel.
        sdist: The source archive.
        installed: A folder with the wheel's content, as pip lays it.
    """

    wheel: Path
    sdist: Path
    installed: Path


@pytest.fixture(scope="session")
def checkout() -> Path:
    return CHECKOUT


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
            [sys.executable, "-c", code, str(dist)], cwd=copy, check=True, capture_output=True
        )
    (wheel,) = dist.glob("*.whl")
    (sdist,) = dist.glob("*.tar.gz")
    installed = folder / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(installed), str(wheel)], check=True, capture_output=True)
    return Distribution(wheel, sdist, installed)


@pytest.fixture(scope="session")
def wheel_files(distribution: Distribution) -> list[str]:
    with zipfile.ZipFile(distribution.wheel) as archive:
        return sorted(archive.namelist())
