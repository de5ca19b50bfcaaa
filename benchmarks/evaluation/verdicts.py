"""Verdicts on findings, and the precision that follows from them."""

import csv
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent / "data"
TRUE, HOLDS = "true", "holds"


@dataclass(frozen=True)
class Repository:
    """A repository as it was checked."""

    set: str
    name: str
    commit: str
    loop_files: int
    lines: int
    """Of Python, in all of its files."""


@dataclass(frozen=True)
class Verdict:
    """What somebody who read the code says about a finding."""

    set: str
    repository: str
    file: str
    line: str
    """"12", or "3:12" for line 12 of the third code cell of a notebook."""
    code: str
    severity: str
    verdict: str
    """true, false or unclear; only the first counts as right."""
    now: str
    """What the checker as it is says there: error, warning, or silent (info counts as that)."""
    loop: str
    """holds, fails or unclear: whether it is right of the loop, if nothing else stopped the program
    before it gets there. Empty where that was not asked."""
    reason: str

    @property
    def is_right(self) -> bool:
        """Whether the finding says what the code does, and that is a mistake."""
        return self.verdict == TRUE

    @property
    def holds(self) -> bool:
        """Whether the finding is right of the loop, whatever else is wrong with the program."""
        return self.loop == HOLDS


@dataclass(frozen=True)
class Precision:
    """Right findings among all, with the bound that the numbers support."""

    right: int
    total: int

    @property
    def share(self) -> float:
        """The observed precision."""
        return self.right / self.total if self.total else math.nan

    @property
    def bound(self) -> float:
        """The true precision is above this with 95 % confidence (Clopper and Pearson, one side).

        >>> round(Precision(16, 16).bound, 2)
        0.83
        """
        if self.right == 0:
            return 0.0
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            if _at_least(self.right, self.total, middle) > 0.05:
                high = middle
            else:
                low = middle
        return low

    def __str__(self) -> str:
        if not self.total:
            return "none"
        return f"{self.right} of {self.total} ({self.share:.0%}, above {self.bound:.0%})"


def _at_least(successes: int, trials: int, chance: float) -> float:
    return sum(
        math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
        for k in range(successes, trials + 1)
    )


def as_it_stands(verdict: Verdict) -> bool:
    """Say whether a finding is right of the program as it stands."""
    return verdict.is_right


def by_the_loop(verdict: Verdict) -> bool:
    """Say whether a finding is right of the loop alone."""
    return verdict.holds


def precision(
    verdicts: Iterable[Verdict], counts: Callable[[Verdict], bool] = as_it_stands
) -> Precision:
    """Count each finding."""
    found = [counts(verdict) for verdict in verdicts]
    return Precision(sum(found), len(found))


def by_cause(
    verdicts: Iterable[Verdict], counts: Callable[[Verdict], bool] = as_it_stands
) -> Precision:
    """Count each rule once per repository: copies of one loop are no further evidence."""
    causes: dict[tuple[str, str, str], bool] = {}
    for verdict in verdicts:
        key = (verdict.set, verdict.repository, verdict.code)
        causes[key] = causes.get(key, True) and counts(verdict)
    return Precision(sum(causes.values()), len(causes))


def load_verdicts(file: Path = DATA / "verdicts.tsv") -> list[Verdict]:
    """Read the verdicts."""
    return [Verdict(**row) for row in _rows(file)]


def load_repositories(file: Path = DATA / "repositories.tsv") -> list[Repository]:
    """Read the list of repositories."""
    return [
        Repository(
            row["set"], row["name"], row["commit"], int(row["loop_files"]), int(row["lines"])
        )
        for row in _rows(file)
    ]


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
