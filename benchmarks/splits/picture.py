"""The picture of memory: one panel per network, one line per way."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

PICTURE = Path(__file__).parents[2] / "docs" / "img" / "patch-memory.png"
COLOURS = {"whole": "#c8452e", "checkpointed": "#8a8a8a", "patches": "#1f6fb2"}


def draw(
    found: Mapping[tuple[str, str], Sequence[float]],
    sides: Sequence[int],
    patch: int,
    path: Path = PICTURE,
) -> None:
    """Save MiB at the peak, by network and way, over the side of the image."""
    networks = list(dict.fromkeys(network for network, _ in found))
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subplots(1, len(networks), sharey=True, squeeze=False)[0]
    figure.suptitle("Peak memory of one update as the image grows")
    for axes, network in zip(panels, networks, strict=True):
        for way, colour in COLOURS.items():
            label = f"{way} of {patch}" if way == "patches" else way
            axes.plot(sides, found[network, way], color=colour, marker="o", lw=1.8, label=label)
        axes.set_title(network, fontsize=11)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(sides, [str(side) for side in sides])
        axes.yaxis.set_major_formatter("{x:.0f}")
        axes.set_xlabel("side of the square image (pixels)")
        axes.grid(visible=True, alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("peak memory of the process (MiB)")
    panels[0].legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
