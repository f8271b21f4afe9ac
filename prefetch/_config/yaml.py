"""YAML of version 1.2 as plain values, with the line of every key.

ruamel.yaml scans, parses and tells ``1e-3`` from text; the values of its events are made here:
numbers are numbers, ``off`` and ``yes`` are text, a key given twice is a fault, and what could
build objects or blow a small file up to gigabytes (tags, aliases) is refused. Events come one by
one, so that every such fault of a file is reported, not the first alone.
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from ruamel.yaml.nodes import ScalarNode

from prefetch._config.faults import join_path
from prefetch._config.option_types import MOST_DEPTH
from prefetch._errors.classes import ConfigError, ConfigFault
from prefetch._files.input import read_text

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

# ruamel.yaml reads 100 kB a second, and a list of two thousand databases is shorter.
_MOST_BYTES = 1 << 18
_LONGEST_NAME = 1024  # as YAML itself has it of a name on one line with its value
_UNREADABLE_CHARACTER = re.compile(
    r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
_WIDE_MARKS = (
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
# What to do about it, by what ruamel.yaml says.
_CURES = {
    "could not find expected ':'": (
        "write a colon and a space after each name, as in batch_size: 64"
    ),
    "mapping values are not allowed here": (
        "put text that holds a colon and a space in quotes, and begin options of one group in the "
        "same column"
    ),
    "found character '\\t' that cannot start any token": "indent with spaces",
    "found unexpected end of stream": "a quote or bracket is not closed",
}
_BASES = {"0x": 16, "0o": 8, "0b": 2}


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One YAML file that holds a mapping.

    Attributes:
        values: The mapping; of a key given twice the first value, without refused values.
        lines: Line of every key, counted from 1, by its dotted name.
        faults: Keys given twice and values refused, in the order of the file.
    """

    values: dict[str, Any]
    lines: dict[str, int]
    faults: tuple[ConfigFault, ...]


def read_yaml(path: Path) -> YamlDocument:
    """Read a YAML file that holds one mapping, or nothing.

    Raises:
        ConfigError: The file is no YAML or no mapping; it names the line and the column.
        OSError: The file cannot be read.
    """
    try:
        # Closed here and not by a finalizer, which would swallow Ctrl-C.
        text = read_text(path, encoding="utf-8", most_bytes=_MOST_BYTES)
        if found := _UNREADABLE_CHARACTER.search(text.removeprefix("\ufeff")):
            line, message = _unreadable_character(text, found)
        else:
            with closing(_Reader(text)) as reader:
                return reader.document()
    except _UnreadableError as error:
        line, message = error.line, str(error)
    except UnicodeDecodeError as error:
        line, message = None, _not_utf8(error)
    except MarkedYAMLError as error:
        line, message = _explain(error)
    except YAMLError as error:
        line, message = None, " ".join(str(error).split())
    raise ConfigError(str(path), (ConfigFault("", message, line),))


def _unreadable_character(text: str, found: re.Match[str]) -> tuple[int | None, str]:
    if found[0] == "\0" and 3 * text.count("\0") >= len(text):
        return None, _wide("UTF-16" if 2 * text.count("\0") <= len(text) else "UTF-32")
    line = text.count("\n", 0, found.start()) + 1
    name = {"\0": "NUL", "\x1a": "Ctrl-Z"}.get(found[0], f"U+{ord(found[0]):04X}")
    return line, f"found the unacceptable character {name}, which no YAML file may hold; remove it"


def _not_utf8(error: UnicodeDecodeError) -> str:
    content = bytes(error.object)
    encoding = next((name for mark, name in _WIDE_MARKS if content.startswith(mark)), None)
    if encoding is not None:
        return _wide(encoding)
    line = content.count(b"\n", 0, error.start) + 1
    return f"expected UTF-8 text, found byte {content[error.start]:#04x} in line {line}"


def _wide(encoding: str) -> str:
    return (
        f"the file is {encoding}, and UTF-8 is read here; write it anew: "
        f"iconv -f {encoding} -t UTF-8 OLD > NEW"
    )


def _explain(error: MarkedYAMLError) -> tuple[int | None, str]:
    """Return the line and the message of an error of ruamel.yaml's."""
    mark = error.problem_mark or error.context_mark
    if error.context == "while scanning a simple key":
        mark = error.context_mark  # the other one is where the next line begins
    line = None if mark is None else mark.line + 1
    column = "" if mark is None else f"column {mark.column + 1}: "
    message = column + ", ".join(part for part in (error.context, error.problem) if part)
    cure = _CURES.get(error.problem or "")
    return line, message if cure is None else f"{message}; {cure}"


class _UnreadableError(Exception):
    def __init__(self, message: str, event: Event) -> None:
        super().__init__(message)
        self.line = _line(event)


def _line(event: Event) -> int:
    return int(event.start_mark.line) + 1


class _Refused:
    """Stands for a value that is a fault by itself, and is left out."""


_REFUSED = _Refused()


class _Reader:
    """Builds the values of one document from its events."""

    def __init__(self, text: str) -> None:
        yaml = YAML(typ="safe", pure=True)
        self._events: Generator[Event, None, None] = yaml.parse(text)
        self._resolver = yaml.resolver
        self._lines: dict[str, int] = {}
        self._faults: list[ConfigFault] = []

    def close(self) -> None:
        """End the parsing."""
        self._events.close()

    def document(self) -> YamlDocument:
        next(self._events)  # the start of the stream
        values: Any = None
        event = next(self._events)
        if isinstance(event, DocumentStartEvent):
            if event.version not in {None, (1, 2)}:
                raise _UnreadableError("expected YAML 1.2; leave the %YAML line out", event)
            root = next(self._events)
            values = self._value(root, ())
            if not isinstance(values, dict | _Refused) and values is not None:
                raise _UnreadableError(
                    "expected a mapping of options, as in batch_size: 64 (with a space after the "
                    "colon)",
                    root,
                )
            next(self._events)  # the end of the document
            event = next(self._events)
        if not isinstance(event, StreamEndEvent):
            raise _UnreadableError("expected one document, found a second", event)
        options = values if isinstance(values, dict) else {}
        return YamlDocument(options, self._lines, tuple(self._faults))

    def _value(self, event: Event, path: tuple[str | int, ...]) -> Any:
        if len(path) > MOST_DEPTH:
            raise _UnreadableError(f"nested more than {MOST_DEPTH} deep", event)
        if isinstance(event, AliasEvent):
            self._refuse(
                path, event, f"the alias *{event.anchor} is not followed; repeat the value"
            )
            return _REFUSED
        value: Any
        tag = getattr(event, "tag", None)
        match event:
            case MappingStartEvent():
                value = self._mapping(path)
            case SequenceStartEvent():
                value = self._sequence(path)
            case _:
                value = self._scalar(event)
        if tag is not None:
            self._refuse(path, event, f"the tag {tag} is not read; write the plain value")
            return _REFUSED
        return value

    def _mapping(self, path: tuple[str | int, ...]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            if not isinstance(event, ScalarEvent):
                raise _UnreadableError("expected the name of an option", event)
            name = str(event.value)
            if len(name) > _LONGEST_NAME:
                raise _UnreadableError(
                    f"the name of an option cannot have {len(name)} characters", event
                )
            inner = (*path, name)
            key = join_path(inner)
            first = self._lines.get(key)
            if first is None:
                self._lines[key] = _line(event)
                value = self._value(next(self._events), inner)
                if value is not _REFUSED:
                    values[name] = value
            else:
                self._refuse(inner, event, f"given twice; the first is on line {first}")
                self._value(next(self._events), inner)
        return values

    def _sequence(self, path: tuple[str | int, ...]) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            inner = (*path, len(values))
            self._lines[join_path(inner)] = _line(event)
            values.append(self._value(event, inner))
        return [value for value in values if value is not _REFUSED]

    def _scalar(self, event: Any) -> Any:
        text = str(event.value)
        tag = str(self._resolver.resolve(ScalarNode, text, event.implicit))
        try:
            match tag.rpartition(":")[2]:
                case "null":
                    return None
                case "bool":
                    return text.lower() == "true"
                case "int":
                    return _integer(text)
                case "float":
                    # Infinity and not-a-number are spelled .inf and .nan here.
                    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            # What only looks like a number, such as 1_ or a thousand digits, stays text.
            pass
        return text

    def _refuse(self, path: tuple[str | int, ...], event: Event, message: str) -> None:
        self._faults.append(ConfigFault(join_path(path), message, _line(event)))


def _integer(text: str) -> int:
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    base = _BASES.get(digits[:2], 10)
    return sign * int(digits if base == 10 else digits[2:], base)
