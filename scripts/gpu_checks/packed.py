"""How gpu_check.py runs on a bare machine: from a checkout, and a folder packed elsewhere.

``scripts/pack_gpu_check.py`` makes the folder, ``build/gpu-check``. It is used where the library's
own needs are not installed, and nowhere else.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKED: Final = ROOT / "build" / "gpu-check"
EXTENSION: Final = "_c.abi3.so"


class NotPackedError(Exception):
    """What the check needs is neither installed nor packed; says what to do."""


def site_of(version: tuple[int, int]) -> Path:
    """Return the folder with what was packed for a version of Python."""
    return PACKED / "cp{}{}".format(*version)


def use_packed() -> None:
    """Let this process and its children find the checkout's packages and what they need.

    Raises:
        NotPackedError: Something is missing.
    """
    folders = [] if _is_installed("prefetch") else [ROOT]
    if not _is_installed("lmdb"):
        site = site_of(sys.version_info[:2])
        if not site.is_dir():
            version = "{}.{}".format(*sys.version_info[:2])
            raise NotPackedError(
                f"lmdb and other needs of the library are not installed, and {site} is not there: "
                f"pack them on a machine with a network (python scripts/pack_gpu_check.py "
                f"--python {version}) and bring the folder along"
            )
        folders.insert(0, site)
        _place_extension(site / EXTENSION)
    sys.path[:0] = map(str, folders)
    old = os.environ.get("PYTHONPATH")
    if folders:
        words = [*map(str, folders), *([old] if old else [])]
        os.environ["PYTHONPATH"] = os.pathsep.join(words)


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _place_extension(packed: Path) -> None:
    # The package finds its extension beside its modules only.
    place = ROOT / "prefetch" / "_kernels" / EXTENSION
    if not packed.exists() or (place.exists() and place.read_bytes() == packed.read_bytes()):
        return
    partial = place.with_name(f"{place.name}.{os.getpid()}")
    shutil.copyfile(packed, partial)
    partial.replace(place)
