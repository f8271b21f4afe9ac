"""A feed touches the files that its configuration names, and nothing of what its records say.

Looked at from outside: Python reports what it opens, runs and connects to, to an audit hook.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import ruamel.yaml

from prefetch.testing import fingerprinted_images, write_database

_PROGRAM = """
    import json, sys
    import prefetch

    def run(config):
        with prefetch.open(config) as feed:
            feed.load_state_dict(json.loads(json.dumps(feed.state_dict())))
            return sum(len(batch) for batch in feed)

    def note(event, arguments):
        if event == "open" and isinstance(arguments[0], int):
            return  # a descriptor, which was opened before
        if event == "open" or event.partition(".")[0] in modules:
            touched.append([event, str(arguments[0]) if arguments else ""])

    modules = {"os", "shutil", "socket", "subprocess", "pickle", "ctypes", "exec", "import"}
    run(sys.argv[1])  # whatever is imported late
    touched = []
    sys.addaudithook(note)
    assert run(sys.argv[2]) == 12
    print(json.dumps(touched))
"""


class _Command:
    """What runs a command where it is unpickled."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> Any:
        return (print, (self._command,))


def _configuration(folder: Path, records: list[tuple[bytes, bytes]]) -> Path:
    write_database(folder / "db", records)
    np.save(folder / "mean.npy", np.zeros((3, 8, 8), np.float32))
    config = folder / "feed.yaml"
    config.write_text(
        "source: db\n"
        "shuffle: true\n"
        "on_bad_record: quarantine\n"
        "quarantine: aside\n"
        "transform: {mean_file: mean.npy}\n"
    )
    return config


def test_hostile_records_lead_to_no_file_and_run_nothing(tmp_path: Path) -> None:
    good = list(fingerprinted_images(8))
    target = tmp_path / "target"
    hostile = [
        (b"../target", b"\xff"),
        (str(target).encode(), b"!!python/object/apply:os.system ['touch target']"),
        (b"\0/etc/passwd", pickle.dumps(_Command("it ran"))),
        (b"a" * 500, b"/etc/passwd"),
    ]
    configs = []
    for name in ("warm", "looked_at"):
        (tmp_path / name).mkdir()
        configs.append(_configuration(tmp_path / name, [*good, *hostile]))
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(_PROGRAM), *map(str, configs)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    touched = json.loads(done.stdout)
    assert len(touched) > 0
    config = tmp_path / "looked_at"
    named = [config / name for name in ("db", "mean.npy", "feed.yaml", "aside")]
    named.append(Path(ruamel.yaml.__file__).parent)  # it looks for plug-ins beside itself
    # What the system says of this process's limits of memory and processors.
    named += map(Path, ("/proc/self", "/proc/meminfo", "/sys/fs/cgroup"))
    for event, argument in touched:
        path = Path(argument)
        made_whole = {"os.link", "os.remove"} if path.parent == config / "aside" else set()
        assert event in {"open", "os.listdir", "os.mkdir", "os.scandir"} | made_whole
        is_named = any(path == allowed or allowed in path.parents for allowed in named)
        assert is_named or (event, path) == ("os.mkdir", config), (event, argument)
    aside = [tmp_path / name / "aside" for name in ("warm", "looked_at")]
    names = ("data.mdb", "lock.mdb", "ringfeed-quarantine")
    made = [*aside, *(folder / name for folder in aside for name in names)]
    assert sorted(tmp_path.rglob("*")) == sorted([*before, *made])
