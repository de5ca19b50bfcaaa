"""`make faults`: many faults of every kind, and a table of what became of them."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import table, versions, write_section
from tests.faults import crews, harness, kinds
from tests.faults.plan import PHASES, Plan


class Row(NamedTuple):
    """One kind of fault: how often it was tried and survived, and what was lost."""

    fault: str
    tried: int
    survived: int
    lost: int | None
    """Lines of text; None where there are none."""
    after: str


class Counts(NamedTuple):
    """How many of each."""

    kills: int
    of_ranks: int
    others: int


FULL, QUICK = Counts(100, 12, 25), Counts(4, 2, 2)
BITS = "same bits as never stopped"


def by_phase(kills: list[Plan]) -> str:
    found = Counter(kill.phase for kill in kills)
    return ", ".join(f"{found[phase]} in {phase}" for phase in PHASES if found[phase])


def killed(folder: Path, counts: Counts, seed: int) -> Iterator[Row]:
    halves = {0: counts.kills - counts.kills // 2, 2: counts.kills // 2}
    for workers, count in halves.items():
        toll = harness.random_kills(
            folder / f"kills-{workers}", count, workers=workers, seed=seed + workers
        )
        name = f"SIGKILL, {workers} loading workers ({by_phase(toll.kills)})"
        yield Row(name, len(toll.kills), toll.survived, toll.lost, BITS)


def of_ranks(folder: Path, counts: Counts, seed: int) -> Iterator[Row]:
    toll = crews.random_kills(folder / "ranks", counts.of_ranks, seed=seed)
    name = f"SIGKILL of one of two ranks ({by_phase(toll.kills)})"
    yield Row(name, len(toll.kills), toll.survived, toll.lost, f"the other ends; {BITS}")
    whole = crews.whole_run(folder / "hang-whole")
    dice = random.Random(seed)
    lost = survived = 0
    tries = max(1, counts.of_ranks // 4)
    for index in range(tries):
        chain = folder / f"hang-{index}"
        phase = dice.choice(["backward", "close"])
        plan = Plan(phase, dice.randrange(whole[0]["counts"][phase] // 2))
        said = crews.hang_one(chain, plan, 1)
        assert crews.start(chain, "", -1) == [0] * crews.WORLD
        different, here = crews.compared(crews.results_of(chain), whole)
        survived += not different and "rank 1" in said.splitlines()[0]
        lost += here
    yield Row("one of two ranks hangs", tries, survived, lost, f"an error names it; {BITS}")


def others(folder: Path, counts: Counts, seed: int) -> Iterator[Row]:
    dice = random.Random(seed)
    whole = {workers: kinds.whole_run(folder / f"whole-{workers}", workers) for workers in (0, 2)}
    number = iter(range(10**6))

    def place() -> Path:
        return folder / str(next(number))

    cases: dict[str, tuple[Callable[[], int | None], str]] = {
        "disk full while saving": (
            lambda: kinds.full_disk(place(), dice, whole[0]),
            f"said; last checkpoint whole; {BITS}",
        ),
        "a loader that raises": (
            lambda: kinds.raising_loader(place(), dice, whole[0], 0),
            f"saved at once; {BITS}",
        ),
        "the same with 2 workers": (
            lambda: kinds.raising_loader(place(), dice, whole[2], 2),
            f"saved at once; {BITS}",
        ),
        "a loading worker is killed": (
            lambda: kinds.killed_worker(place(), dice, whole[2]),
            BITS,
        ),
        "NaN or Inf in input, loss or gradient": (
            lambda: kinds.bad_number(dice),
            "one update skipped, and said; the others as without it",
        ),
        "out of memory in a loop": (
            lambda: kinds.no_memory_in_a_loop(place(), dice, whole[0]),
            f"raises; {BITS}",
        ),
        'out of memory in `step(split=Micro("auto"))`': (
            lambda: kinds.no_memory_in_a_step(dice),
            "goes on; update within 1e-12",
        ),
    }
    for name, (case, after) in cases.items():
        survived, losses = 0, []
        for _ in range(counts.others):
            try:
                losses.append(case())
                survived += 1
            except AssertionError as error:
                print(f"{name}: {error}", flush=True)
        known = [lost for lost in losses if lost is not None]
        yield Row(name, counts.others, survived, sum(known) if known else None, after)


def main(arguments: list[str] | None = None) -> int:
    """Exit 0 if everything was survived; a fault that was not raises, with its place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few of each")
    parser.add_argument("--seed", type=int, help="draw the same places again")
    parser.add_argument("--write", action="store_true", help="write benchmarks/README.md")
    options = parser.parse_args(arguments)
    seed = random.randrange(10**6) if options.seed is None else options.seed
    counts = QUICK if options.quick else FULL
    folder = Path(tempfile.mkdtemp(prefix="instep-faults-"))
    begun = time.monotonic()
    rows: list[Row] = []
    print(f"seed {seed}", flush=True)
    try:
        for kind in (others, killed, of_ranks):
            for row in kind(folder / kind.__name__, counts, seed):
                rows.append(row)
                print(f"{row.tried:4} of {row.fault}: {row.survived} survived", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    cells = []
    for row in rows:
        lost = "–" if row.lost is None else str(row.lost)
        cells.append([row.fault, str(row.tried), str(row.survived), lost, row.after])
    total = [sum(getattr(row, n) or 0 for row in rows) for n in ("tried", "survived", "lost")]
    cells.append(["**all**", *(f"**{each}**" for each in total), ""])
    header = ["fault, at random places", "tried", "survived", "lines of text lost or doubled"]
    body = table([*header, "and then"], cells)
    minutes = (time.monotonic() - begun) / 60
    body += f"\n\nSeed {seed}, {minutes:.0f} minutes. {versions(['torch'])}."
    print(body)
    if options.write:
        write_section("faults", body)
    return 0 if total[0] == total[1] and not total[2] else 1


if __name__ == "__main__":
    sys.exit(main())
