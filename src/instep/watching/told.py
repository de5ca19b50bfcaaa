"""What was found, for whoever holds the job: printed as people read it, or written to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.errors import WatchError
from instep.reports import page
from instep.reports.colours import Paint
from instep.reports.files import put
from instep.reports.options import Options, RuleInfo
from instep.reports.registry import render
from instep.reports.text import header
from instep.rules.finding import Finding
from instep.rules.registry import rulebook
from instep.watching.naming import format_of
from instep.watching.record_of import record_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from instep.watching.job import Job
    from instep.watching.quoting import Quoting


class Findings(tuple[Finding, ...]):
    """A tuple of findings that prints one line for each."""

    quoting: Quoting

    @classmethod
    def of(cls, findings: Iterable[Finding], quoting: Quoting) -> Findings:
        """Return findings, with where to read the lines that they speak of."""
        made = cls(findings)
        made.quoting = quoting
        return made

    def __str__(self) -> str:
        shown = (self.quoting.shown(finding) for finding in self)
        plain = Paint(is_on=False)
        return "\n".join(header(each, self.quoting, plain) for each in shown) or "no findings"

    def __repr__(self) -> str:
        # In a notebook it stands alone; what is empty should look so.
        return str(self) if self else "()"


def write(job: Job, path: str | Path) -> None:
    """Write a report whose format its name tells: .html, .json, .sarif or .txt."""
    name = format_of(path)
    try:
        if name is None:
            page.write(record_of(job, ending=job.ending), path)
        else:
            put(path, _text(job, name))
    except OSError as error:
        raise WatchError(
            f"{str(path)!r} was not written ({error.strerror or error}).",
            why="the report was to go there.",
            fix="check that its folder is there and can be written to.",
            more="watching",
        ) from error


def _text(job: Job, name: str) -> str:
    findings = [job.quoting.shown(finding) for finding in job.findings]
    rules = [
        RuleInfo(code, rule.NAME, rule.SUMMARY, rule.SEVERITY) for code, rule in rulebook().items()
    ]
    text = render(name, findings, job.quoting, Options(rules=tuple(rules)))
    return f"{text}\n{job.summary()}" if name == "text" else text
