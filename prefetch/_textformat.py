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


@dataclass(slots=True)
class TextField:
    """One field as it is written.

    Attributes:
        name: Its name, known to the schema or not.
        line: Line of the name, counted from 1.
        fields: The fields inside, where it is a message.
    """

    name: str
    line: int
    fields: list[TextField] = field(default_factory=list)

    def find(self, name: str) -> TextField | None:
        """Return the last field of a name directly inside this one, or None."""
        return next((field for field in reversed(self.fields) if field.name == name), None)


def scan_fields(text: str) -> Sequence[TextField]:
    """Return the fields of a message in text format, in their order.

    Lists of messages (``layer: [{...}, {...}]``) are passed over: Caffe's files repeat the field.
    """
    top = TextField("", 0)
    enclosing = [top]
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
                expects_value = False
            case "open":
                enclosing.append(TextField("", line) if token.group() == "[" else latest)
                expects_value = False
            case "close":
                enclosing.pop()
                expects_value = False
    return top.fields
