"""Comments that silence findings, and the report of those that silence nothing.

    loss.backward()  # instep: ignore[unscaled-accumulation]
    optimizer.step()  # noqa: INS101

`# instep: ignore` and `# noqa` silence every rule on their line, `# instep: skip-file` the file.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from instep.check.config import did_you_mean
from instep.rules.finding import Edit, Finding, Fix, Severity
from instep.rules.registry import watched

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from instep.check.units import Unit

UNUSED_CODE, UNUSED_NAME = "INS001", "unused-suppression"

_DIRECTIVE = (
    r"#\s*instep:\s*(?:(?P<skip>skip-file)\b|(?P<ignore>ignore)\b(?![-\w])\s*(?:\[(?P<own>[^\]]*)\])?"
    r"|(?P<word>[\w-]+))"
    r"|#\s*(?P<noqa>noqa)\b(?:\s*:\s*(?P<codes>[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*))?"
)
_LIKELY = re.compile(r"#\s*(?:instep:|noqa)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Suppression:
    """One comment: where it is in the unit's text, and what it names."""

    line: int
    column: int
    end_column: int
    text: str
    """As written, without what else is in the comment."""
    names: tuple[str, ...] | None
    """Names and codes; None: every rule."""
    is_noqa: bool = False


class Comments(NamedTuple):
    """What the comments of a unit ask for."""

    suppressions: tuple[Suppression, ...]
    skips_file: bool
    misspelled: tuple[Suppression, ...]
    """Comments to instep that it does not understand."""


class Suppressed(NamedTuple):
    """Findings after the comments had their say."""

    kept: tuple[Finding, ...]
    silenced: tuple[Finding, ...]
    unused: tuple[Finding, ...]
    """One per comment, or per name in it, that silences nothing; its fix removes it. Edits are in
    positions of the unit's text."""


def read_comments(text: str) -> Comments:
    """Find the comments that speak to instep; what looks like one inside a string is none.

    >>> read_comments("x = 1  # instep: ignore[zero-fill, INS101]").suppressions[0].names
    ('zero-fill', 'INS101')
    """
    found: list[Suppression] = []
    misspelled: list[Suppression] = []
    skips = False
    for line, column, comment in _comments(text) if _LIKELY.search(text) else ():
        for match in re.finditer(_DIRECTIVE, comment, re.IGNORECASE):
            start = column + len(comment[: match.start()].encode("utf-8", "replace"))
            end = start + len(match[0].encode("utf-8", "replace"))
            if match["skip"]:
                skips = True
            elif match["word"]:
                misspelled.append(Suppression(line, start, end, match[0], (match["word"],)))
            else:
                is_noqa = match["noqa"] is not None
                named = match["codes"] if is_noqa else match["own"]
                names = None if named is None else tuple(re.findall(r"[^\s,]+", named))
                found.append(Suppression(line, start, end, match[0], names, is_noqa))
    return Comments(tuple(found), skips, tuple(misspelled))


def suppress(
    unit: Unit,
    findings: Sequence[Finding],
    rules: Mapping[str, str],
    *,
    checked: Collection[str] | None = None,
) -> Suppressed:
    """Silence the findings of a unit that its comments ask to silence.

    A comment counts for findings on its own line, and if it is on the first line of a statement
    for those on the other lines of it. `rules` maps codes to names; `checked` are the codes of the
    rules that ran (None: all), because a comment for another rule may be in use.
    """
    comments = read_comments(unit.text)
    if comments.skips_file:
        return Suppressed((), tuple(findings), ())
    if not comments.suppressions and not comments.misspelled:
        return Suppressed(tuple(findings), (), ())
    first = _first_lines(unit.tree)
    kept: list[Finding] = []
    silenced: list[Finding] = []
    used: set[tuple[Suppression, str | None]] = set()
    for finding in findings:
        line = unit.locator.text_line(finding.place)
        lines = set() if line is None else {line, first.get(line, line)}
        hits = {
            (comment, name)
            for comment in comments.suppressions
            if comment.line in lines
            for name in ((None,) if comment.names is None else comment.names)
            if name is None or name.lower() in {finding.code.lower(), finding.name.lower()}
        }
        used |= hits
        (silenced if hits else kept).append(finding)
    unused = (
        *_unused(unit, comments, used, rules, frozenset(rules if checked is None else checked)),
        *_misspelled(unit, comments),
    )
    return Suppressed(tuple(kept), tuple(silenced), unused)


def _comments(text: str) -> Iterator[tuple[int, int, str]]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                line, column = token.start
                yield line, len(token.line[:column].encode("utf-8", "replace")), token.string
    except (tokenize.TokenError, SyntaxError):
        return  # the unit has parsed; where tokenize is stricter, what it has read must do


def _first_lines(tree: ast.Module) -> dict[int, int]:
    """Map the later lines of every statement (of a block: of its head) to the first."""
    first = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            for line in range(node.lineno + 1, _head_end(node) + 1):
                first[line] = node.lineno
    return first


def _head_end(node: ast.stmt) -> int:
    if isinstance(node, ast.Match):
        return node.cases[0].pattern.lineno - 1
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return node.end_lineno or node.lineno
    decorators = getattr(body[0], "decorator_list", [])
    return min(int(item.lineno) for item in [body[0], *decorators]) - 1


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
