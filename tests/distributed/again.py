"""The tests of a module once more, in another module and with other crews."""

from __future__ import annotations

import inspect
from types import FunctionType, ModuleType

import pytest

CREWS = {"two", "three", "four", "crew"}


def cases(module: ModuleType) -> dict[str, FunctionType]:
    """The tests of a module that need several ranks, by name."""
    found = {name.removeprefix("test_"): each for name, each in vars(module).items()}
    return {
        name: each
        for name, each in found.items()
        if isinstance(each, FunctionType)
        and each.__name__ == f"test_{name}"
        and CREWS & set(inspect.signature(each).parameters)
    }


def again(test: FunctionType, *, slow: bool = False) -> FunctionType:
    """A test for this module; marks on the function itself would count in its own, too."""
    copied = FunctionType(
        test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__
    )
    copied.__dict__.update(test.__dict__)
    copied.pytestmark = [*getattr(test, "pytestmark", ()), *([pytest.mark.slow] if slow else ())]
    return copied
