"""`make simulate-scale`: a window on up to 16,384 ranks, and what failures cost."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import write_section
from benchmarks.scale import picture, tables
from benchmarks.scale.assumed import Assumed

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"

SECTIONS: dict[str, Callable[[Assumed], str]] = {
    "gloo": lambda _: tables.gloo(),
    "gpu": lambda _: tables.device(),
    "windows": tables.windows,
    "uneven": tables.slowest,
    "failures": tables.lost,
    "together": tables.together,
}
"""By the name of their place in the page."""


def main(arguments: list[str] | None = None) -> int:
    """Print the tables; exit 2 if they are asked to be written with other assumptions."""
    options = _parser().parse_args(arguments)
    fields = [field.name for field in dataclasses.fields(Assumed)]
    assumed = Assumed(**{name: getattr(options, name) for name in fields})
    if options.write and assumed != Assumed():
        print("docs/scale.md has the tables of the usual assumptions.", file=sys.stderr)
        return 2
    if options.measure:
        from benchmarks.scale.measure import DATA, measure

        text = json.dumps(measure(), indent=1)
        DATA.write_text(f"{text}\n", encoding="utf-8")
    for name, section in SECTIONS.items():
        if options.only and name not in options.only:
            continue
        body = section(assumed)
        print(f"## {name}\n\n{body}\n", flush=True)
        if options.write:
            write_section(f"scale-{name}", body, PAGE)
    if options.write:
        picture.draw(assumed)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure 1 to 8 gloo ranks anew")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/scale.md")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS))
    for field in dataclasses.fields(Assumed):
        name, usual = field.name.replace("_", "-"), field.default
        kind = int if isinstance(usual, int) else float
        parser.add_argument(f"--{name}", type=kind, default=usual, help=f"default: {usual}")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
