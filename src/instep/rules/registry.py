"""The rulebook: every module of this package that has a code is a rule. None is named by hand.

A rule is a module with
    __doc__    its page, in Markdown; the first line is its title
    CODE       "INS101"
    NAME       "missing-zero-grad"
    SUMMARY    one sentence: what is wrong
    SEVERITY   the severity it has at worst
    BAD        source with the mistake; the line to change ends in `# <- here`
    GOOD       the same done right
    judge      View -> findings
    mend       (Finding, Source) -> Fix or None; left out where no fix is possible
"""

from __future__ import annotations

from functools import cache
from importlib import import_module, resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


@cache
def rulebook() -> dict[str, ModuleType]:
    """Return every rule by its code, in order.

    >>> rulebook()["INS101"].NAME
    'missing-zero-grad'
    """
    folder = resources.files("instep.rules")
    names = (e.name for e in folder.iterdir() if e.name.endswith(".py") and e.name[0] != "_")
    modules = (import_module(f"instep.rules.{name[:-3]}") for name in sorted(names))
    rules = {module.CODE: module for module in modules if hasattr(module, "CODE")}
    return dict(sorted(rules.items()))


def names() -> dict[str, str]:
    """Return the name of every rule by its code.

    >>> names()["INS202"]
    'leftover-window'
    """
    return {code: rule.NAME for code, rule in rulebook().items()}
