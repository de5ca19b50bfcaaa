"""Run every stop of the tour in order, then say what was seen."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from examples.tour.show import heading
from examples.tour.stop import Seen
from examples.tour.stops import STOPS


def tour(out: Path) -> list[Seen]:
    """Make every stop; the first that fails ends the tour with its error."""
    seen = []
    for number, (title, stop) in enumerate(STOPS.items(), start=1):
        heading(f"Stop {number} of {len(STOPS)}: {title}")
        try:
            seen.append(stop(out))
        except Exception as error:
            error.add_note(f"at stop {number} of the tour: {title}")
            raise
    return seen


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.tour", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"), help="where pictures are written")
    torch.set_num_threads(1)  # the work is tiny: more threads only wait for each other
    seen = tour(parser.parse_args(arguments).out / "tour")
    pictures = [str(picture) for each in seen for picture in each.pictures]
    print()
    print("Seen:    ", "\n          ".join(each.sentence for each in seen))
    print("To see:  ", ", ".join(pictures))
    print("Next:     .venv/bin/instep check YOUR_PROJECT, then examples/when_to_zero_grad.py")


if __name__ == "__main__":
    main()
