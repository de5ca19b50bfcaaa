"""Findings that comments silence, and the report of comments that silence nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.config import did_you_mean
from instep.rules.finding import Edit, Finding, Fix, Severity
from instep.rules.registry import watched
from instep.rules.silencing import ends_of_statements, hits, read_comments
from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from instep.check.units import Unit
    from instep.rules.silencing import Comments, Suppression

UNUSED_CODE, UNUSED_NAME = "INS001", "unused-suppression"


@dataclass(frozen=True, slots=True)
class Suppressed:
    """Findings after the comments had their say."""

    kept: tuple[Finding, ...]
    silenced: tuple[Finding, ...]
    unused: tuple[Finding, ...]
    """One per comment, or per name in it, that silences nothing; its fix removes it. Edits are in
    positions of the unit's text."""


def suppress(
    unit: Unit,
    findings: Sequence[Finding],
    rules: Mapping[str, str],
    *,
    checked: Collection[str] | None = None,
) -> Suppressed:
    """Silence the findings of a unit that its comments ask to silence.

    A comment counts for findings on its own line, and if it is on the first or the last line of a
    statement for those on all lines of it. `rules` maps codes to names; `checked` are the codes of
    the rules that ran (None: all), because a comment for another rule may be in use.
    """
    comments = read_comments(unit.text)
    if comments.skips_file:
        return Suppressed((), tuple(findings), ())
    if not comments.suppressions and not comments.misspelled:
        return Suppressed(tuple(findings), (), ())
    ends = ends_of_statements(unit.tree)
    kept: list[Finding] = []
    silenced: list[Finding] = []
    used: set[tuple[Suppression, str | None]] = set()
    for finding in findings:
        line = unit.locator.text_line(finding.place)
        lines = set() if line is None else {line, *ends.get(line, ())}
        asked = hits(comments, finding, lines)
        used |= asked
        (silenced if asked else kept).append(finding)
    unused = (
        *_unused(unit, comments, used, rules, frozenset(rules if checked is None else checked)),
        *_misspelled(unit, comments),
    )
    return Suppressed(tuple(kept), tuple(silenced), unused)


def _unused(
    unit: Unit,
    comments: Comments,
    used: set[tuple[Suppression, str | None]],
    rules: Mapping[str, str],
    checked: frozenset[str],
) -> Iterator[Finding]:
    codes = {name.lower(): code for code, name in rules.items()} | {c.lower(): c for c in rules}
    everything = checked >= set(rules)
    for comment in comments.suppressions:
        if comment.names is None:
            # A bare noqa may be there for another tool; a bare ignore for a rule that did not run.
            if not comment.is_noqa and everything and (comment, None) not in used:
                yield _finding(unit, comment, "this comment silences nothing.", None)
            continue
        if not comment.names:
            yield _finding(unit, comment, "this comment names no rule.", None)
        for name in comment.names:
            code = codes.get(name.lower())
            if (comment, name) in used or (code is not None and code not in checked):
                continue
            if code in watched():
                continue  # it may be in use while the job runs
            if code is None and comment.is_noqa and not name.upper().startswith("INS"):
                continue  # another tool's
            says = f"{name} is not reported here."
            if code is None:
                says = f"there is no rule {name!r}.{did_you_mean(name, [*rules.values(), *rules])}"
            yield _finding(unit, comment, says, name)


def _misspelled(unit: Unit, comments: Comments) -> Iterator[Finding]:
    for comment in comments.misspelled:
        word = (comment.names or ("",))[0]
        if guess := did_you_mean(word, ["ignore", "skip-file"]):
            yield _finding(unit, comment, f"instep does not know {word!r}.{guess}", word, fix=False)


def _finding(
    unit: Unit, comment: Suppression, message: str, name: str | None, *, fix: bool = True
) -> Finding:
    place = unit.locator.place(comment.line, comment.column, comment.line, comment.end_column)
    mend = Fix("remove what silences nothing", (_removal(unit, comment, name),)) if fix else None
    return Finding(UNUSED_CODE, UNUSED_NAME, Severity.INFO, place, message, fix=mend)


def _removal(unit: Unit, comment: Suppression, name: str | None) -> Edit:
    """Remove the one name, or the whole comment with the space before it if no name is left."""
    left = [other for other in comment.names or () if other != name]
    column, end, text = comment.column, comment.end_column, ""
    if left:
        listed = ", ".join(left)
        text = f"# noqa: {listed}" if comment.is_noqa else f"# instep: ignore[{listed}]"
    else:
        line = unit.text.split("\n")[comment.line - 1].encode("utf-8", "replace")
        rest = line[end:].strip()
        if not rest:
            column = len(line[:column].rstrip())
            end = len(line)
        elif not rest.startswith(b"#"):
            text = "#"  # what follows is prose, and has to stay a comment
    return Edit(comment.line, column, comment.line, end, text)
