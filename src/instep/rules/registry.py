"""The rulebook: every module of this package that has a code is a rule. None is named by hand.

A rule is a module with
    __doc__    its page, in Markdown; the first line is its title
    CODE       "INS101"
    NAME       "missing-zero-grad"
    SUMMARY    one sentence: what is wrong
    SEVERITY   the severity it has at worst
    MILDEST    the severity it has where it is least sure; left out where there is one only
    BAD        source with the mistake; the line that is told ends in `# <- here`
    GOOD       the same done right
    judge      View -> findings
    NEEDS      kinds of events of which a trace has to have each, or `judge` finds nothing in it and
               is not asked; left out where there is none. It is read before the rule is loaded, so
               it is a tuple of names, written out
    mend       (Finding, Source) -> Fix or None; left out where no fix is possible
    is_mended  (views before, views after) -> whether a fix has done more than silence the rule;
               left out where silence says it all
    APART      True where each finding is about a name as it is written, whatever runs before and
               after it: fixes of several are proved together; left out otherwise
    SEEN       "watch" where only a running job can see the mistake, "check" where only source tells
               it by this name; left out otherwise
"""

from __future__ import annotations

import os
import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

_FOLDER = os.path.dirname(__file__)  # noqa: PTH120  # read in every run: paths would take longer
_NAMED = re.compile(rb'CODE = "(\w+)"\r?\nNAME = "([\w-]+)"')
_NEEDS = re.compile(rb"NEEDS = \(([\w,\s]*)\)")
_WATCHED = b'\nSEEN = "watch"'


@cache
def rulebook() -> dict[str, ModuleType]:
    """Return every rule by its code, in order.

    >>> rulebook()["INS101"].NAME
    'missing-zero-grad'
    """
    return {code: _loaded(text.module) for code, text in _read().items()}


def rule(code: str) -> ModuleType | None:
    """Return one rule, and load no other.

    >>> rule("INS202").NAME, rule("INS000")
    ('leftover-window', None)
    """
    text = _read().get(code)
    return None if text is None else _loaded(text.module)


@cache
def names() -> dict[str, str]:
    """Return the name of every rule by its code, in order.

    They are read and not imported: settings need them before it is known that anything else is.

    >>> names()["INS202"]
    'leftover-window'
    """
    return {code: text.name for code, text in _read().items()}


@cache
def needs() -> dict[str, tuple[str, ...]]:
    """Return by its code of which kinds of events a rule needs one, in order; read, too.

    >>> needs()["INS202"]
    ('Backward', 'Step')
    """
    return {code: text.needs for code, text in _read().items()}


@cache
def watched() -> frozenset[str]:
    """Return the codes of the rules that only a running job can see.

    >>> "INS505" in watched(), "INS101" in watched()
    (True, False)
    """
    return frozenset(code for code, text in _read().items() if text.is_watched)


class _Text:
    """What the text of a rule says of it."""

    def __init__(self, module: str, data: bytes) -> None:
        self.module = module
        named = _NAMED.match(data, _at(data, b"CODE = "))
        needs = _NEEDS.match(data, _at(data, b"NEEDS = "))
        self.code, self.name = ("", "") if named is None else map(bytes.decode, named.groups())
        said = "" if needs is None else needs[1].decode()
        self.needs = tuple(word.strip() for word in said.split(",") if word.strip())
        self.is_watched = _WATCHED in data


def _at(data: bytes, word: bytes) -> int:
    """Return where a line begins with this; the end, if none does."""
    at = data.find(b"\n" + word)
    return len(data) if at < 0 else at + 1


@cache
def _read() -> dict[str, _Text]:
    files = [name for name in os.listdir(_FOLDER) if name.endswith(".py") and name[0] != "_"]  # noqa: PTH208
    found = []
    for name in files:
        with open(f"{_FOLDER}/{name}", "rb", buffering=0) as file:  # noqa: PTH123
            text = _Text(name.removesuffix(".py"), file.read())
        if text.code:
            found.append(text)
    return {text.code: text for text in sorted(found, key=lambda text: text.code)}


def _loaded(module: str) -> ModuleType:
    return import_module(f"instep.rules.{module}")
