"""What goes away before it was made whole: Ctrl-C came in its constructor."""

from __future__ import annotations

import importlib
import pkgutil
from types import FunctionType

import pytest

import memory
import prefetch


def _classes() -> list[type]:
    """Return every class of the packages that has a finalizer of its own."""
    found = set()
    for package in (memory, prefetch):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if module.name.startswith(("memory._cuda", "prefetch.torch", "prefetch.jax")):
                continue  # needs a library that is not here
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and "__del__" in vars(value):
                    found.add(value)
    return sorted(found, key=lambda cls: cls.__qualname__)


@pytest.mark.parametrize("cls", _classes())
def test_an_object_whose_constructor_never_ran_goes_without_a_word(cls: type) -> None:
    unmade: object = object.__new__(cls)
    finalizer = vars(cls)["__del__"]
    assert isinstance(finalizer, FunctionType)
    finalizer(unmade)  # an error of it would be printed, and raised nowhere
