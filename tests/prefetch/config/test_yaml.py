"""YAML 1.2 as the configuration reads it: numbers, text, lines, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from prefetch import ConfigError, ConfigFault
from prefetch._config.yaml import YamlDocument, read_yaml

if TYPE_CHECKING:
    from pathlib import Path


def read(folder: Path, text: str | bytes) -> YamlDocument:
    path = folder / "feed.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_yaml(path)


def only_fault(folder: Path, text: str | bytes) -> ConfigFault:
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    assert caught.value.origin == str(folder / "feed.yaml")
    (fault,) = caught.value.faults
    return fault


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E+3", 1000.0),
        (".5", 0.5),
        ("-2.", -2.0),
        ("64", 64),
        ("+64", 64),
        ("-64", -64),
        ("010", 10),
        ("0x1F", 31),
        ("-0x1F", -31),
        ("0o17", 15),
        ("0b11", 3),
        ("1_000", 1000),
        ("18446744073709551615", 2**64 - 1),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("[1, [2.5, x]]", [1, [2.5, "x"]]),
        ("{b: 1}", {"b": 1}),
    ],
)
def test_plain_words_of_the_core_schema_become_values(
    tmp_path: Path, text: str, value: object
) -> None:
    read_value = read(tmp_path, f"a: {text}").values["a"]

    assert read_value == value
    assert type(read_value) is type(value)


@pytest.mark.parametrize(
    "text", ["off", "on", "yes", "no", "1:30", "2024-01-01", "1e", "0x", "=", "1" * 5000]
)
def test_words_that_only_older_yaml_took_for_more_are_text(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, f"a: {text}").values == {"a": text}


@pytest.mark.parametrize("text", ['"1e-3"', "'1e-3'"])
def test_a_quoted_number_is_text(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, f"a: {text}").values == {"a": "1e-3"}


def test_infinity_is_read_as_the_number_it_is(tmp_path: Path) -> None:
    assert read(tmp_path, "a: [.inf, -.Inf]").values == {"a": [float("inf"), -float("inf")]}


def test_lines_are_known_by_dotted_name(tmp_path: Path) -> None:
    document = read(
        tmp_path,
        "# a comment\nbatch_size: 64\n\ntransform:\n  crop_size: 5\n  mean_value: [1,\n    2]\n",
    )

    assert document.lines == {
        "batch_size": 2,
        "transform": 4,
        "transform.crop_size": 5,
        "transform.mean_value": 6,
        "transform.mean_value[0]": 6,
        "transform.mean_value[1]": 7,
    }


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n", "{}"])
def test_an_empty_file_is_an_empty_mapping(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == YamlDocument({}, {}, ())


def test_a_duplicate_key_is_a_fault_that_names_both_lines_and_the_first_value_stays(
    tmp_path: Path,
) -> None:
    document = read(tmp_path, "a: 1\nb: {c: 1, c: {d: 2}}\na: 2\n")

    assert document.values == {"a": 1, "b": {"c": 1}}
    assert document.faults == (
        ConfigFault("b.c", "given twice; the first is on line 2", 2),
        ConfigFault("a", "given twice; the first is on line 1", 3),
    )


@pytest.mark.parametrize(
    "value",
    ["!!python/object/apply:os.system [ls]", "!mine x", "!!str 5", "!!set {a, b}", "!!binary aGk="],
)
def test_a_tag_builds_no_object_and_is_a_fault(tmp_path: Path, value: str) -> None:
    document = read(tmp_path, f"a: 1\nb: {value}\nc: 2\n")

    assert document.values == {"a": 1, "c": 2}
    ((key, line),) = [(fault.key, fault.line) for fault in document.faults]
    assert (key, line) == ("b", 2)
    assert "tag" in document.faults[0].message


def test_an_alias_is_a_fault_so_that_none_can_multiply(tmp_path: Path) -> None:
    levels = "".join(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]\n" for n in range(1, 10))
    document = read(tmp_path, f"b0: &b0 [x]\n{levels}")

    assert document.values["b9"] == []
    assert len(document.faults) == 81
    assert document.faults[0] == ConfigFault(
        "b1[0]", "the alias *b0 is not followed; repeat the value", 2
    )


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: [1,\nb: 2", 2, "column 5: while parsing a flow sequence"),
        ("a: 1\n\tb: 1", 2, "column 1: while scanning"),
        ("a: b: c", 1, "column 5: mapping values are not allowed here"),
        ("- 1\n- 2", 1, "expected a mapping of options"),
        ("just words", 1, "expected a mapping of options"),
        ("? [1, 2]\n: 3", 1, "expected the name of an option"),
        ("a: 1\n---\nb: 1", 2, "expected one document"),
        ("%YAML 1.1\n---\na: off", 2, "expected YAML 1.2"),
        ("a: " + "[" * 30 + "]" * 30, 1, "nested more than 20 deep"),
        ("a: 1\nb: \x07", 2, "unacceptable character U+0007"),
        ("a: 1\nb: 2\n\x1a", 3, "unacceptable character Ctrl-Z"),
        ("a: 1\nb: 2\0", 2, "unacceptable character NUL"),
        (b"a: 1\nb: \xff", None, "expected UTF-8 text, found byte 0xff in line 2"),
        ("a: 1\n".encode("utf-16"), None, "the file is UTF-16, and UTF-8 is read here"),
        ("a: 1\n".encode("utf-16-le"), None, "iconv -f UTF-16 -t UTF-8 OLD > NEW"),
        ("a: 1\n".encode("utf-32"), None, "the file is UTF-32"),
        ("a: 1\nbatch_size:8\nb: 2\n", 2, "write a colon and a space after each name"),
        ("batch_size:8\n", 1, "with a space after the colon"),
        ("? " + "k" * 2000 + "\n: 1", 1, "the name of an option cannot have 2000 characters"),
    ],
)
def test_a_file_that_cannot_be_read_names_the_place_and_the_reason(
    tmp_path: Path, text: str | bytes, line: int | None, message: str
) -> None:
    fault = only_fault(tmp_path, text)

    assert fault.line == line
    assert message in fault.message


def test_a_file_too_large_for_a_configuration_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="has more than 262144 bytes: is it the right file"):
        read(tmp_path, "a: 1\n" * 60000)


def test_a_directive_for_this_very_version_is_fine(tmp_path: Path) -> None:
    assert read(tmp_path, "%YAML 1.2\n---\na: off").values == {"a": "off"}
