"""Lines over updates as inline SVG: readable as they are, and with a cursor where scripts run.

The drawing is stretched to its box, so lines keep their width and all words are HTML, which does
not stretch.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from instep.reports.escape import visible
from instep.reports.scales import Scale, averaged, scale_of, short, thinned
from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from instep.reports.record import Point, Record

_SIDE = 1000
"""Of the square that is stretched to the box."""
_DENSE = 160
"""Points from which on a line is a band, and its mean is drawn over it."""
_MOST_OWNERS = 6
"""Optimizers whose lines are told apart by colour."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """One chart: the lines it shows, and how."""

    title: str
    lines: tuple[tuple[str, str], ...]
    """Names of lines, and what each is called where there are several."""
    about: str
    may_be_log: bool = False
    from_zero: bool = False


_KINDS = (
    _Kind("Loss", (("loss", ""),), "mean of each window, before any factor"),
    _Kind(
        "Gradient norm",
        (("clip_norm", "before clipping"), ("grad_norm", "as used")),
        "over all parameters of the optimizer",
        may_be_log=True,
    ),
    _Kind(
        "Update-to-weight ratio",
        (("update_ratio", ""),),
        "change of the largest weight over its size; near 1e-3 is usual",
        may_be_log=True,
    ),
    _Kind("Learning rate", (("lr", ""),), "of the first parameter group", from_zero=True),
    _Kind("Skipped steps", (("skipped", ""),), "so far", from_zero=True),
)


@dataclass(frozen=True, slots=True)
class _Line:
    label: str
    owner: int
    style: str
    points: list[Point]
    mean: list[Point]
    """Drawn over the points where there are many; empty: they are drawn alone."""


def charts(record: Record) -> tuple[str, list[dict[str, Any]]]:
    """Return the charts as HTML, and what a cursor over them needs."""
    html: list[str] = []
    data: list[dict[str, Any]] = []
    for kind in _KINDS:
        lines = list(_lines(kind, record))
        if not lines:
            continue
        last = max(owner.updates for owner in record.optimizers) if record.optimizers else 1
        across = Scale(1.0, float(max(last, 2)))
        points = [point for line in lines for point in line.points]
        up = scale_of(
            (value for _, _, value in points), may_be_log=kind.may_be_log, from_zero=kind.from_zero
        )
        html.append(_figure(kind, lines, across, up, number=len(data)))
        data.append(_data(kind, lines, across, up))
    return "\n".join(html), data


def _lines(kind: _Kind, record: Record) -> Iterator[_Line]:
    many = len(record.optimizers) > 1
    for number, owner in enumerate(record.optimizers[:_MOST_OWNERS]):
        for name, said in kind.lines:
            points = record.lines.get(f"{name}/{owner.name}")
            if not points:
                continue
            parts = [visible(owner.name)] if many else []
            label = " ".join([*parts, *([said] if said else [])]) or kind.title.lower()
            style = "before" if name == "clip_norm" else "after"
            # A rate is what somebody has set: it has no noise to look through.
            is_noisy = name not in {"lr", "skipped"} and len(points) >= _DENSE
            mean = averaged(points) if is_noisy else []
            shown = thinned(points) if name != "skipped" else _stairs(points, owner.updates)
            yield _Line(label, number, style, shown, mean)


def _stairs(points: Sequence[Point], last: int) -> list[Point]:
    """Return a count that stays what it is until it changes.

    >>> _stairs([(3, 0.3, 1.0)], 5)
    [(1, 0.3, 0.0), (3, 0.3, 0.0), (3, 0.3, 1.0), (5, 0.3, 1.0)]
    """
    kept = thinned(points)
    made: list[Point] = [(1, kept[0][1], 0.0)]
    for update, time, value in kept:
        made += [(update, time, made[-1][2]), (update, time, value)]
    return [*made, (max(last, made[-1][0]), made[-1][1], made[-1][2])]


def _figure(kind: _Kind, lines: Sequence[_Line], across: Scale, up: Scale, *, number: int) -> str:
    ticks = [(short(value), 1 - up.at(value)) for value in up.ticks()]
    whole = (value for value in across.ticks(4) if value == round(value))
    updates = [(f"{value:,.0f}", across.at(value)) for value in whole]
    grid = "".join(f'<path d="M0 {_px(y)}H{_SIDE}"/>' for _, y in ticks)
    drawn = "".join(
        f'<path class="o{line.owner} {line.style}{faint}" d="{_path(points, across, up)}"/>'
        for is_mean in (False, True)
        for line in lines
        if (points := line.mean if is_mean else line.points)
        for faint in (" band" if line.mean and not is_mean else "",)
    )
    alone = "".join(_alone(line, across, up) for line in lines)
    broken = "".join(_broken(line.points, across) for line in lines)
    side = "".join(f'<i style="top:{y * 100:.2f}%">{escape(said)}</i>' for said, y in ticks)
    foot = "".join(f'<i style="left:{x * 100:.2f}%">{said}</i>' for said, x in updates)
    key = "".join(
        f'<li class="o{line.owner} {line.style}">{escape(line.label)}</li>' for line in lines
    )
    latest = "; ".join(f"{line.label} {short(line.points[-1][2])}" for line in lines)
    said = f"{kind.title} over {len(lines[0].points)} points; latest: {latest}"
    log = " <small>log scale</small>" if up.is_log else ""
    mean = " · bold: the running mean" if any(line.mean for line in lines) else ""
    bad = '<li class="broken">not finite</li>' if broken else ""
    return f"""<figure class="chart">
<figcaption><b>{kind.title}</b>{log}<span>{escape(kind.about + mean)}</span></figcaption>
<div class="plot" data-chart="{number}" tabindex="0" role="img" aria-label="{escape(said)}">
<div class="side" aria-hidden="true">{side}</div>
<svg viewBox="0 0 {_SIDE} {_SIDE}" preserveAspectRatio="none" aria-hidden="true">\
<g class="grid">{grid}</g>{broken}{drawn}{alone}</svg>
<div class="foot" aria-hidden="true">{foot}</div>
</div>
<p class="across">update</p>
<ul class="key">{key if len(lines) > 1 or bad else ""}{bad}</ul>
</figure>"""


def _path(points: Sequence[Point], across: Scale, up: Scale) -> str:
    said: list[str] = []
    pen = "M"
    for update, _, value in points:
        if math.isfinite(value):
            said.append(f"{pen}{_px(across.at(update))} {_px(1 - up.at(value))}")
            pen = "L"
        else:
            pen = "M"
    return "".join(said)


def _alone(line: _Line, across: Scale, up: Scale) -> str:
    """Return the points that no line goes to, as dots: round ends of lines without a length."""
    finite = [False, *(math.isfinite(value) for _, _, value in line.points), False]
    dots = "".join(
        f"M{_px(across.at(update))} {_px(1 - up.at(value))}h0"
        for number, (update, _, value) in enumerate(line.points, start=1)
        if finite[number] and not finite[number - 1] and not finite[number + 1]
    )
    return f'<path class="o{line.owner} dot" d="{dots}"/>' if dots else ""


def _broken(points: Sequence[Point], across: Scale) -> str:
    places = {_px(across.at(update)) for update, _, value in points if not math.isfinite(value)}
    return "".join(f'<path class="broken" d="M{x} 0V{_SIDE}"/>' for x in sorted(places))


def _px(share: float) -> int:
    return round(min(max(share, 0.0), 1.0) * _SIDE)


def _data(kind: _Kind, lines: Sequence[_Line], across: Scale, up: Scale) -> dict[str, Any]:
    return {
        "title": kind.title,
        "lines": [
            {
                "label": line.label,
                "owner": line.owner,
                "style": line.style,
                # Where it is, from the left and from the top, and what is said of it.
                "points": [
                    [
                        update,
                        _px(across.at(update)),
                        _px(1 - up.at(value)) if math.isfinite(value) else None,
                        short(value),
                    ]
                    for update, _, value in line.points
                ],
            }
            for line in lines
        ],
    }
