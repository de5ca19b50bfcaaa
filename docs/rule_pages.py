"""Write docs/rules/, and the README's table of rules and sample output: `make docs`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import replace_section, table
from instep.check.fixing import with_fixes
from instep.check.judge import judge
from instep.check.problems import Diagnostic
from instep.check.sources import units_from_bytes
from instep.commands.explain import rule_page
from instep.rules.registry import rulebook, watched

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[1]
FOLDER = Path("docs/rules")
README = Path("README.md")
FAMILIES = {
    "INS1": "Clearing and stepping",
    "INS2": "Accumulation windows",
    "INS3": "Clipping and loss scaling",
    "INS4": "Learning-rate schedules",
    "INS5": "Parameters",
    "INS6": "Memory, time and modes",
}
ABOUT = (
    "Each page tells what happens to the update, why, how to mend it and when it is fine; "
    "`instep explain NAME` shows it in the terminal. Where there are two severities, the "
    "milder one is for loops that may well be right. What `instep check` reads in source, "
    "`instep watch` sees in a running job as well, but for one that it knows by another name; some "
    "mistakes only a running job can show."
)
MARK = "  # <- here"


def files() -> dict[Path, str]:
    """Return every generated file: its path from the root, and what has to be in it."""
    book = rulebook()
    made = {FOLDER / f"{rule.NAME}.md": page(code) for code, rule in book.items()}
    readme = (ROOT / README).read_text(encoding="utf-8")
    readme = replace_section(readme, "rules", _table(list(book), FOLDER.as_posix()))
    return {
        **made,
        FOLDER / "README.md": index(book),
        README: replace_section(readme, "output", output(book["INS303"].BAD.replace(MARK, ""))),
    }


def page(code: str) -> str:
    """Return the page of a rule as `instep explain` shows it, with its severity and its fix.

    The wrong example is wrong on purpose, and says so to the checker in the words that a user
    would need.
    """
    rule = rulebook()[code]
    title, _, rest = rule_page(code).partition("\n\n")
    silenced = rest.replace(MARK, f"{MARK}  # instep: ignore[{rule.NAME}]")
    ends = (
        "[All rules](README.md). The comment in the wrong example silences the rule on its line.\n"
    )
    return f"{title}\n\nSeverity: {_severity(rule)}. {_fix(rule)}\n\n{silenced}\n{ends}"


def output(source: str) -> str:
    """Return what a user sees of `instep check` on a file."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(source, encoding="utf-8")
        done = subprocess.run(  # our own command
            [sys.executable, "-m", "instep", "check", "train.py"],
            cwd=folder,
            env=os.environ | {"COLUMNS": "100", "NO_COLOR": "1"},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    if done.returncode != 1:
        raise ValueError(f"`instep check` finds nothing, or fails: {done.stderr}")
    return f"```text\n$ instep check train.py\n{done.stdout.rstrip()}\n```"


def index(book: dict[str, ModuleType]) -> str:
    """Return the list of all rules by family."""
    parts = [
        "# Rules",
        ABOUT,
    ]
    for family, title in FAMILIES.items():
        codes = [code for code in book if code.startswith(family)]
        parts += [f"## {title}", _table(codes, ".")]
    return "\n\n".join(parts) + "\n"


def stale(root: Path = ROOT) -> list[Path]:
    """Return the files under docs/rules and the README that are not what the rules say."""
    wanted = files()
    there = {path.relative_to(root) for path in (root / FOLDER).glob("*")}
    other = [path for path in wanted if _text(root / path) != wanted[path]]
    return sorted({*other, *(there - wanted.keys())})


def write(root: Path = ROOT) -> list[Path]:
    """Bring the files up to date, remove pages of rules that are gone, and say what changed."""
    wanted = files()
    changed = stale(root)
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    for path in changed:
        if path in wanted:
            (root / path).write_text(wanted[path], encoding="utf-8")
        else:
            (root / path).unlink()
    return changed


def _fix(rule: ModuleType) -> str:
    """Say what the fix does to the rule's own example."""
    if rule.CODE in watched():
        return "Seen by `instep watch` alone: it takes a running job to measure it."
    if not hasattr(rule, "mend"):
        return "No automatic fix."
    units = units_from_bytes(rule.BAD.encode(), "train.py")
    if isinstance(units, Diagnostic):
        raise TypeError(str(units))
    [unit] = units
    [finding] = with_fixes(unit, judge(unit), judge=judge)
    if finding.fix is None:
        raise ValueError(f"the fix of {rule.NAME} does not mend its own example")
    options = "--fix" if finding.fix.is_safe else "--fix --unsafe-fixes"
    return f"Mended by `instep check {options}`: {finding.fix.title}."


def _severity(rule: ModuleType) -> str:
    worst, mildest = rule.SEVERITY, getattr(rule, "MILDEST", rule.SEVERITY)
    if worst is mildest:
        return str(worst.word)
    return f"{worst.word} {'or' if worst - mildest == 1 else 'to'} {mildest.word}"


def _table(codes: list[str], folder: str) -> str:
    book = rulebook()
    rows = [
        [
            code,
            f"[{book[code].NAME}]({folder}/{book[code].NAME}.md)",
            _severity(book[code]),
            "yes" if hasattr(book[code], "mend") else "",
            getattr(book[code], "SEEN", "check, watch"),
            book[code].SUMMARY,
        ]
        for code in codes
    ]
    return table(["code", "name", "severity", "fix", "seen by", "what is wrong"], rows)


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    for path in write():
        print(path)
