"""One file, from its bytes to its outcome: read, judge, offer fixes, hear the comments."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from instep.check.baseline import fingerprints
from instep.check.outcome import Outcome, Unjudged
from instep.check.problems import Diagnostic, diagnose
from instep.check.sources import units_from_bytes
from instep.check.suppressions import UNUSED_CODE, suppress
from instep.check.translate import applied, in_file
from instep.check.units import merge_back
from instep.trace import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from instep.check.options import Settings
    from instep.check.tools import Judgement, Tools
    from instep.check.units import Unit, UnitKind
    from instep.rules.finding import Finding

_MOST_CLEANED = 20
# Comments of ours. Reading comments takes a while, and those to other tools are never reported.
_OURS = re.compile(r"instep:|noqa[^\n]*INS\d", re.IGNORECASE)


def check_bytes(
    data: bytes, path: str, kind: UnitKind, settings: Settings, tools: Tools, *, named: bool
) -> Outcome:
    """Check the content of a file; whatever goes wrong is its outcome, never an exception.

    A file that is `named` on the command line is parsed in any case, so that its user hears of a
    syntax error in it.
    """
    try:
        checked = _Checked(path, kind, settings, tools, named=named)
        return checked.mended(data) if settings.fixes else checked.outcome(data)
    except (RecursionError, MemoryError):
        broken = diagnose("too-deep", Place(path, 1), "it is nested too deeply to be followed.")
    except Exception as error:  # noqa: BLE001  # one file must not end the run of thousands
        broken = diagnose("crashed", Place(path, 1), f"instep failed on it ({_brief(error)}).")
    return Outcome(path, diagnostic=broken, followed=None)


def _brief(error: Exception) -> str:
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f", {trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
    return f"{said[:200]}{where}"


class _Checked:
    """What is done to each unit of one file."""

    def __init__(
        self, path: str, kind: UnitKind, settings: Settings, tools: Tools, *, named: bool
    ) -> None:
        self.path, self.kind, self.settings, self.tools = path, kind, settings, tools
        self.named = named and kind in {"python", "stdin"}
        self.reported = settings.codes_for(path)
        self.codes = self.reported & frozenset(settings.rules)
        self.judge: Callable[[Unit], Judgement] = partial(_judge, tools, self.codes)

    def units(self, data: bytes) -> list[Unit] | Diagnostic:
        wanted = None if self.named else partial(_interesting, self.tools)
        return units_from_bytes(data, self.path, kind=self.kind, wanted=wanted)

    def outcome(self, data: bytes) -> Outcome:
        """Judge every unit."""
        read = self.units(data)
        if isinstance(read, Diagnostic):
            return Outcome(self.path, diagnostic=read)
        findings: list[Finding] = []
        unjudged: list[Unjudged] = []
        followed: set[str] | None = set()
        loops = silenced = 0
        for unit in read:
            judgement = self.judge(unit)
            found = judgement.findings
            if found:
                found = self.tools.with_fixes(unit, judgement, self.judge)
            if found or _OURS.search(unit.text):
                heard = suppress(unit, found, self.settings.rules, checked=self.codes)
                unused = heard.unused if UNUSED_CODE in self.reported else ()
                findings += [in_file(unit, finding) for finding in (*heard.kept, *unused)]
                silenced += len(heard.silenced)
            unjudged += [Unjudged(each.place, each.reason) for each in judgement.unjudged]
            loops += judgement.loops
            also = self.tools.followed(unit)
            followed = None if also is None or followed is None else followed | set(also)
        return Outcome(
            self.path,
            findings=tuple(findings),
            unjudged=tuple(unjudged),
            loops=loops,
            silenced=silenced,
            followed=None if followed is None else tuple(sorted(map(str, followed))),
        )

    def mended(self, data: bytes) -> Outcome:
        """Mend every unit, and judge what comes of it."""
        after, fixed = self._each(data, self._fix)
        unused: list[Finding] = []
        for _ in range(_MOST_CLEANED):  # a comment that names several rules loses one at a time
            after, removed = self._each(after, self._clean)
            if not removed:
                break
            unused += removed
        outcome = self.outcome(after)
        if after == data or outcome.diagnostic is not None:
            return outcome if after == data else self.outcome(data)
        return Outcome(
            self.path,
            findings=outcome.findings,
            unjudged=outcome.unjudged,
            loops=outcome.loops,
            silenced=outcome.silenced,
            fixed=(*fixed, *unused),
            before=data,
            after=after,
            followed=None,
        )

    def _each(
        self, data: bytes, change: Callable[[Unit], tuple[str, Sequence[Finding]]]
    ) -> tuple[bytes, list[Finding]]:
        read = self.units(data)
        if isinstance(read, Diagnostic):
            return data, []
        changes: list[tuple[Unit, str]] = []
        fixed: list[Finding] = []
        for unit in read:
            text, mended = change(unit)
            if text != unit.text:
                changes.append((unit, text))
                fixed += mended
        if not changes:
            return data, []
        try:
            return changes[0][0].to_bytes(merge_back(changes)), fixed
        except ValueError:
            # The file's encoding lacks a character of the fix, or it reached across cells.
            return data, []

    def _fix(self, unit: Unit) -> tuple[str, Sequence[Finding]]:
        mended = self.tools.mend(unit, self.settings.unsafe, self.judge, self._accept)
        return mended.text, mended.fixed

    def _clean(self, unit: Unit) -> tuple[str, Sequence[Finding]]:
        """Remove the comments that silence nothing."""
        if UNUSED_CODE not in self.reported or not _OURS.search(unit.text):
            return unit.text, ()
        found = self.judge(unit).findings
        unused = suppress(unit, found, self.settings.rules, checked=self.codes).unused
        one_each = {finding.place: finding for finding in unused if finding.fix is not None}
        edits = [edit for each in one_each.values() if each.fix for edit in each.fix.edits]
        return applied(unit.text, edits), list(one_each.values())

    def _accept(self, unit: Unit, findings: Sequence[Finding]) -> Sequence[Finding]:
        """Return the findings that may be mended: neither silenced nor in the baseline."""
        kept = suppress(unit, findings, self.settings.rules, checked=self.codes).kept
        baseline = self.settings.baseline
        if baseline is None:
            return kept
        marks = fingerprints(kept, unit.source_line, baseline.root)
        pairs = zip(kept, marks, strict=True)
        return tuple(finding for finding, mark in pairs if mark not in baseline.entries)


def _judge(tools: Tools, codes: frozenset[str], unit: Unit) -> Judgement:
    return tools.judge(unit, codes)


def _interesting(tools: Tools, text: str) -> bool:
    return tools.wanted(text) or speaks(text)


def speaks(text: str) -> bool:
    """Say whether a comment to instep may be in a text: one that silences nothing is reported."""
    return "instep:" in text or "noqa: INS" in text
