"""What stands twice, in C and in Python, is the same; and all of the C is built."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import setuptools  # type: ignore[import-untyped]  # it has no stubs here

from prefetch._kernels.contract import ENCODED, Recipe, Recoding
from prefetch._plan.random_words import NUM_WORDS, Word
from prefetch._record.faults import Reason

if TYPE_CHECKING:
    import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
NATIVE = CHECKOUT / "prefetch" / "_kernels" / "native"


def members(file: str, enum: str) -> dict[str, int]:
    """Return the members of an enumeration in a C file, with their values."""
    (body,) = re.findall(rf"enum {enum} {{(.*?)}}", (NATIVE / file).read_text(), re.DOTALL)
    values: dict[str, int] = {}
    for name, value in re.findall(r"(\w+)(?: = (\d+))?(?=,|\s|$)", re.sub(r"/\*.*?\*/", "", body)):
        values[name] = int(value) if value else max(values.values(), default=-1) + 1
    return values


def test_every_c_file_is_compiled_and_every_header_triggers_a_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", found.update)
    script = CHECKOUT / "setup.py"
    monkeypatch.chdir("/")  # it does not depend on where it is run
    exec(compile(script.read_text(), script, "exec"), {"__file__": str(script)})  # noqa: S102
    (extension,) = found["ext_modules"]
    paths = {path.relative_to(CHECKOUT).as_posix() for path in NATIVE.iterdir()}
    assert sorted(extension.sources) == sorted(path for path in paths if path.endswith(".c"))
    assert sorted(extension.depends) == sorted(path for path in paths if path.endswith(".h"))
    assert len(paths) == len(extension.sources) + len(extension.depends)


def test_c_reads_the_fields_of_a_recipe_in_their_order() -> None:
    *fields, count = members("py_arguments.c", "recipe_field")
    assert list(Recipe._fields) == [name.lower() for name in fields]
    assert count == "NUM_RECIPE_FIELDS"


def test_c_and_python_number_the_reasons_alike() -> None:
    reasons = members("kernels.h", "reason")
    assert ENCODED == reasons.pop("ENCODED")
    del reasons["OUT_OF_MEMORY"]
    assert reasons.items() <= {reason.name: reason.value for reason in Reason}.items()


def test_c_and_python_number_the_random_words_alike() -> None:
    words = members("kernels.h", "word")
    assert words.pop("NUM_WORDS") == NUM_WORDS
    assert words == {f"{word.name}_WORD": word.value for word in Word}


def test_c_and_python_number_why_a_jpeg_gets_no_restart_markers_alike() -> None:
    outcomes = members("jpeg_coefficients.h", "recoding")
    del outcomes["RECODED"], outcomes["NO_RECODING_MEMORY"]
    assert outcomes == {reason.name: reason.value for reason in Recoding}
