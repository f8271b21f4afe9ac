"""What is wrong with an option's value on the command line, in the words of this package.

Versions of typer that check values with pydantic print its texts as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import typer

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


def reword(error: typer.BadParameter) -> None:
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
