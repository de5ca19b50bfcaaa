"""instep's own loops: they count by themselves, and say nothing but what is wrong in them."""

import pytest

from instep.check.judge import judge
from tests.check.execute.run import base, events
from tests.check.repairs import unit_of

LOOP = """\
import instep, torch
import torch.nn.functional as F
scaler = torch.amp.GradScaler()
stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
for {window} in {windows}:
    for x, y in window:
        loss = {loss}
        window.backward({given}, items=len(y))
"""
PARTS = {
    "window": "window",
    "windows": "stepper.windows(loader, size=args.accum)",
    "loss": "F.cross_entropy(model(x), y)",
    "given": "loss",
}


def text(**parts):
    return LOOP.format(**{**PARTS, **parts})


def found(**parts):
    judged = judge(unit_of(text(**parts)))
    assert judged.unjudged == ()
    return [(finding.code, finding.place.line) for finding in judged.findings]


RIGHT = [
    {},
    {"window": "i, window", "windows": "enumerate(stepper.windows(loader, size=4))"},
    {"given": "0.25 * loss", "windows": "stepper.windows(loader, size=4)"},
    {"given": "loss / 2", "windows": "stepper.windows(loader, size=2)"},
    {"given": "loss / 8", "windows": "stepper.windows(loader, size=4)"},
    {"given": "loss / args.temperature"},
    {"loss": "(F.l1_loss(model(x), y) + F.mse_loss(model(x), y) + penalty(model(x))) / 3",
     "windows": "stepper.windows(loader, size=3)"},
    {"loss": "F.cross_entropy(model(x), y, reduction='sum') / args.accum"},
    {"given": "loss / args.micro_batch_size"},
    {"windows": "stepper.windows(loader, size={'opt_g': 4, 'opt_d': 2})"},
]  # fmt: skip


@pytest.mark.parametrize("parts", RIGHT)
def test_a_right_loop_is_judged_and_leaves_no_backward(parts):
    assert found(**parts) == []
    assert {event[0] for event in events(text(**parts), "backward", "step", "opaque")} == {"opaque"}


@pytest.mark.parametrize(
    "parts",
    [
        {"given": "loss / args.accum"},
        {"given": "loss * (1 / n)", "windows": "stepper.windows(loader, size=n)"},
        {"given": "loss.div(args.accum)"},
        {"loss": "F.cross_entropy(model(x), y) / args.accum"},
        {"loss": "(F.l1_loss(model(x), y) + F.mse_loss(model(x), y)) / args.accum"},
        {"given": "loss / 4", "windows": "stepper.windows(loader, size=4)"},
        {"given": "loss / accumulation_steps", "windows": "stepper.windows(loader, size=n)"},
        {"given": "loss / n", "windows": "stepper.windows(loader, size=n)"},
        {"given": "loss / args.accum", "window": "i, window",
         "windows": "enumerate(stepper.windows(loader, size=args.accum))"},
    ],
)  # fmt: skip
def test_a_loss_that_is_divided_by_the_number_of_micro_batches(parts):
    assert found(**parts) == [("INS205", 8)]


def test_a_loss_that_went_through_a_scaler():
    assert found(given="scaler.scale(loss)") == [("INS305", 8)]
    assert found(given="scaler.scale(loss / args.accum)") == [("INS205", 8), ("INS305", 8)]


def test_a_stepper_that_comes_from_elsewhere():
    body = text(given="loss / args.accum").partition("lr=0.1))\n")[2]
    inner = "".join(f"    {line}\n" for line in body.splitlines())
    head = "import torch.nn.functional as F\ndef train(stepper, model, loader, args):\n"
    judged = judge(unit_of(head + inner))
    assert [finding.code for finding in judged.findings] == ["INS205"]
    assert judged.unjudged == ()


def test_the_trace_says_who_manages_it():
    job = next(event for event in base(text()) if event.kind == "created" and event.id == "job")
    assert job.facts["managed"] == "instep"


def test_a_window_by_hand():
    source = text().replace(f"for window in {PARTS['windows']}", "with stepper.window() as window")
    source = source.replace("for x, y in window", "for x, y in tiles")
    assert judge(unit_of(source)).findings == ()
    divided = source.replace("backward(loss", "backward(loss / num_patches")
    assert [f.code for f in judge(unit_of(divided)).findings] == ["INS205"]
    assert judge(unit_of(source)).unjudged == ()
