"""The pictures of the tour: training runs, and loops before and after their fixes."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

TITLE = "Ragged micro-batches: instep follows the large batch, the textbook loop does not"
MENDED_TITLE = "Three wrong loops, before and after instep check --fix"
ROUNDING = 1e-17
"""Where a zero is drawn on a logarithmic axis."""
RED, BLUE, GREY = "#c8452e", "#1f6fb2", "#b8b8b8"


def draw(
    path: Path,
    *,
    losses: dict[str, list[float]],
    distances: dict[str, list[float]],
    reference: str,
) -> None:
    """Save the picture; `losses` has the reference too, `distances` only what is compared to it."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    figure.suptitle(TITLE)
    colours = dict(zip(distances, (RED, BLUE), strict=True))
    left.plot(_epochs(losses[reference]), losses[reference], color=GREY, lw=6, label=reference)
    for name, colour in colours.items():
        style = "--" if colour == BLUE else "-"
        left.plot(_epochs(losses[name]), losses[name], color=colour, ls=style, lw=1.6, label=name)
        right.plot(_epochs(distances[name]), distances[name], color=colour, lw=1.6, label=name)
    left.set_yscale("log")
    _describe(left, "Training loss", "loss over all labelled images (nats per image)")
    right.set_yscale("log")
    _describe(
        right, "Distance from the large-batch run", "distance / norm of the large-batch parameters"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _epochs(values: list[float]) -> range:
    return range(1, len(values) + 1)


def _describe(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("passes over the data (epochs)")
    axes.set_ylabel(unit)
    axes.grid(visible=True, which="major", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)


def draw_mended(path: Path, *, errors: dict[str, tuple[float, float]]) -> None:
    """Save how far each loop's update is from the whole batch's, before and after its fix."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    axes = figure.subplots()
    figure.suptitle(MENDED_TITLE)
    rows = range(len(errors))
    before, after = zip(*((b, max(a, ROUNDING)) for b, a in errors.values()), strict=True)
    axes.hlines(rows, after, before, color=GREY, lw=3, zorder=1)
    axes.scatter(before, rows, color=RED, s=90, label="as written", zorder=2)
    axes.scatter(after, rows, color=BLUE, s=90, label="mended", zorder=2)
    for row, (old, new) in enumerate(errors.values()):
        _label(axes, f"{old:.0%}", (old, row), right=9, up=0)
        _label(axes, f"{new:.0e}" if new else "0", (max(new, ROUNDING), row), right=-9, up=-16)
    axes.set_yticks(rows, errors.keys())
    axes.set_ylim(len(errors) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlim(ROUNDING / 3, 100 * max(before))
    axes.set_xlabel("error of an epoch's update, relative to whole batches (float64)")
    axes.grid(visible=True, axis="x", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _label(axes: Axes, text: str, at: tuple[float, int], *, right: int, up: int) -> None:
    axes.annotate(text, at, xytext=(right, up), textcoords="offset points", va="center")
