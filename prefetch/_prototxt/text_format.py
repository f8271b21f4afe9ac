"""Where each field of a text-format message stands.

protobuf's parser gives the values of the fields that the schema knows. It gives neither their
lines, which belong into a message about one of them, nor the names of those it skipped, which
must not be ignored in silence. This scan is for text that the parser has accepted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_TOKEN = re.compile(
    r"""
      (?P<skipped> \s+ | \#[^\n]* | [;,] )
    | (?P<string>  "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
    | (?P<open>    [{<\[] )
    | (?P<close>   [}>\]] )
    | (?P<colon>   : )
    | (?P<word>    [^\s{}<>\[\]:;,"'#]+ )
    """,
    re.VERBOSE,
)


_LOOSE_SIGN = re.compile(
    r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#[^\n]*)|(?<![\w.])-((?:\s|\#[^\n]*\n)+)(?=[\w.])"""
)


@dataclass(slots=True)
class TextField:
    """One field as it is written.

    Attributes:
        name: Its name, known to the schema or not.
        line: Line of the name, counted from 1; in a list of messages, of each one's brace.
        text: What it is, as it is written, quotes included; the last part where there are several,
            and nothing for a message.
        fields: The fields inside, where it is a message.
    """

    name: str
    line: int
    text: str = ""
    fields: list[TextField] = field(default_factory=list)

    def find(self, name: str) -> TextField | None:
        """Return the last field of a name directly inside this one, or None."""
        return next((field for field in reversed(self.fields) if field.name == name), None)


def join_signs(text: str) -> str:
    """Return the text with each sign moved to its number, past blanks and comments between.

    The format allows them there (``value: - 1``), and protobuf's parser for Python does not.
    """
    return _LOOSE_SIGN.sub(lambda found: found[1] or f"{found[2]}-", text)


def scan_fields(text: str) -> Sequence[TextField]:
    """Return the fields of a message in text format, in their order.

    A list of messages (``layer: [{...}, {...}]``) is the field repeated.
    """
    top = TextField("", 0)
    enclosing = [top]
    # For each level that is a list: its field, until the first message has taken it.
    lists: list[list[TextField] | None] = [None]
    latest = top
    expects_value = False
    line, counted = 1, 0
    for token in _TOKEN.finditer(text):
        line += text.count("\n", counted, token.start())
        counted = token.start()
        match token.lastgroup:
            case "colon":
                expects_value = True
            case "word" if not expects_value:
                latest = TextField(token.group(), line)
                enclosing[-1].fields.append(latest)
            case "word" | "string":
                latest.text = token.group()
                expects_value = False
            case "open" if token.group() == "[":
                # Without a colon before it, it is an extension's name.
                lists.append([latest] if expects_value else None)
                enclosing.append(TextField(latest.name, line))
                expects_value = False
            case "open":
                first = lists[-1]
                if first:
                    latest = first.pop()
                elif first is not None:
                    latest = TextField(enclosing[-1].name, line)
                    enclosing[-2].fields.append(latest)
                enclosing.append(latest)
                lists.append(None)
                expects_value = False
            case "close":
                enclosing.pop()
                lists.pop()
                expects_value = False
    return top.fields
