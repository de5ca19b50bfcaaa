"""The picture of the tour's satellite images: all of them, and where patches meet, enlarged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from examples.tour.satellite import CREDIT

TITLE = "×2 super-resolution from patches"
WINDOW = 40
"""Pixels of the truth in an enlarged piece."""
YELLOW = "#ffd400"
GAIN = 20
"""How much differences are enhanced."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A picture, its PSNR, and what its model makes of the image in one piece."""

    picture: Tensor
    decibels: float
    in_one_piece: Tensor | None


def draw(path: Path, *, panels: dict[str, Panel], truth: Tensor, cut: int) -> None:
    """Save the pictures beside the truth, what they show where patches meet, and the seams."""
    figure = Figure(figsize=(15, 9), layout="constrained")
    rows = figure.subplots(3, len(panels) + 1)
    figure.suptitle(TITLE)
    top, left = _busiest(truth, cut)
    shown = [(f"{name}\n{panel.decibels:.2f} dB", panel.picture) for name, panel in panels.items()]
    for column, (title, picture) in enumerate([*shown, ("truth", truth)]):
        whole, piece = rows[0][column], rows[1][column]
        _show(whole, picture)
        whole.set_title(title, fontsize=10)
        frame = Rectangle((left - 0.5, top - 0.5), WINDOW, WINDOW, fill=False, color=YELLOW)
        whole.add_patch(frame)
        _show(piece, _window(picture, top, left))
        _mark(piece)
        rows[2][column].axis("off")
    for column, panel in enumerate(panels.values()):
        if panel.in_one_piece is not None:
            seams = rows[2][column]
            seams.axis("on")
            _show(seams, _window(panel.picture - panel.in_one_piece, top, left).abs() * GAIN)
            _mark(seams)
            seams.set_title(f"difference from the same model in one piece × {GAIN}", fontsize=9)
    rows[1][0].set_ylabel("where four patches meet")
    figure.supxlabel(f"{CREDIT}. Yellow lines: borders between patches.", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _mark(axes: Axes) -> None:
    axes.axhline(WINDOW / 2 - 0.5, color=YELLOW, lw=0.5, alpha=0.6)
    axes.axvline(WINDOW / 2 - 0.5, color=YELLOW, lw=0.5, alpha=0.6)


def _busiest(truth: Tensor, cut: int) -> tuple[int, int]:
    """Return the corner of the window around a crossing of cuts that has the most detail."""
    half = WINDOW // 2
    rows = range(cut, truth.shape[-2] - half, cut)
    columns = range(cut, truth.shape[-1] - half, cut)
    corners = [(row - half, column - half) for row in rows for column in columns]
    return max(corners, key=lambda corner: float(_window(truth, *corner).std()))


def _window(picture: Tensor, top: int, left: int) -> Tensor:
    return picture[:, top : top + WINDOW, left : left + WINDOW]


def _show(axes: Axes, picture: Tensor) -> None:
    axes.imshow(picture.clamp(0, 1).permute(1, 2, 0).numpy(), interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
