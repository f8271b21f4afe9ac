"""What is wrong with the arguments of a command, in the words of this package.

Versions of typer that check values with pydantic print its texts as they are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperCommand

from prefetch._errors.printable import printable_message

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXPECTED: Final = {
    "greater_than_equal": "{ge:g} or more",
    "greater_than": "a number above {gt:g}",
    "less_than_equal": "{le:g} or less",
    "less_than": "a number below {lt:g}",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer of fewer digits",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
}


_LONGEST_SHOWN: Final = 500
_OF_THE_PROGRAM: Final = frozenset({"-v", "--verbose", "--debug", "--version"})

UsageError: Final[Any] = typer.BadParameter.__base__


class Command(TyperCommand):
    """A command whose arguments are called in its help what they are called in its documents.

    Some versions of typer show them as ``{INPUT...}...`` and ``INPUT... <list[Path]>``.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for param in self.params:
            if param.param_type_name == "argument":
                vars(param)["display_type_rich"] = _no_type

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the line that shows how the command is used."""
        pieces: list[str] = super().collect_usage_pieces(ctx)
        return [re.sub(r"[{}]", "", piece).replace("......", "...") for piece in pieces]


def _no_type(**_: Any) -> str:
    return ""


def program_options_first(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the program's own options before the command.

    Example:
        >>> program_options_first(["inspect", "db", "-v", "--", "--debug"])
        ['-v', 'inspect', 'db', '--', '--debug']
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    head, tail = arguments[:end], arguments[end:]
    return [
        *(one for one in head if one in _OF_THE_PROGRAM),
        *(one for one in head if one not in _OF_THE_PROGRAM),
        *tail,
    ]


def reword(error: Any) -> None:
    """Put what is wrong with a command's arguments into the words of this package.

    Args:
        error: A `UsageError`; its message is changed.
    """
    if isinstance(error, typer.BadParameter):
        _reword_value(error)
        if not error.message and getattr(error.param, "param_type_name", "") == "argument":
            _name_all_arguments(error)
    text = error.message
    if len(text) > _LONGEST_SHOWN:
        text = f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"
    # Usage errors are printed as they are, and quote names and values.
    error.message = printable_message(text)


def _name_all_arguments(error: Any) -> None:
    """Name all arguments of a command where one is missing: which one, only the user knows."""
    arguments = [one for one in error.ctx.command.params if one.param_type_name == "argument"]
    if len(arguments) > 1:
        error.param_hint = " ".join(
            one.metavar if one.required else f"[{one.metavar}]" for one in arguments
        )
        error.message = "Give them in this order."


def _reword_value(error: typer.BadParameter) -> None:
    """Put the message of a refused value into the words of this package, where pydantic gave it."""
    faults = getattr(error.__cause__, "errors", None)
    if faults is None:
        return
    fault: dict[str, Any] = faults()[0]
    context = fault.get("ctx", {})
    expected = _EXPECTED.get(fault["type"])
    if expected is not None:
        error.message = f"expected {expected.format(**context)}, found {fault['input']}"
    elif fault["type"] == "value_error":
        error.message = str(context["error"])
