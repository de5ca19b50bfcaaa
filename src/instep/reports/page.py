"""The page of a job: one file with everything in it, that needs no network and no other file.

Findings, numbers and charts are plain HTML, so that they can be read where scripts do not run; a
script draws the timeline and adds a cursor to the charts. Nothing of the user's job reaches the
page unescaped.
"""

from __future__ import annotations

from collections import Counter
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from instep.reports.cards import cards
from instep.reports.charts import charts
from instep.reports.encode import compact
from instep.reports.escape import visible
from instep.reports.files import put
from instep.reports.happenings import KINDS
from instep.reports.scales import span
from instep.reports.spans import spans
from instep.reports.timeline import timeline
from instep.rules import Severity

if TYPE_CHECKING:
    from pathlib import Path

    from instep.reports.record import Record

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_NOUNS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_ENDINGS = {
    "finished": "finished",
    "running": "still running when this was written",
    "failed": "failed",
    "interrupted": "interrupted",
    "killed": "killed",
}


def render(record: Record) -> str:
    """Return the whole page."""
    drawn, cursor = charts(record)
    data = {"timeline": timeline(record), "charts": cursor}
    title = escape(visible(record.title))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title} · instep</title>
<style>
{_asset("page.css")}</style>
</head>
<body>
<a class="skip" href="#findings">Skip to the findings</a>
{_head(record)}
<main>
{_tiles(record)}
{_findings(record)}
{_timeline(record)}
{_charts(drawn)}
{_about(record)}
</main>
<script type="application/json" id="data">{_inert(compact(data))}</script>
<script>
{_asset("timeline.js")}{_asset("hand.js")}{_asset("cursor.js")}</script>
</body>
</html>
"""


def write(record: Record, path: str | Path) -> None:
    """Write the page; OSError if it cannot be written."""
    put(path, render(record))


def _asset(name: str) -> str:
    return (resources.files("instep.reports") / "assets" / name).read_text(encoding="utf-8")


def _inert(json: str) -> str:
    """Return JSON in which nothing can end the element that it stands in."""
    return json.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _head(record: Record) -> str:
    counts = Counter(finding.severity for finding in record.findings)
    worst = max(counts, default=None)
    said = ", ".join(_count(counts[each], _NOUNS[each]) for each in sorted(counts, reverse=True))
    links = "".join(
        f'<a href="#{name.lower()}">{name}</a>'
        for name in ("Findings", "Timeline", "Charts", "Run")
        if name != "Timeline" or record.optimizers
    )
    mood = ("info" if record.unheard else "clean") if worst is None else worst.word
    nothing = "No problems found so far" if record.unheard else "No problems found"
    command = " ".join(record.command) or record.title
    rank = f" · rank {record.rank} of {record.ranks}" if record.ranks > 1 else ""
    ending = _ENDINGS.get(record.ending, record.ending)
    ending += f" · {_ranks(record.unheard)} not heard to the end" if record.unheard else ""
    error = "" if record.error is None else f'<p class="fault">{escape(visible(record.error))}</p>'
    began = "" if record.began is None else f"{record.began} · "
    return f"""<header class="top">
<div class="bar">
<span class="brand">{_asset("mark.svg").strip()}<b>instep</b> <i>watch</i></span>
<nav aria-label="Sections">{links}</nav>
</div>
<p class="verdict {mood}"><span class="dot" aria-hidden="true"></span>\
{said or nothing}</p>
<h1>{escape(visible(command))}</h1>
<p class="sub">{escape(visible(f"{began}{ending}{rank}"))}</p>
{error}</header>"""


def _tiles(record: Record) -> str:
    skipped = sum(owner.skipped for owner in record.optimizers)
    tiles = {
        "updates": f"{record.updates:,}",
        "windows": f"{record.updates + skipped:,}",
        "backwards in a window": _sizes(record),
        "skipped steps": f"{skipped:,}",
        "watched": span(record.seconds),
    }
    made = "".join(
        f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles.items()
    )
    return f'<dl class="tiles">{made}</dl>'


def _sizes(record: Record) -> str:
    """Return how many backwards windows have: one number, or from the least to the most."""
    counted = sum(_counted(record).values(), Counter[int]())
    if not counted:
        return "none"
    least, most = min(counted), max(counted)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _usual(record: Record) -> dict[str, str]:
    """Return how many backwards the windows of each optimizer have, and most of them."""
    said: dict[str, str] = {}
    for name, counted in _counted(record).items():
        size, times = counted.most_common(1)[0]
        others = counted.total() - times
        said[name] = f"{size:,}" if not others else f"{size:,} ({others:,} of others)"
    return said


def _counted(record: Record) -> dict[str, Counter[int]]:
    sizes: dict[str, Counter[int]] = {}
    for each in spans(record):
        sizes.setdefault(each.optimizer, Counter())[each.backwards] += 1
    return sizes


def _findings(record: Record) -> str:
    if record.findings:
        body = cards(record)
    elif record.updates:
        but = f" {_alone(record)}" if record.unheard else ""
        body = f'<p class="calm">Every window that was seen closed as it should.{but}</p>'
    else:
        why = ' <a href="#run">What was not seen</a> may say why.' if record.unseen else ""
        body = f'<p class="calm">No update was seen, so there was no window to judge.{why}</p>'
    return f'<section id="findings" aria-label="Findings">\n<h2>Findings</h2>\n{body}\n</section>'


def _timeline(record: Record) -> str:
    if not record.optimizers:
        return ""
    kinds = "".join(
        f'<button type="button" data-kind="{kind}" aria-pressed="true">{name}</button>'
        for kind, name in KINDS.items()
    )
    return f"""<section id="timeline" aria-label="Timeline">
<h2>Timeline</h2>
<noscript><p class="calm">The timeline is drawn by a script, and scripts are off.</p></noscript>
<div class="drawn" hidden>
<div class="tools">
<div class="legend" role="group" aria-label="What is shown">{kinds}</div>
<div class="zoom" role="group" aria-label="Zoom">
<button type="button" data-do="first">First</button>\
<button type="button" data-do="last">Last</button>\
<button type="button" data-do="all">All</button>
<button type="button" data-do="out" aria-label="Zoom out">−</button>\
<button type="button" data-do="in" aria-label="Zoom in">+</button>
</div>
</div>
<div class="stage">
<canvas id="lanes" tabindex="0" role="img" aria-describedby="keys" \
aria-label="Windows of each optimizer over time"></canvas>
<div class="tip" id="tip" hidden></div>
</div>
<p class="keys" id="keys">Wheel or <kbd>+</kbd> <kbd>−</kbd> to zoom, drag or <kbd>←</kbd> \
<kbd>→</kbd> to move, <kbd>[</kbd> <kbd>]</kbd> to go from event to event, <kbd>0</kbd> for all.</p>
<p class="unseen" id="said" aria-live="polite"></p>
</div>
</section>"""


def _charts(drawn: str) -> str:
    body = (
        f'<div class="charts">\n{drawn}\n</div>'
        if drawn
        else ('<p class="calm">Nothing was measured.</p>')
    )
    return f'<section id="charts" aria-label="Charts">\n<h2>Charts</h2>\n{body}\n</section>'


def _about(record: Record) -> str:
    usual = _usual(record)
    rows = "".join(
        f"<tr><th scope=row><code>{escape(visible(o.name))}</code></th>"
        f"<td>{escape(visible(o.type or ''))}</td><td>{o.updates - o.skipped:,}</td>"
        f"<td>{o.skipped:,}</td><td>{usual.get(o.name, '')}</td></tr>"
        for o in record.optimizers
    )
    table = (
        '<div class="wide"><table><thead><tr><th scope=col>optimizer<th scope=col>type'
        "<th scope=col>updates<th scope=col>skipped<th scope=col>backwards in a window</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )
    versions = "".join(
        f"<div><dt>{escape(visible(name))}</dt><dd>{escape(visible(value))}</dd></div>"
        for name, value in record.versions.items()
    )
    missed = (_alone(record), *record.unseen) if record.unheard else record.unseen
    unseen = "".join(f"<li>{escape(visible(each))}</li>" for each in missed)
    return f"""<section id="run" aria-label="Run">
<h2>Run</h2>
{table if rows else ""}
<dl class="versions">{versions}</dl>
<h3>What was not seen</h3>
{f"<ul>{unseen}</ul>" if unseen else "<p>Nothing that is known of.</p>"}
</section>"""


def _alone(record: Record) -> str:
    """Say what is not known of ranks that were still running."""
    return (
        f"This page was written before {_ranks(record.unheard)} had come to the end: what is found "
        "there later is told there, and is not on this page."
    )


def _ranks(numbers: tuple[int, ...]) -> str:
    return f"rank{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
