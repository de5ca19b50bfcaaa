"""One file, from its bytes to its outcome: read, judge, offer fixes, hear the comments."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from instep.check.outcome import Outcome, Unjudged
from instep.check.problems import Diagnostic, diagnose
from instep.check.sources import units_from_bytes
from instep.check.suppressions import UNUSED_CODE, suppress
from instep.check.translate import applied, as_shown, in_file
from instep.check.units import merge_back
from instep.check.words import COMMENTS, holds
from instep.trace import Place
from instep.trace.plain import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from instep.check.judged import Judgement
    from instep.check.options import Settings
    from instep.check.tools import Tools
    from instep.check.units import Unit, UnitKind
    from instep.rules.finding import Finding

_MOST_CLEANED = 20
# Comments of ours. Reading comments takes a while, and those to other tools are never reported.
_OURS = re.compile(r"noqa[^\n]*ins\d")


def check_bytes(
    data: bytes, path: str, kind: UnitKind, settings: Settings, tools: Tools, *, named: bool
) -> Outcome:
    """Check the content of a file; whatever goes wrong is its outcome, never an exception.

    A file that is `named` on the command line is parsed in any case, so that its user hears of a
    syntax error in it.
    """
    checked = _Checked(path, kind, settings, tools, named=named)
    return _guarded(path, partial(checked.mended if settings.fixes else checked.outcome, data))


def clean_bytes(
    outcome: Outcome,
    data: bytes,
    kind: UnitKind,
    settings: Settings,
    tools: Tools,
    *,
    named: bool,
    spared: Collection[str],
) -> Outcome:
    """Remove the comments of a file that silence nothing, after its other fixes.

    `spared` are the codes that other files find in this one: comments about them are in use.
    """
    checked = _Checked(outcome.path, kind, settings, tools, named=named)
    return _guarded(outcome.path, partial(checked.cleaned, outcome, data, spared))


def _guarded(path: str, work: Callable[[], Outcome]) -> Outcome:
    try:
        return work()
    except (RecursionError, MemoryError):
        broken = diagnose("too-deep", Place(path, 1), "it is nested too deeply to be followed.")
    except Exception as error:  # noqa: BLE001  # one file must not end the run of thousands
        broken = diagnose("crashed", Place(path, 1), f"instep failed on it ({_brief(error)}).")
    return Outcome(path, diagnostic=broken, followed=None)


def _speaks_to_us(text: str) -> bool:
    """Say whether comments of a text may be for instep.

    >>> _speaks_to_us("# Instep: ignore"), _speaks_to_us("# NOQA: INS101"), _speaks_to_us("# noqa")
    (True, True, False)
    """
    lowered = text.lower()  # ten times as fast as a pattern that ignores case
    return "instep:" in lowered or ("noqa" in lowered and _OURS.search(lowered) is not None)


def _left_out(fault: Diagnostic) -> str:
    return f"this cell does not parse, and was left out ({fault.what.rstrip('.')})"


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
        self.named = named and kind in {"python", "stdin", "notebook"}
        self.reported = settings.codes_for(path)
        self.codes = self.reported & frozenset(settings.rules)
        self.followed: set[str] = set()

    def judge(self, unit: Unit) -> Judgement:
        judgement = self.tools.judge(unit)
        self.followed.update(judgement.followed)
        return judgement

    def units(self, data: bytes) -> list[Unit] | Diagnostic:
        wanted = None if self.named else partial(holds, words=(*self.tools.words, *COMMENTS))
        return units_from_bytes(data, self.path, kind=self.kind, wanted=wanted)

    def outcome(self, data: bytes) -> Outcome:
        """Judge every unit."""
        read = self.units(data)
        if isinstance(read, Diagnostic):
            return Outcome(self.path, diagnostic=read)
        findings: list[Finding] = []
        silenced: list[Finding] = []
        elsewhere: list[Finding] = []
        unjudged: list[Unjudged] = []
        loops = 0
        for unit in read:
            judgement = self.judge(unit)
            found = self.selected(judgement.findings)
            if found or _speaks_to_us(unit.text):
                heard = suppress(unit, found, self.settings.rules, checked=self.codes)
                unused = heard.unused if UNUSED_CODE in self.reported else ()
                once = [f for f in heard.kept if (f.code, f.place) not in judgement.again]
                kept = once and self.tools.with_fixes(unit, judgement, once, self.judge)
                findings += [in_file(unit, finding) for finding in (*kept, *unused)]
                silenced += [as_shown(finding, self.path) for finding in heard.silenced]
            elsewhere += [as_shown(finding, self.path) for finding in judgement.elsewhere]
            unjudged += [Unjudged(each.place, each.reason) for each in judgement.unjudged]
            unjudged += [Unjudged(each.place, _left_out(each)) for each in unit.left_out]
            loops += judgement.loops
        return Outcome(
            self.path,
            findings=tuple(findings),
            unjudged=tuple(unjudged),
            loops=loops,
            silenced=tuple(silenced),
            elsewhere=tuple(elsewhere),
            followed=tuple(sorted(self.followed)),
        )

    def mended(self, data: bytes) -> Outcome:
        """Mend every unit, and judge what comes of it."""
        return self._after(data, *self._each(data, self._fix))

    def cleaned(self, outcome: Outcome, data: bytes, spared: Collection[str]) -> Outcome:
        """Remove comments from what came of a file, and judge it again."""
        after = data if outcome.after is None else outcome.after
        fixed = [*outcome.fixed]
        for _ in range(_MOST_CLEANED):  # a comment that names several rules loses one at a time
            after, removed = self._each(after, partial(self._clean, spared))
            if not removed:
                break
            fixed += removed
        return self._after(data, after, fixed)

    def _after(self, data: bytes, after: bytes, fixed: Sequence[Finding]) -> Outcome:
        outcome = self.outcome(after)
        if after == data:
            return outcome
        if outcome.diagnostic is not None:
            return self.outcome(data)
        return replace(outcome, fixed=tuple(fixed), before=data, after=after, followed=None)

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

    def _clean(self, spared: Collection[str], unit: Unit) -> tuple[str, Sequence[Finding]]:
        """Remove the comments that silence nothing."""
        if UNUSED_CODE not in self.reported or not _speaks_to_us(unit.text):
            return unit.text, ()
        found = self.selected(self.judge(unit).findings)
        unused = suppress(
            unit, found, self.settings.rules, checked=self.codes.difference(spared)
        ).unused
        one_each = {finding.place: finding for finding in unused if finding.fix is not None}
        edits = [edit for each in one_each.values() if each.fix for edit in each.fix.edits]
        return applied(unit.text, edits), list(one_each.values())

    def _accept(self, unit: Unit, findings: Sequence[Finding]) -> Sequence[Finding]:
        """Return the findings that may be mended: selected, not silenced, not in the baseline."""
        found = self.selected(findings)
        kept = suppress(unit, found, self.settings.rules, checked=self.codes).kept
        baseline = self.settings.baseline
        if baseline is None:
            return kept
        from instep.check.baseline import fingerprints  # noqa: PLC0415  # who has one has loaded it

        marks = fingerprints(kept, unit.source_line, baseline.root)
        pairs = zip(kept, marks, strict=True)
        return tuple(finding for finding, mark in pairs if mark not in baseline.entries)

    def selected(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """Return the findings of the rules that this file is judged by."""
        return tuple(finding for finding in findings if finding.code in self.codes)
