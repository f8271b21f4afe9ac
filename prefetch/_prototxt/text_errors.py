"""What protobuf's parser finds wrong with a network file, in words for the one who wrote it.

Its own texts repeat the whole line, and name messages of this package's schema.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from memory.wording import nearest
from prefetch.caffe import DataParameter, Phase, V1LayerParameter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST_LISTED: Final = 6
_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "Phase": Phase.keys(),
    "DB": DataParameter.DB.keys(),
    "LayerType": V1LayerParameter.LayerType.keys(),
}
_NO_WORD = re.compile(r'Enum type "[\w.]*?(\w+)" has no value (?:named|with number) (.+?)\.?')
_TWICE = re.compile(r'Message type "[\w.]+" should not have multiple "(\w+)" fields\.?')
_NO_NUMBER = re.compile(r"Couldn't parse (float|integer): (.*)")
_NO_TEXT = re.compile(r"Expected string but found: '(.*)'")


def explain(found: str, text: str) -> str:
    """Return what is wrong.

    Args:
        found: What protobuf's parser says, with or without the place.
        text: What it has read.
    """
    message = re.sub(r"^\d+:\d+ : ", "", found)
    # The parser quotes the line, which may hold quotes itself.
    quoted = [f"'{line}': " for line in {*text.split("\n"), ""}]
    message = message.removeprefix(
        max((line for line in quoted if message.startswith(line)), key=len, default="")
    )
    if match := _NO_WORD.fullmatch(message):
        return _no_word(*match.groups())
    if match := _TWICE.fullmatch(message):
        return f"{match[1]} is given a second time, and Caffe takes one; leave one of them out"
    if match := _NO_NUMBER.fullmatch(message):
        kind = "a number" if match[1] == "float" else "an integer"
        return f"expected {kind}, found {match[2] or 'nothing'}"
    if match := _NO_TEXT.fullmatch(message):
        if match[1]:
            return f"expected text in quotes, found {match[1]}"
        return "expected text in quotes, found the end of the file: was it cut off?"
    if "integer string conversion" in message:  # Python's own limit, on hexadecimal numbers too
        message = "expected an integer, found one of thousands of digits"
    return message[:1].lower() + message[1:].rstrip(".")


def _no_word(kind: str, word: str) -> str:
    words = _WORDS.get(kind, ())
    guess = nearest(word, words)
    cure = f"; did you mean {guess}?" if guess else ""
    if len(words) > _MOST_LISTED:
        return f"{word} is no type of layer in Caffe{cure}"
    return f"expected one of {', '.join(words)}; found {word}{cure}"
