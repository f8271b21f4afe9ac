"""What scripts/make_venv.sh does, with an interpreter that only writes down how it was called."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from processes import DEADLINE_S

_SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "make_venv.sh"

# Makes an environment by copying itself there; fails to install where the file "offline" exists.
_PYTHON = """#!/bin/sh
echo "$@" >>calls
case "$*" in
--version) echo "Python 3.11.0" ;;
"-m venv --clear "*) mkdir -p "$4/bin" && rm -f "$4/.installed" && cp "$0" "$4/bin/python" ;;
*" install "*) [ ! -e offline ] ;;
esac
"""


class Place:
    """A folder like a checkout, with a space in its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "pyproject.toml").write_text("[project]\n")
        self.python = folder / "python"
        self.python.write_text(_PYTHON)
        self.python.chmod(0o755)

    def make(self, python: str = "./python") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", str(_SCRIPT), ".venv", python],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )

    def num_calls(self, what: str) -> int:
        calls = self.folder / "calls"
        text = calls.read_text() if calls.exists() else ""
        calls.unlink(missing_ok=True)
        return sum(what in line for line in text.splitlines())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "a checkout")


def test_an_environment_is_made_once(place: Place) -> None:
    assert 0 == place.make().returncode
    assert 1 == place.num_calls("-m venv")
    again = place.make()
    assert (0, "", 0) == (again.returncode, again.stdout, place.num_calls("-m"))


def test_a_changed_pyproject_is_installed_into_the_same_environment(place: Place) -> None:
    place.make()
    place.num_calls("")
    (place.folder / "pyproject.toml").write_text("[project]\nname = 'changed'\n")
    assert 0 == place.make().returncode
    calls = (place.folder / "calls").read_text()
    assert (False, True) == ("-m venv" in calls, "--group dev --editable" in calls)


def test_an_install_that_failed_is_made_anew(place: Place) -> None:
    (place.folder / "offline").touch()
    assert 0 != place.make().returncode
    (place.folder / "offline").unlink()
    place.num_calls("")
    assert 0 == place.make().returncode
    assert 1 == place.num_calls("-m venv --clear")


def test_a_copied_checkout_makes_its_own_environment(place: Place, tmp_path: Path) -> None:
    place.make()
    shutil.copytree(place.folder, tmp_path / "copy")
    copy = Place.__new__(Place)
    copy.folder = tmp_path / "copy"
    copy.num_calls("")
    assert 0 == copy.make().returncode
    assert 1 == copy.num_calls("-m venv --clear")


@pytest.mark.parametrize("shim", ["missing", "exit 127"])
def test_without_a_usable_python_a_sentence_says_what_to_install(place: Place, shim: str) -> None:
    if shim != "missing":
        place.python.write_text(f"#!/bin/sh\n{shim}\n")
    made = place.make(str(place.python) if shim != "missing" else "./no-such-python")
    assert 1 == made.returncode
    assert "Found no Python 3.11 or newer" in made.stderr
    assert "apt-get install python3" in made.stderr
    assert not (place.folder / ".venv").exists()


def test_every_release_that_is_supported_is_looked_for_by_its_name(
    place: Place, tmp_path: Path
) -> None:
    for release in ("3.14", "3.13", "3.12", "3.11"):
        (tmp_path / f"python{release}").write_text("#!/bin/sh\nexit 127\n")  # as a pyenv shim
        (tmp_path / f"python{release}").chmod(0o755)
    shutil.copy(place.python, tmp_path / "python3.14")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    made = subprocess.run(
        ["sh", str(_SCRIPT), ".venv"],
        cwd=place.folder,
        env=environment,
        check=False,
        timeout=DEADLINE_S,
    )
    assert 0 == made.returncode
    assert 1 == place.num_calls("-m venv --clear")
