"""The command as people start it: every example of its help and of its guide works."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from processes import DEADLINE_S, environment

from prefetch.cli import main

if TYPE_CHECKING:
    from tests.packaging.conftest import Distribution

_CHECKOUT = Path(__file__).resolve().parents[2]
_GUIDE = _CHECKOUT / "docs" / "guide" / "command-line.md"
_COMMANDS = (
    "convert",
    "mean",
    "inspect",
    "get",
    "export",
    "merge",
    "split",
    "reencode",
    "labels",
    "show",
    "check",
    "schema",
    "from-prototxt",
    "bench",
)
_CONVERTING = _CHECKOUT / "docs" / "guide" / "converting.md"
_BLOCK = re.compile(
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


@pytest.fixture
def workplace(tmp_path: Path, digits: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with everything that the examples name."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(_CHECKOUT / "configs", "configs")
    for name in ("digits_lmdb", "more_digits_lmdb"):
        shutil.copytree(digits, f"data/{name}")
    Path("new_labels.txt").write_text("00000000 9\n00000001 8\n", encoding="utf-8")
    Path("names.txt").write_text("zero\none\ntwo\n", encoding="utf-8")
    for block in _BLOCK.finditer(_GUIDE.read_text(encoding="utf-8")):
        if block["title"]:
            Path(block["title"]).write_text(block["text"], encoding="utf-8")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 12, 10, 3), np.uint8)
    listed = []
    for number, image in enumerate(images):
        for folder in ("photos", f"classes/class{number % 2}"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            cv2.imwrite(f"{folder}/{number}.jpg", image)
        listed.append(f"{number}.jpg {number % 2}\n")
    Path("photos.txt").write_text("".join(listed), encoding="utf-8")
    np.save("images.npy", images)
    np.save("labels.npy", np.arange(6))
    header = struct.pack(">4I", 2051, 6, 12, 10)
    Path("train-images-idx3-ubyte").write_bytes(header + images[..., 0].tobytes())
    Path("train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, 6) + bytes(6))
    for number in range(1, 6):
        Path(f"data_batch_{number}.bin").write_bytes(bytes(3073))
    return tmp_path


def run(line: str) -> int:
    """Run a line as a shell would, its output into a file where it says so."""
    line = re.sub(r"(\S*)\{1\.\.5\}(\S*)", _counted_out, line)
    words = shlex.split(line, comments=True)
    assert "ringfeed" == words.pop(0)
    if ">" not in words:
        return main(words)
    *words, _, name = words
    with Path(name).open("w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        return main(words)


def _counted_out(braces: re.Match[str]) -> str:
    return " ".join(f"{braces[1]}{number}{braces[2]}" for number in range(1, 6))


@pytest.mark.parametrize("command", _COMMANDS)
@pytest.mark.usefixtures("workplace")
def test_every_example_of_a_command_s_help_works(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main([command, "--help"])
    examples = re.findall(r"^ +(ringfeed .+)$", capsys.readouterr().out, re.MULTILINE)
    assert examples
    for line in examples:
        quick = f"{line} --seconds 0.01 --consumer-ms 0.1" if command == "bench" else line
        assert 0 == run(quick), line
        assert line.split()[1] == command


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    listed = capsys.readouterr().out.partition("Commands:")[2]
    assert list(_COMMANDS) == re.findall(r"^  (\S+) ", listed.partition("\n\n")[0], re.MULTILINE)


@pytest.mark.parametrize("guide", [_GUIDE, _CONVERTING], ids=lambda path: path.stem)
@pytest.mark.usefixtures("workplace")
def test_every_command_of_a_guide_works(guide: Path) -> None:
    text = guide.read_text(encoding="utf-8")
    blocks = [block["text"] for block in _BLOCK.finditer(text) if block["language"] == "sh"]
    lines = [line for block in blocks for line in block.splitlines() if line]
    assert len(lines) > 5
    for line in lines:
        quick = f"{line} --seconds 0.01 --consumer-ms 0.1" if " bench " in line else line
        assert 0 == run(quick), line


@pytest.mark.usefixtures("workplace")
def test_what_the_guide_shows_of_a_report_is_what_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert 0 == main(["inspect", "data/digits_lmdb"])
    out = capsys.readouterr().out
    text = _GUIDE.read_text(encoding="utf-8")
    (shown,) = [block["text"] for block in _BLOCK.finditer(text) if block["language"] == "text"]
    expected = [line for line in shown.splitlines() if line.strip() not in {"...", ""}]
    printed = out.splitlines()
    assert [] == [line for line in expected[1:] if line not in printed]


def test_it_starts_as_a_module(digits: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "prefetch.cli", "inspect", str(digits), "--json"],
        cwd=_CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert (0, "") == (ended.returncode, ended.stderr)
    assert '"num_records": 1797' in ended.stdout


def test_no_script_hides_a_module_of_python() -> None:
    scripts = {path.stem for path in (_CHECKOUT / "scripts").glob("*.py")}
    assert set() == scripts & sys.stdlib_module_names


def test_a_reader_that_has_enough_ends_it_quietly(digits: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m prefetch.cli schema | true"
    ended = subprocess.run(
        ["bash", "-c", command],
        cwd=_CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert "" == ended.stderr


def test_ctrl_c_ends_it_with_130(digits: Path, tmp_path: Path) -> None:
    (tmp_path / "feed.yaml").write_text(f"source: {digits}\n", encoding="utf-8")
    code = (
        "import signal, sys, prefetch._tools.survey as inspecting\n"
        "inspecting.survey_database = lambda *a, **k: signal.raise_signal(signal.SIGINT)\n"
        "from prefetch.cli import main\n"
        "sys.exit(main(['inspect', sys.argv[1]]))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(digits)],
        cwd=_CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert (130, "") == (ended.returncode, ended.stdout)
    assert "Traceback" not in ended.stderr


_STARTS: dict[str, list[str]] = {
    "command": ["ringfeed"],
    "module": ["-m", "prefetch.cli"],
}


def _interrupted_at_import_of(
    module: str, start: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Start the command, where Ctrl-C comes as a module is imported."""
    (folder / f"{module}.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)\n"
    )
    # As pip writes it.
    (folder / "ringfeed").write_text(
        "import sys\nfrom ringfeed_cli import main\nsys.exit(main())\n"
    )
    search = os.pathsep.join([str(folder), str(_CHECKOUT)])
    return subprocess.run(
        [sys.executable, *_STARTS[start], "inspect", "nowhere"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("start", "module"),
    [
        *[("command", module) for module in ("logging", "numpy", "lmdb", "typer")],
        ("module", "typer"),
    ],
)
def test_ctrl_c_while_it_is_imported_ends_it_without_a_word(
    start: str, module: str, tmp_path: Path
) -> None:
    """It comes as one of the modules is imported, of which the first are the library's own."""
    ended = _interrupted_at_import_of(module, start, tmp_path)
    assert ("", "") == (ended.stdout, ended.stderr)
    assert ended.returncode == -signal.SIGINT


@pytest.mark.parametrize("module", ["logging", "numpy", "lmdb"])
def test_ctrl_c_while_python_imports_the_library_for_a_module_ends_it_too(
    module: str, tmp_path: Path
) -> None:
    """With -m Python imports the package before any code of the command: it shows a traceback."""
    ended = _interrupted_at_import_of(module, "module", tmp_path)
    assert (-signal.SIGINT, "") == (ended.returncode, ended.stdout)
    assert "KeyboardInterrupt" == ended.stderr.splitlines()[-1]


def test_the_tests_of_ctrl_c_pass_where_a_shell_has_it_ignored() -> None:
    """As in its background."""
    chosen = f"{Path(__file__)} -k test_ctrl_c_ends_it_with_130"
    command = f"trap '' INT; exec {shlex.quote(sys.executable)} -m pytest -q {chosen}"
    ended = subprocess.run(
        ["bash", "-c", command],
        cwd=_CHECKOUT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout


@pytest.mark.parametrize("handler", ["SIG_IGN", "SIG_DFL", "default_int_handler"])
def test_what_ctrl_c_was_to_do_before_it_starts_it_does_again(handler: str, tmp_path: Path) -> None:
    """A shell's background commands ignore it."""
    (tmp_path / "ringfeed").write_text(
        "import signal\n"
        f"signal.signal(signal.SIGINT, signal.{handler})\n"
        "import ringfeed_cli\n"
        f"assert signal.getsignal(signal.SIGINT) is signal.{handler}\n"
        "assert 0 == ringfeed_cli.main()\n"
        f"assert signal.getsignal(signal.SIGINT) is signal.{handler}\n"
    )
    subprocess.run(
        [sys.executable, str(tmp_path / "ringfeed"), "--version"],
        env=os.environ | {"PYTHONPATH": str(_CHECKOUT)},
        check=True,
        timeout=60,
    )


def test_importing_the_library_leaves_ctrl_c_to_its_program() -> None:
    code = (
        "import signal, prefetch, prefetch.cli\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "prefetch.cli.main(['--version'])\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=_CHECKOUT, check=True, timeout=60)


def test_importing_the_library_does_not_bring_the_command_along() -> None:
    code = "import sys, prefetch; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=_CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    )
    assert set() == {"typer", "rich", "cv2", "prefetch.cli"} & set(ended.stdout.split())


def test_the_installed_command_is_ringfeed(distribution: Distribution) -> None:
    (found,) = [
        entry
        for installed in importlib.metadata.distributions(
            name="ringfeed", path=[str(distribution.installed)]
        )
        for entry in installed.entry_points
        if entry.group == "console_scripts"
    ]
    assert ("ringfeed", "ringfeed_cli:main") == (found.name, found.value)
