"""The picture of the training stop: two loss curves, and how far each run is from the reference."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

TITLE = "Ragged micro-batches: instep follows the large batch, the textbook loop does not"
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
