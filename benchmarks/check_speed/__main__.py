"""`python -m benchmarks.check_speed`: lines per CPU second of `instep check` and of others."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.check_speed.tools import (
    INSTEP,
    Cost,
    Tool,
    ToolFailedError,
    lines_per_second,
    take_turns,
    times_slower,
    tools,
)
from benchmarks.check_speed.tree import Tree, copied, loops_alone, mixed
from benchmarks.report import table, versions, write_section

PACKAGES = ("ruff", "torchfix", "libcst")
HEADER = (
    "checker",
    "tree, lines/s",
    "× the CPU time of instep",
    "loop files alone, lines/s",
    "× the CPU time of instep",
)
Costs = dict[str, list[Cost]]


def main(arguments: list[str] | None = None) -> int:
    """Exit 0 when the table was made, 1 when a checker failed, 2 when it or the tree is missing."""
    options = _parser().parse_args(arguments)
    contestants, missing = tools()
    if missing and options.require_peers:
        print(f"a peer is missing: {', '.join(missing)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="check-speed-") as folder:
        trees = _trees(options.tree, Path(folder))
        if not all(tree.files for tree in trees):
            print("no Python file with a training loop to measure on", file=sys.stderr)
            return 2
        try:
            body = _body(contestants, missing, trees, options.rounds)
        except ToolFailedError as error:
            print(error, file=sys.stderr)
            return 1
    print(body)
    if options.write:
        write_section("check-speed", body)
    return 0


def _trees(source: Path | None, folder: Path) -> tuple[Tree, Tree]:
    whole, loops = folder / "whole", folder / "loops"
    if source is None:
        return mixed(whole), loops_alone(loops)
    return copied(source, whole), copied(source, loops, only_loops=True)


def _body(
    contestants: Sequence[Tool], missing: Sequence[str], trees: tuple[Tree, Tree], rounds: int
) -> str:
    measured = [take_turns(contestants, [str(tree.folder)], rounds) for tree in trees]
    whole, loops = trees
    conditions = (
        f"Tree: {whole.text}. Loop files alone: {loops.files:,} files, {loops.lines:,} lines. "
        f"Medians of {rounds} rounds; CPU seconds from start to end of the command, one process, "
        f"no cache. Versions: {versions(PACKAGES)}."
    )
    rows = [_row(tool.name, trees, measured) for tool in contestants]
    rows += [[name, "not installed", "", "", ""] for name in missing]
    return "\n\n".join((table(HEADER, rows), _start(rounds), conditions))


def _row(name: str, trees: Sequence[Tree], measured: Sequence[Costs]) -> list[str]:
    cells = [name]
    for tree, costs in zip(trees, measured, strict=True):
        ratio = times_slower(costs[name], costs[INSTEP])
        cells += [
            f"{lines_per_second(costs[name], tree.lines):,.0f}",
            "1" if name == INSTEP else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}",
        ]
    return cells


def _start(rounds: int) -> str:
    """What it takes to say `--help`, beside an interpreter that does nothing."""
    ours = Tool("ours", (sys.executable, "-m", "instep", "check", "--help"))
    nothing = Tool("nothing", (sys.executable, "-c", "pass"))
    # Short runs are cheap and noisy.
    costs = take_turns([ours, nothing], [], 5 * rounds)
    said = [
        f"{1000 * median(cost.cpu for cost in costs[tool.name]):.0f} ms of CPU time "
        f"({1000 * median(cost.wall for cost in costs[tool.name]):.0f} ms on the wall)"
        for tool in (ours, nothing)
    ]
    return f"`instep check --help` takes {said[0]}, `python -c pass` {said[1]}."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check_speed", description=__doc__)
    parser.add_argument("--tree", type=Path, help="check a copy of this project instead")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--write", action="store_true", help="put the table into the README")
    parser.add_argument("--require-peers", action="store_true", help="a missing peer is an error")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
