"""Records of jobs that never ran: a small one that is read by hand, and one that means harm."""

from __future__ import annotations

import math
from dataclasses import replace

from instep.reports.record import Owner, Record
from instep.rules import Finding, Related, Severity
from instep.trace import Backward, Clip, EpochEnd, Place, Step, Unscale, Zero

PATH = "/home/me/train.py"
LINES = {
    10: "for i, (x, y) in enumerate(loader):",
    11: "    loss = criterion(model(x), y)",
    12: "    loss.backward()",
    13: "    if (i + 1) % 2 == 0:",
    14: "        clip_grad_norm_(model.parameters(), 1.0)",
    15: "        optimizer.step()",
    16: "        optimizer.zero_grad()",
}


def at(line, **more):
    return Place(PATH, line, **more)


def small(**changes):
    """Two windows of two backwards each, the second one skipped, then the end of the epoch."""
    o = ("optimizer",)
    events = (
        Backward(o, factor=0.5, reduction="mean", models=("model",), place=at(12)),
        Clip(o, "norm", 1.0, place=at(14)),
        Step("optimizer", place=at(15)),
        Zero(o, place=at(16)),
        Step("optimizer", skipped="nonfinite", scaler="scaler", place=at(15)),
        EpochEnd("loader", batches=4, place=at(10)),
        Unscale("optimizer", "scaler", place=at(14)),
    )
    order = [0, 0, 6, 1, 2, 3, 0, 0, 1, 4, 3, 5]
    finding = Finding(
        "INS201",
        "unscaled-accumulation",
        Severity.ERROR,
        at(12, column=4, end_line=12, end_column=19, function="train"),
        "with 2 micro-batches in a window, the update of `optimizer` is 2 times the mean.",
        related=(Related(at(15, column=8, end_line=15, end_column=24), "stepped here"),),
    )
    given = {
        "title": "train.py",
        "command": ("train.py", "--epochs", "1"),
        "folder": "/home/me",
        "began": "2024-05-01 12:00:00+02:00",
        "seconds": 2.0,
        "versions": {"instep": "0.1.0", "torch": "2.13.0"},
        "findings": (finding,),
        "optimizers": (Owner("optimizer", "AdamW", updates=2, skipped=1),),
        "lines": {
            "loss/optimizer": ((1, 0.5, 2.0), (2, 1.0, 1.5)),
            "grad_norm/optimizer": ((1, 0.5, 1.0), (2, 1.0, math.inf)),
            "clip_norm/optimizer": ((1, 0.5, 7.5), (2, 1.0, math.nan)),
            "update_ratio/optimizer": ((1, 0.5, 0.001),),
            "lr/optimizer": ((1, 0.5, 0.1), (2, 1.0, 0.05)),
            "skipped/optimizer": ((2, 1.0, 1.0),),
        },
        "events": events,
        "first": tuple((0.1 * (number + 1), event) for number, event in enumerate(order)),
        "unseen": ("Losses on a device were not read.",),
        "quotes": {PATH: LINES},
    }
    return Record(**(given | changes))


def long(windows=2000):
    """A job of many windows, of which the middle is not kept."""
    record = small(findings=())
    moments = []
    for window in range(windows):
        moments += [
            (0.01 * window + 0.002 * step, event) for step, event in enumerate((0, 0, 2, 3))
        ]
    line = tuple((n + 1, 0.01 * n, 1 / (n + 1)) for n in range(windows))
    return replace(
        record,
        seconds=0.01 * windows + 100.0,
        optimizers=(Owner("optimizer", "SGD", updates=windows + 500),),
        lines={"loss/optimizer": line, "grad_norm/optimizer": line},
        first=tuple(moments[:2000]),
        latest=tuple((time + 100.0, event) for time, event in moments[2000:]),
        left_out=2000,
    )


EVIL = "</script><script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'>&\"'"


def evil():
    """A job whose every text tries to become a part of the page."""
    path = f"/home/{EVIL}.py"
    place = Place(path, 3, column=0, end_line=3, end_column=9, snippet=EVIL)
    elsewhere = Place(f"{EVIL}/other.py", 7)
    name = f"self.{EVIL}"
    finding = Finding(
        f"INS{EVIL}",
        EVIL,
        Severity.WARNING,
        place,
        f"`{EVIL}` **{EVIL}** \u202e",
        related=(Related(place, EVIL), Related(elsewhere, EVIL)),
        condition=EVIL,
    )
    events = (Backward((name,), models=(EVIL,), place=place), Step(name, skipped=EVIL, place=place))
    return Record(
        title=EVIL,
        command=(EVIL,),
        began=EVIL,
        seconds=1.0,
        ending=EVIL,
        error=EVIL,
        versions={EVIL: EVIL},
        findings=(finding,),
        optimizers=(Owner(name, EVIL, 1, 1), Owner("other", "SGD", 1)),
        lines={f"loss/{name}": ((1, 0.5, 1.0),), f"grad_norm/{name}": ((1, 0.5, math.nan),)},
        events=events,
        first=((0.2, 0), (0.4, 1)),
        unseen=(EVIL,),
        quotes={path: {2: EVIL, 3: EVIL, 4: "\t\x1b[31m\ud800"}},
    )
