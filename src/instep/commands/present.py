"""What a run prints: the report, and for people what else there is to know."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from instep import __version__
from instep.check.outcome import as_finding
from instep.commands.printable import printable, unharmed
from instep.errors import CheckError
from instep.reports.colours import wants_colour
from instep.reports.escape import visible
from instep.reports.options import Options, RuleInfo
from instep.reports.registry import render
from instep.reports.summary import render as summary
from instep.trace.plain import dataclass

if TYPE_CHECKING:
    import argparse

    from instep.check.outcome import Outcome
    from instep.check.problems import Diagnostic
    from instep.check.quotes import Quotes
    from instep.check.run import Stdin
    from instep.rules import Finding

_COLUMNS = 100  # of what is no terminal


@dataclass(frozen=True)
class Result:
    """What there is to report."""

    files: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    findings: tuple[Finding, ...]
    diagnostics: tuple[Diagnostic, ...]
    quotes: Quotes
    stdin: Stdin | None = None
    known: int = 0
    """Findings that the baseline knows."""
    stale: int = 0
    """Entries of the baseline that nothing matches."""
    written: str | None = None
    """The baseline that was written."""

    @property
    def fixed(self) -> int:
        """How many findings are mended."""
        return sum(len(outcome.fixed) for outcome in self.outcomes)


def present(result: Result, options: argparse.Namespace) -> None:
    """Print the report where it was asked for."""
    # Mended standard input goes where input came from, so everything else has to step aside.
    source = result.stdin if options.fix and not options.diff else None
    stream = sys.stdout if source is None else sys.stderr
    file = options.output_file
    colour = file is None and wants_colour(
        options.color, is_terminal=stream.isatty(), environ=os.environ
    )
    if options.diff:
        report, said = _diffs(result), _would(result)
        # Programs get it as it is, to apply it; people must not have their terminal driven.
        report = unharmed(report) if file is None and stream.isatty() else report
        people: TextIO | None = sys.stderr
    elif options.output_format == "text":
        report, said = _text(result, options, colour=colour), ""
        people = None
    else:
        report, said = _for_programs(result, options), ""
        people = sys.stderr
    said = "".join([_verbose(result) if options.verbose and people else "", said])
    if file is None:
        say(stream, report)
    else:
        _write(file, report)
    if source is not None:
        after = next((o.after for o in result.outcomes if o.path == source.path), None)
        sys.stdout.flush()
        sys.stdout.buffer.write(source.data if after is None else after)
    if people is not None and not options.quiet:
        say(people, said)


def say(stream: TextIO, text: str) -> None:
    """Write a text, with escapes for what the stream's encoding lacks."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _width() -> int:
    """Return the columns of the terminal, as `shutil` says them, which is slow to load."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or _COLUMNS  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):  # closed, or no terminal
        return _COLUMNS


def _text(result: Result, options: argparse.Namespace, *, colour: bool) -> str:
    blocks = []
    if options.statistics:
        blocks.append(_statistics(result))
    elif result.findings:
        made = Options(colour=colour, width=_width())
        blocks.append(render("text", result.findings, result.quotes, made))
    blocks += [_lines([printable(each)]) for each in result.diagnostics]
    if options.verbose:
        blocks.append(_verbose(result))
    if not options.quiet:
        blocks.append(_summary(result, options, colour=colour))
    return "\n".join(block for block in blocks if block)


def count_of(number: int, noun: str) -> str:
    """Return a number of things.

    >>> count_of(1, "loop"), count_of(1200, "file")
    ('1 loop', '1,200 files')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _lines(rows: list[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


def _summary(result: Result, options: argparse.Namespace, *, colour: bool) -> str:
    unjudged = sum(len(outcome.unjudged) for outcome in result.outcomes)
    text = summary(
        result.findings,
        files=len(result.files) - len(result.diagnostics),
        unjudged=0 if options.verbose else unjudged,
        fixed=result.fixed,
        colour=colour,
    )
    if len(result.diagnostics) == len(result.files) and result.files:
        text = ""
    rows = []
    if result.diagnostics:
        count = len(result.diagnostics)
        rows.append(f"{count:,} {'file was' if count == 1 else 'files were'} not checked.")
    if result.known:
        rows.append(f"{result.known:,} known from the baseline.")
    if result.stale:
        rows.append(
            f"{result.stale:,} in the baseline no longer found; --write-baseline writes it again."
        )
    if result.written is not None:
        rows.append(f"Wrote {len(result.findings):,} to {visible(result.written)}.")
    return text + _lines(rows)


def _verbose(result: Result) -> str:
    from instep.reports.text import where  # noqa: PLC0415  # loaded where it is used

    rows = [
        f"{where(each.place, result.quotes)}: not judged: {visible(each.reason)}"
        for outcome in result.outcomes
        for each in outcome.unjudged
    ]
    loops = sum(outcome.loops for outcome in result.outcomes)
    silenced = sum(len(outcome.silenced) for outcome in result.outcomes)
    followed = count_of(loops, "way")
    rows.append(f"Followed {followed} through training code; {len(rows):,} could not be judged.")
    if silenced:
        rows.append(f"Comments silence {count_of(silenced, 'finding')}.")
    return _lines(rows)


def _counts(result: Result) -> list[tuple[int, str, str, int]]:
    from collections import Counter  # noqa: PLC0415  # loaded where it is used

    found = [*result.findings, *map(as_finding, result.diagnostics)]
    counts = Counter((each.code, each.name) for each in found)
    fixable = Counter(each.code for each in found if each.fix is not None)
    rows = [(count, code, name, fixable[code]) for (code, name), count in counts.items()]
    return sorted(rows, key=lambda row: (-row[0], row[1]))


def _statistics(result: Result) -> str:
    rows = _counts(result)
    width = max((len(f"{row[0]:,}") for row in rows), default=0)
    names = max((len(row[2]) for row in rows), default=0)
    shown = []
    for count, code, name, fixable in rows:
        more = f"{fixable:,} fixable" if fixable else ""
        shown.append(f"{count:>{width},}  {code} {name:<{names}}  {more}".rstrip())
    return _lines(shown)


def _for_programs(result: Result, options: argparse.Namespace) -> str:
    if options.statistics:
        import json  # noqa: PLC0415  # loaded where it is used

        keys = ("count", "code", "name", "fixable")
        rows = [dict(zip(keys, row, strict=True)) for row in _counts(result)]
        return json.dumps(rows, indent=2) + "\n"
    found = [*result.findings, *map(as_finding, result.diagnostics)]
    return render(options.output_format, found, result.quotes, described(options.output_format))


def described(name: str) -> Options:
    """Return what a format for programs is told besides the findings."""
    if name != "sarif":
        return Options(version=__version__)
    from instep.commands.explain import rule_page  # noqa: PLC0415  # loaded where it is used
    from instep.rules.registry import rulebook, watched  # noqa: PLC0415

    rules = tuple(
        RuleInfo(code, rule.NAME, rule.SUMMARY, rule.SEVERITY, rule_page(code))
        for code, rule in rulebook().items()
        if code not in watched()  # the checker does not look for these
    )
    return Options(rules=rules, version=__version__)


def _diffs(result: Result) -> str:
    from instep.check.writing import diff  # noqa: PLC0415  # loaded where it is used

    return "".join(
        diff(visible(outcome.path), outcome.before, outcome.after)
        for outcome in result.outcomes
        if outcome.before is not None and outcome.after is not None
    )


def _would(result: Result) -> str:
    changed = sum(outcome.after is not None for outcome in result.outcomes)
    rows = ["Nothing to fix."]
    if changed:
        mended = count_of(result.fixed, "problem")
        rows = [f"--fix would mend {mended} in {count_of(changed, 'file')}."]
    if result.findings:
        rows.append(f"{len(result.findings):,} would remain.")
    rows += map(printable, result.diagnostics)
    return _lines(rows)


def _write(file: str, report: str) -> None:
    try:
        Path(file).write_text(report, encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError) as error:
        raise CheckError(
            f"--output-file: {file!r} cannot be written ({error}).",
            why="the report was to go there.",
            fix="check the path and that its folder is there.",
            more="checking",
        ) from error
