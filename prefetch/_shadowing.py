"""A checkout in the working directory, which Python imports in place of what is installed.

Python looks for modules first where a program was started, and a checkout has the packages there,
mostly without the C extension, and perhaps of another version. That is said, not left to be found.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

from prefetch._errors.classes import PrefetchWarning

HERE = Path(__file__).resolve().parent.parent
"""The folder that this package is in, beside `memory`."""


def is_checkout() -> bool:
    """Return whether this package was imported from a checkout, installed as editable or not."""
    return (HERE / "pyproject.toml").is_file()


def hidden_folder() -> Path | None:
    """Return the folder with the packages that this one hides since the program was started here.

    None where there are none, or this one is where the user wants it, as by PYTHONPATH.
    """
    if sys.flags.safe_path or not is_checkout():
        return None
    try:
        folders = [Path(entry).resolve() for entry in sys.path]
    except OSError:  # the working directory has been removed
        return None
    if folders[:1] != [HERE]:
        return None
    return next((one for one in folders if one != HERE and _has_packages(one)), None)


def warn_of_hidden() -> None:
    """Warn, at the place of the import, where the package hides another one."""
    hidden = hidden_folder()
    if hidden is not None:
        warnings.warn(
            f"prefetch is imported from {HERE}, where Python was started, in place of the one "
            f"that is installed in {hidden}: for that one start elsewhere, or with python -P; to "
            f"work with this one, install it: python -m pip install --editable {HERE}",
            PrefetchWarning,
            stacklevel=3,
        )


def _has_packages(folder: Path) -> bool:
    return all(os.path.isfile(folder / name / "py.typed") for name in ("memory", "prefetch"))  # noqa: PTH113 - a name too long is no error
