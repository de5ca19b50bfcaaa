"""Three wrong loops, found and mended by `instep check`; and what that did to their updates."""

from __future__ import annotations

import runpy
import shutil
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from examples.tour import picture
from examples.tour.command import instep
from examples.tour.show import table
from examples.tour.stop import Seen, TourError
from examples.tour.stops.one_window import relative_error
from examples.tour.wrong_loops import Case, cases

EXACT = 1e-12
VISIBLE = 1e-2


@dataclass(frozen=True, slots=True)
class Mended:
    """How far a loop's update is from that of the whole batches, before the fix and after it."""

    says: str
    before: float
    after: float


def instep_check(folder: Path, *arguments: str, expect: int) -> str:
    """Run the checker as a user would, show both, and return what it printed."""
    return instep(folder, "check", *arguments, expect=expect)


def stop(out: Path) -> Seen:
    """Write the loops, check, mend and check them again, and measure both versions."""
    folder = out / "loops"
    shutil.rmtree(folder, ignore_errors=True)  # mended files of the last tour
    folder.mkdir(parents=True)
    loops = cases()
    for name, case in loops.items():
        (folder / name).write_text(case.source, encoding="utf-8")
    print(
        f"Three loops in {folder}. They run, and nothing raises an error.\n"
        "What is wrong with them is found by reading them; nothing is imported or run:\n"
    )
    before = {name: updated(folder / name, case) for name, case in loops.items()}
    instep_check(folder, *loops, expect=1)
    print("Every fix was judged again before it was offered. This is what they would change:\n")
    instep_check(folder, "--diff", "--unsafe-fixes", *loops, expect=1)
    print("Now in place. An update per patch may be meant, so that fix has to be asked for:\n")
    instep_check(folder, "--fix", "--unsafe-fixes", *loops, expect=0)
    instep_check(folder, *loops, expect=0)
    mended = {
        name: Mended(
            case.says,
            relative_error(before[name], whole := case.update(case.whole)),
            relative_error(updated(folder / name, case), whole),
        )
        for name, case in loops.items()
    }
    print("Both versions, run for an epoch: how far is the update from that of whole batches?\n")
    rows = [
        [f"{n}: {m.says}", f"{m.before:.0%}", f"{m.after:.0e}" if m.after else "0"]
        for n, m in mended.items()
    ]
    print(table(["", "as written", "mended"], rows))
    return _seen(mended, out / "loops_mended.png")


def updated(file: Path, case: Case) -> Tensor:
    """Train an epoch with the loop of a file."""
    return case.update(runpy.run_path(str(file))["train"])


def _seen(mended: dict[str, Mended], path: Path) -> Seen:
    """Check what the picture shows before it is drawn."""
    least, most = min(m.before for m in mended.values()), max(m.after for m in mended.values())
    if least < VISIBLE:
        raise TourError(f"a wrong loop is off by only {least:.1e}")
    if most > EXACT:
        raise TourError(f"a mended loop is off by {most:.1e}, more than {EXACT:.0e}")
    errors = {name: (m.before, m.after) for name, m in mended.items()}
    picture.draw_mended(path, errors={f"{n}\n{mended[n].says}": e for n, e in errors.items()})
    return Seen(
        f"`instep check` found what puts the updates of {len(mended)} loops off by "
        f"{least:.0%} and more, and mended it: {most:.0e} at most.",
        (path,),
    )
