"""The checkers as commands, and what a run of one costs."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

PARSE_ALONE = """
import ast, os, sys, warnings
warnings.simplefilter("ignore")
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        if name.endswith(".py"):
            with open(os.path.join(folder, name), "rb") as file:
                ast.parse(file.read())
"""
# What is left of `instep check` if it neither executes nor judges: start, look, parse.
FLOOR = """
import ast, os, sys, warnings
import instep.check.judge, instep.rules.registry
from instep.check.words import wanted
instep.rules.registry.rulebook()
warnings.simplefilter("ignore")
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        if name.endswith(".py"):
            with open(os.path.join(folder, name), "rb") as file:
                source = file.read()
            if wanted(source.decode("utf-8", "replace")):
                ast.parse(source)
"""
# What a checker may answer: nothing found, or something found.
ANSWERS = (0, 1)


class ToolFailedError(Exception):
    """A checker did not finish: its seconds would say nothing."""


@dataclass(frozen=True)
class Tool:
    """A command that is given a folder as its last argument."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """CPU seconds (user and system, with those of its own children), and seconds on the wall."""

    cpu: float
    wall: float


INSTEP = "**`instep check`**"
COMPILED = Path(__file__).parents[2] / ".venv-compiled" / "bin" / "python"
"""Where `make compiled` has put a build whose executor is compiled."""
CHECK = ("-m", "instep", "check", "--no-cache", "--jobs", "1")


def tools() -> tuple[list[Tool], list[str]]:
    """Those that are installed, ourselves first, and the names of the missing."""
    beside = str(Path(sys.executable).parent)
    ruff, torchfix = (shutil.which(name, path=beside) for name in ("ruff", "torchfix"))
    found = [
        Tool(INSTEP, (sys.executable, *CHECK)),
        *_compiled(),
        Tool("its start and its parsing alone", (sys.executable, "-c", FLOOR)),
        Tool("`ast.parse` alone", (sys.executable, "-I", "-S", "-c", PARSE_ALONE)),
    ]
    missing = []
    if ruff:
        # Concise, which costs Ruff least; --exclude because its own list has names like "build".
        options = ("--select", "ALL", "--no-cache", "--isolated", "--output-format", "concise")
        command = (ruff, "check", *options, "--exclude", "nothing-is-left-out")
        found.append(Tool("Ruff, all rules", command, {"RAYON_NUM_THREADS": "1"}))
    else:
        missing.append("Ruff, all rules")
    if torchfix:
        found.append(Tool("TorchFix, all rules", (torchfix, "--select", "ALL", "--jobs", "1")))
    else:
        missing.append("TorchFix, all rules")
    return found, missing


def _compiled() -> list[Tool]:
    # A path to a checkout must not put its modules in the place of those that are compiled.
    tool = Tool("`instep check`, compiled", (str(COMPILED), *CHECK), {"PYTHONPATH": ""})
    return [tool] if COMPILED.exists() else []


def run(tool: Tool, *arguments: str) -> Cost:
    """One run in a process of its own, with the output thrown away."""
    with tempfile.TemporaryFile() as complaints, tempfile.TemporaryDirectory() as nowhere:
        started = time.perf_counter()
        process = subprocess.Popen(
            [*tool.command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            env={**_surroundings(), **tool.environment},
            # Not the root of this repository: its settings and modules are nobody's business. Nor
            # where others leave things: `python -m` looks through all of them at the first import.
            cwd=nowhere,
        )
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        complaints.seek(0)
        said = complaints.read().decode(errors="replace")
    if process.returncode not in ANSWERS or "Traceback (most recent call last)" in said:
        tail = "\n".join(said.splitlines()[-5:])
        raise ToolFailedError(f"{tool.name} ended with {process.returncode}:\n{tail}")
    return Cost(used.ru_utime + used.ru_stime, wall)


def _surroundings() -> dict[str, str]:
    """Return the environment, without what keeps Python from keeping bytecode: installed tools
    have theirs, and a checkout gets it in the first round.
    """
    kept = dict(os.environ)
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept


def take_turns(
    contestants: Sequence[Tool],
    arguments: Sequence[str],
    rounds: int,
    *,
    runner: Callable[..., Cost] = run,
) -> dict[str, list[Cost]]:
    """Every round runs everybody once, and starts with another one each time.

    One round more goes ahead of them and does not count: it leaves bytecode and warm file buffers.
    """
    costs: dict[str, list[Cost]] = {tool.name: [] for tool in contestants}
    for tool in contestants:
        runner(tool, *arguments)
    for turn in range(rounds):
        shift = turn % len(contestants)
        for tool in (*contestants[shift:], *contestants[:shift]):
            costs[tool.name].append(runner(tool, *arguments))
    return costs


def lines_per_second(costs: Sequence[Cost], lines: int) -> float:
    """By the median of the CPU seconds."""
    return lines / median(cost.cpu for cost in costs)


def times_slower(costs: Sequence[Cost], ours: Sequence[Cost]) -> float:
    """How many of our runs fit into one of theirs: round by round, then the median."""
    return median(their.cpu / our.cpu for their, our in zip(costs, ours, strict=True))
