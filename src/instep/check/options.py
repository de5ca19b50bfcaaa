"""What a run was asked to do: the settings of the project, and what the command line changes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from instep.check.config import Config, find_config, load_config, resolve, severity
from instep.check.outcome import NOT_CHECKED_CODE, NOT_CHECKED_NAME
from instep.check.sources import STDIN
from instep.check.suppressions import UNUSED_CODE, UNUSED_NAME
from instep.errors import CheckError
from instep.trace.plain import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from instep.check.baseline import Baseline

CACHE_FOLDER = ".instep_cache"
BESIDE = {NOT_CHECKED_CODE: NOT_CHECKED_NAME, UNUSED_CODE: UNUSED_NAME}
"""What is reported without being a rule of the rulebook, and can be ignored like one."""


@dataclass(frozen=True)
class Settings:
    """All that the check of one file depends on."""

    config: Config
    rules: Mapping[str, str]
    """The rulebook: names by codes."""
    fixes: bool = False
    """Whether files are mended; if not, fixes are only offered."""
    unsafe: bool = False
    baseline: Baseline | None = None

    def codes_for(self, path: str) -> frozenset[str]:
        """Return the codes of what is reported for a file, those beside the rulebook included."""
        return self.config.codes_for(path, {**self.rules, **BESIDE})

    def tells_unchecked(self, path: str) -> bool:
        """Say whether a file that cannot be checked is reported: unless it is ignored by name."""
        everything = replace(self.config, select=None)
        return NOT_CHECKED_CODE in everything.codes_for(path, {**self.rules, **BESIDE})


def configure(
    paths: Sequence[str],
    rules: Mapping[str, str],
    *,
    file: str | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    level: str | None = None,
) -> Config:
    """Return the settings for these paths, with what the command line says about rules.

    `--select` replaces what the project selects and ignores; `--ignore` adds to it.
    """
    known = {**rules, **BESIDE}
    config = find_config(_above(paths), known) if file is None else load_config(file, known)
    if select:
        chosen = resolve(_words(select, "--select"), known, where="--select")
        config = replace(config, select=chosen, ignore=frozenset())
    if ignore:
        more = resolve(_words(ignore, "--ignore"), known, where="--ignore")
        config = replace(config, ignore=config.ignore | more)
    if level is not None:
        config = replace(config, severity=severity(level, where="--severity"))
    return config


def words(given: Sequence[str]) -> list[str]:
    """Return what several options list, each with commas or alone.

    >>> words(["INS1, INS2", "zero-fill"])
    ['INS1', 'INS2', 'zero-fill']
    """
    return [word.strip() for option in given for word in option.split(",") if word.strip()]


def _words(given: Sequence[str], option: str) -> list[str]:
    found = words(given)
    if not found:
        raise CheckError(
            f"{option}: no rule is named.",
            why="an empty list would check nothing, or change nothing.",
            fix=f'name rules, as in {option} "INS1,zero-fill"; `instep rules` lists them.',
            more="checking",
        )
    return found


def _above(paths: Sequence[str]) -> str:
    """Return the folder that all paths are in; their project's settings count."""
    absolute = [os.path.abspath(path) for path in paths if path != STDIN]  # noqa: PTH100  # no links followed
    try:
        return os.path.commonpath(absolute or [os.getcwd()])  # noqa: PTH109
    except ValueError:  # drives of their own
        return absolute[0]
