"""The rulebook: every module of this package that has a code is a rule. None is named by hand.

A rule is a module with
    __doc__    its page, in Markdown; the first line is its title
    CODE       "INS101"
    NAME       "missing-zero-grad"
    SUMMARY    one sentence: what is wrong
    SEVERITY   the severity it has at worst
    BAD        source with the mistake; the line that is told ends in `# <- here`
    GOOD       the same done right
    judge      View -> findings
    NEEDS      kinds of events of which a trace has to have each, or `judge` finds nothing in it and
               is not asked; left out where there is none
    mend       (Finding, Source) -> Fix or None; left out where no fix is possible
    APART      True where each finding is about a name as it is written, whatever runs before and
               after it: fixes of several are proved together; left out otherwise
    SEEN       "watch" where only a running job can see the mistake; left out otherwise
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

_FOLDER = Path(__file__).parent
_NAMED = re.compile(r'^CODE = "(\w+)"\nNAME = "([\w-]+)"$', re.MULTILINE)
_WATCHED = re.compile(r'^SEEN = "watch"$', re.MULTILINE)


@cache
def rulebook() -> dict[str, ModuleType]:
    """Return every rule by its code, in order.

    >>> rulebook()["INS101"].NAME
    'missing-zero-grad'
    """
    modules = (import_module(f"instep.rules.{name}") for name in _modules())
    rules = {module.CODE: module for module in modules if hasattr(module, "CODE")}
    return dict(sorted(rules.items()))


@cache
def names() -> dict[str, str]:
    """Return the name of every rule by its code, in order.

    They are read and not imported: settings need them before it is known that anything else is.

    >>> names()["INS202"]
    'leftover-window'
    """
    return dict(sorted((code, name) for code, name, _ in _read()))


@cache
def watched() -> frozenset[str]:
    """Return the codes of the rules that only a running job can see.

    >>> "INS505" in watched(), "INS101" in watched()
    (True, False)
    """
    return frozenset(code for code, _, is_watched in _read() if is_watched)


@cache
def _read() -> tuple[tuple[str, str, bool], ...]:
    texts = ((_FOLDER / f"{name}.py").read_text(encoding="utf-8") for name in _modules())
    found = ((_NAMED.search(text), _WATCHED.search(text)) for text in texts)
    return tuple((named[1], named[2], bool(seen)) for named, seen in found if named is not None)


def _modules() -> list[str]:
    return sorted(file.stem for file in _FOLDER.glob("*.py") if file.name[0] != "_")
