"""`instep check`: what was typed, made into a run, and the run into an exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from instep.check import tools
from instep.check.discovery import Ignore
from instep.check.options import CACHE_FOLDER, Settings, configure, words
from instep.check.outcome import as_finding
from instep.check.progress import Progress
from instep.check.quotes import Quotes
from instep.check.run import Run, Stdin, check, settle
from instep.check.sources import STDIN
from instep.check.workers import cores, rare_collections
from instep.commands.present import Result, present, say
from instep.commands.printable import printable
from instep.errors import CheckError
from instep.rules.registry import names
from instep.trace.plain import dataclass, replace

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from instep.check.config import Config
    from instep.check.outcome import Outcome
    from instep.check.run import Checked

CLEAN, FOUND, CANNOT_RUN = 0, 1, 2


@dataclass(frozen=True)
class _Plan:
    """A run that can begin, and what is wanted of it."""

    run: Run
    options: argparse.Namespace

    @property
    def config(self) -> Config:
        """The settings of the project, with what was typed."""
        return self.run.settings.config

    @property
    def writes(self) -> bool:
        """Whether fixes go into files."""
        return bool(self.options.fix and not self.options.diff)


def run(options: argparse.Namespace) -> int:
    """Check, report, and say with the exit code how it went."""
    with rare_collections():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    _refuse(options)
    plan = _planned(options)
    is_watched = sys.stderr.isatty() and not options.quiet
    with Progress(sys.stderr, is_on=is_watched) as progress:
        checked = check(plan.run, progress)
    failures = _write(plan, checked.outcomes) if plan.writes else []
    result = _result(plan, settle(plan.run, checked))
    present(result, options)
    for failure in failures:
        say(sys.stderr, f"instep: {printable(failure)}\n")
    if failures or (result.files and len(result.diagnostics) == len(result.files)):
        return CANNOT_RUN
    if options.write_baseline is not None:
        return CLEAN
    return FOUND if _fails(plan, result) else CLEAN


def _is_source(file: str | None) -> bool:
    return file is not None and str(file).endswith((".py", ".pyw", ".ipynb"))


def _refuse(options: argparse.Namespace) -> None:
    """Refuse what contradicts itself, before anything is read."""
    said = [
        (options.jobs is not None and options.jobs < 1, "--jobs: it takes at least one process."),
        (not all(options.paths), "a path is empty."),
        (
            options.stdin_filename is not None and STDIN not in options.paths,
            "--stdin-filename: standard input is not among the paths.",
        ),
        (
            options.write_baseline is not None and options.diff,
            "--write-baseline and --diff: a file would be written, and none may be.",
        ),
        (
            any(_is_source(file) for file in (options.output_file, options.write_baseline)),
            "--output-file and --write-baseline: that is a source file, which would be lost.",
        ),
        (
            options.statistics and options.output_format not in {"text", "json"},
            f"--statistics: there are none in the format {options.output_format}.",
        ),
    ]
    for is_wrong, what in said:
        if is_wrong:
            raise CheckError(
                what,
                why="an option that cannot be followed would be skipped in silence.",
                fix="change or leave out the option; instep check --help lists them all.",
                more="checking",
            )


def _planned(options: argparse.Namespace) -> _Plan:
    rules = names()
    stdin = None
    paths: list[str] = options.paths
    if STDIN in paths:
        stdin = Stdin(_stdin(), options.stdin_filename or STDIN)
    config = configure(
        [stdin.path if path == STDIN and stdin else path for path in paths],
        rules,
        file=options.config,
        select=options.select,
        ignore=options.ignore,
        level=options.severity,
    )
    known = options.baseline or config.baseline
    baseline = None
    if known is not None and not options.write_baseline:
        from instep.check.baseline import read_baseline  # noqa: PLC0415  # loaded where it is used

        baseline = read_baseline(known)
    settings = Settings(
        config,
        rules,
        fixes=options.fix or options.diff,
        unsafe=options.unsafe_fixes,
        baseline=baseline,
    )
    here = Ignore.globs(Path.cwd(), words(options.exclude))
    jobs = cores() if options.jobs is None else options.jobs
    folder = None if options.no_cache else _cache_folder(options, config)
    run = Run(settings, paths, [here], stdin=stdin, jobs=jobs, cache=folder, load=tools.load)
    return _Plan(run, options)


def _stdin() -> bytes:
    try:
        return sys.stdin.buffer.read()
    except (OSError, AttributeError, ValueError) as error:  # closed, or none at all
        raise CheckError(
            f"standard input cannot be read ({error}).",
            why="the path - stands for it.",
            fix="pipe a file into it, or name the file instead.",
            more="paths",
        ) from error


def _cache_folder(options: argparse.Namespace, config: Config) -> str:
    given = options.cache_dir or os.environ.get("INSTEP_CACHE_DIR")
    if given:
        return str(given)
    root = Path.cwd() if config.source is None else config.root
    return str(root / CACHE_FOLDER)


def _write(plan: _Plan, outcomes: Sequence[Outcome]) -> list[CheckError]:
    """Write the mended files; one that cannot be written does not keep the others from it."""
    from instep.check.writing import refuse_link, write_file  # noqa: PLC0415  # loaded where it is used

    failures = []
    for outcome in outcomes:
        if outcome.after is None or outcome.before is None:
            continue
        if plan.run.stdin is not None and outcome.path == plan.run.stdin.path:
            continue
        try:
            refuse_link(outcome.path, plan.options.paths)
            write_file(outcome.path, outcome.before, outcome.after)
        except CheckError as error:
            failures.append(error)
    return failures


def _result(plan: _Plan, checked: Checked) -> Result:
    stdin, settings = plan.run.stdin, plan.run.settings
    contents = {o.path: o.after for o in checked.outcomes if o.after is not None}
    if stdin is not None:
        contents.setdefault(stdin.path, stdin.data)
    quotes = Quotes(contents)
    findings = tuple(finding for outcome in checked.outcomes for finding in outcome.findings)
    result = Result(
        files=checked.files,
        outcomes=checked.outcomes,
        findings=findings,
        diagnostics=tuple(
            outcome.diagnostic
            for outcome in checked.outcomes
            if outcome.diagnostic is not None and settings.tells_unchecked(outcome.path)
        ),
        quotes=quotes,
        stdin=stdin,
    )
    if plan.options.write_baseline is not None:
        from instep.check.baseline import write_baseline  # noqa: PLC0415  # loaded where it is used

        write_baseline(plan.options.write_baseline, findings, quotes.line)
        return replace(result, written=plan.options.write_baseline)
    if settings.baseline is None:
        return result
    held = settings.baseline.filter(findings, quotes.line, checked=checked.files)
    return replace(result, findings=held.new, known=len(held.known), stale=len(held.stale))


def _fails(plan: _Plan, result: Result) -> bool:
    reported = [*result.findings, *map(as_finding, result.diagnostics)]
    if plan.options.diff and any(outcome.fixed for outcome in result.outcomes):
        return True
    return any(finding.severity >= plan.config.severity for finding in reported)
