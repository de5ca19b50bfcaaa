"""Watching never waits for a device, but for a few times in all: counted on one that is not there.

On a GPU whoever reads a number waits until everything that was launched before is done.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import instep
from tests.watching.device import Waits, noted

UPDATES = 40
LOOKS = 3 + 4
"""Of one optimizer, at gradients that were not cleared: the first 3, then at the 4th, 8th, ..."""

HEAD = """
from torch import nn
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.empty(4, 8), torch.empty(4, 3)
def loss_of(model):
    return F.mse_loss(model(x), y)
for update in range(updates):
"""
JOBS = {
    "a plain loop": """
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
""",
    "cleared in place": """
    optimizer.zero_grad(set_to_none=False)
    loss_of(model).backward()
    optimizer.step()
""",
    "accumulation": """
    for micro in range(4):
        (loss_of(model) / 4).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
""",
    "a limit on the device": """
    optimizer.zero_grad()
    loss_of(model).backward()
    nn.utils.clip_grad_norm_(model.parameters(), torch.ones(()))
    optimizer.step()
""",
    "clipped by value": """
    optimizer.zero_grad()
    loss_of(model).backward()
    nn.utils.clip_grad_value_(model.parameters(), 1.0)
    optimizer.step()
""",
    "a scaler": """
    if not update:
        scaler = torch.amp.GradScaler("meta")
    optimizer.zero_grad()
    scaler.scale(loss_of(model)).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
    "two models in turn": """
    if not update:
        critic = nn.Linear(8, 3)
        other = torch.optim.AdamW(critic.parameters())
    other.zero_grad()
    loss_of(critic).backward()
    other.step()
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
""",
    "two models, cleared after both": """
    if not update:
        critic = nn.Linear(8, 3)
        other = torch.optim.SGD(critic.parameters(), lr=0.1)
    loss_of(critic).backward()
    other.step()
    loss_of(model).backward()
    optimizer.step()
    optimizer.zero_grad()
    other.zero_grad()
""",
    "a scheduler": """
    if not update:
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
    schedule.step()
""",
    "a rate on the device": """
    if not update:
        optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, fused=False)
        optimizer.param_groups[0]["lr"] = torch.ones(())
    model[0].zero_grad()
    loss_of(model).backward()
    optimizer.step()
""",
    "a closure": """
    def closure():
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss
    optimizer.step(closure)
""",
    "frozen layers": """
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
""",
    "gradients of nobody": """
    if not update:
        optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
""",
    "low precision": """
    if not update:
        x, y = x.bfloat16(), y.bfloat16()
        optimizer = torch.optim.SGD(model.bfloat16().parameters(), lr=0.1)
    optimizer.zero_grad()
    for micro in range(2):
        loss_of(model).backward()
    optimizer.step()
""",
    "never cleared": """
    loss_of(model).backward()
    optimizer.step()
""",
    "cleared at every other update": """
    if update % 2:
        optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
""",
    "cleared where nobody counts": """
    loss_of(model).backward()
    optimizer.step()
    for parameter in model.parameters():
        parameter.grad.data.zero_()
""",
    "cleared by hand": """
    loss_of(model).backward()
    optimizer.step()
    for parameter in model.parameters():
        parameter.grad.zero_()
""",
    "edited by hand": """
    optimizer.zero_grad()
    loss_of(model).backward()
    for parameter in model.parameters():
        parameter.grad.mul_(0.5)
    optimizer.step()
""",
    "a part is cleared": """
    model[0].zero_grad()
    loss_of(model).backward()
    optimizer.step()
""",
    "no optimizer": """
    loss_of(model).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
""",
    "kept graphs": """
    kept = [] if not update else kept[-20:]
    optimizer.zero_grad()
    loss = loss_of(model)
    loss.backward()
    optimizer.step()
    kept.append(loss)
""",
    "counted items": """
    optimizer.zero_grad()
    for micro in range(2):
        labels = torch.zeros(4, dtype=torch.long)
        loss = F.cross_entropy(model(x), labels, ignore_index=1) * torch.ones(())
        loss.backward()
    optimizer.step()
""",
    "patches": """
    if not update:
        model = nn.Conv2d(1, 1, 3, padding=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(
            torch.zeros(updates, 1, 8, 8, device="cpu"), generator=torch.Generator("cpu")
        )
        batches = iter(loader)
    image = next(batches).to("meta")
    optimizer.zero_grad()
    for patch in image.split(4, dim=3):
        model(patch).mean().backward()
    optimizer.step()
""",
}

NOT_CLEARED = {
    "two models in turn": 2,
    "two models, cleared after both": 1,
    "never cleared": 1,
    "cleared at every other update": 1,
    "cleared where nobody counts": 1,
}
"""Jobs with gradients that a step has used when the next backward begins: of so many optimizers."""
PARTLY = {"a part is cleared", "a rate on the device"}


def go(source: str, *, watched: bool, answer: bool = True) -> Waits:
    """Run a job on the device."""
    names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "updates": UPDATES}
    code = compile(HEAD + source, "train.py", "exec")
    job = instep.watch(live=False)
    with noted(answer=answer) as waits, job if watched else nullcontext():
        exec(code, names)  # noqa: S102  # it is the test's own
    assert job.seam.faults == []
    return waits


def added(name: str, *, answer: bool = True) -> tuple[int, Counter[str]]:
    """Return how often a watch waits beyond the job's own waits, and where all of them are."""
    alone = go(JOBS[name], watched=False, answer=answer)
    watched = go(JOBS[name], watched=True, answer=answer)
    return watched.at.total() - alone.at.total(), watched.at


@pytest.mark.parametrize("name", sorted(JOBS.keys() - NOT_CLEARED.keys() - PARTLY))
def test_nobody_waits(name):
    waits, where = added(name)
    assert waits == 0, where


def test_nobody_waits_for_weights_that_are_lost():
    code = compile(HEAD + JOBS["a plain loop"], "train.py", "exec")
    job = instep.watch(live=False)
    with noted(answer=math.nan) as waits, job:
        names = {"torch": torch, "F": torch.nn.functional, "updates": UPDATES}
        exec(code, names)  # noqa: S102  # it is the test's own
    assert waits.at.total() == 0, waits.at
    assert [finding.code for finding in job.findings] == ["INS505"]
    assert "updates with gradients that are not finite" in job.findings[0].message


@pytest.mark.parametrize("answer", [True, False], ids=["numbers", "zeros"])
@pytest.mark.parametrize("name", sorted(NOT_CLEARED))
def test_zeros_are_looked_for_ever_more_seldom(name, answer):
    waits, where = added(name, answer=answer)
    reads = 2 if answer else 3  # a part, and its change; or the whole of it, and all others
    assert 0 < waits <= NOT_CLEARED[name] * LOOKS * reads, where


@pytest.mark.parametrize("name", sorted(PARTLY))
def test_what_is_not_cleared_is_compared_at_the_first_updates(name):
    waits, where = added(name)
    assert 0 < waits <= 3 * 2 * len(("weight", "bias")), where


def test_an_update_that_is_measured_launches_a_few_operations():
    job = JOBS["accumulation"]
    more = go(job, watched=True).operations - go(job, watched=False).operations
    assert 0 < more <= 40 * UPDATES


def test_a_wait_is_noted():
    with noted() as waits:
        some = torch.ones(3)
        assert some.sum().item() == 1.0
        assert bool(some.any())
        assert some.tolist() == [1.0] * 3
        assert some.to("cpu", non_blocking=True).device.type == "cpu"
    assert waits.at.total() == 3
    assert waits.sent == 1
