"""Right jobs that look wrong: nothing is said about them."""

import pytest

from instep.rules import Severity
from tests.watching.jobs import found, run

HEAD = """\
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
def batches():
    return DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=4)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
"""
LOOP = """\
for epoch in range(3):
    for x, y in batches():
        optimizer.zero_grad()
"""
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"

SUMS = {
    "heads": """\
trunk = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
heads = nn.ModuleList([nn.Linear(8, 3) for _ in range(3)])
optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.1)
"""
    + LOOP
    + """\
        features = trunk(x)
        for head in heads:
            F.cross_entropy(head(features), y).backward(retain_graph=True)
        optimizer.step()
""",
    "scales": SGD
    + LOOP
    + """\
        for scale in (1.0, 0.5, 0.25):
            F.cross_entropy(model(scale * x), y).backward()
        optimizer.step()
""",
    "a loader for each task": SGD
    + """\
for epoch in range(3):
    for tasks in zip(batches(), batches(), batches()):
        optimizer.zero_grad()
        for x, y in tasks:
            F.cross_entropy(model(x), y).backward()
        optimizer.step()
""",
    "loaders in turn": SGD
    + """\
for epoch in range(3):
    feeds = {"one": iter(batches()), "two": iter(batches())}
    for update in range(16):
        optimizer.zero_grad()
        for feed in feeds.values():
            x, y = next(feed)
            F.cross_entropy(model(x), y).backward()
        optimizer.step()
""",
    "masks of tasks": SGD
    + LOOP
    + """\
        for task in range(3):
            F.cross_entropy(model(x), torch.where(y == task, -100, y)).div(3).backward()
        optimizer.step()
""",
}


@pytest.mark.parametrize("source", SUMS.values(), ids=SUMS)
def test_losses_of_one_batch_are_meant_to_be_added_up(source):
    assert found(run(HEAD + source)) == []


CUT = (
    SGD
    + """\
for epoch in range(3):
    for x, y in batches():
        optimizer.zero_grad()
        for some, goals in zip(x.chunk(2), y.chunk(2)):
            F.cross_entropy(model(some), goals).backward()
        optimizer.step()
"""
)
AHEAD = (
    SGD
    + """\
for epoch in range(3):
    feed = iter(batches())
    for update in range(4):
        window = [next(feed) for _ in range(4)]
        optimizer.zero_grad()
        for x, y in window:
            F.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
)
TWO = (
    SGD
    + """\
for epoch in range(3):
    for index, (x, y) in enumerate(batches()):
        for scale in (1.0, 0.5, 0.25):
            F.cross_entropy(model(scale * x), y).backward()
        if index % 2:
            optimizer.step()
            optimizer.zero_grad()
"""
)


@pytest.mark.parametrize(("source", "times"), [(CUT, 2), (AHEAD, 4), (TWO, 2)])
def test_batches_and_parts_of_them_are_not(source, times):
    [finding] = run(HEAD + source).findings
    assert (finding.code, finding.severity) == ("INS201", Severity.ERROR)
    assert f"is {times} times that of the mean" in finding.message


def test_without_a_loader_nobody_knows_which_it_is():
    source = """\
for update in range(30):
    optimizer.zero_grad()
    for _ in range(4):
        x, y = torch.randn(4, 8), torch.randint(0, 3, (4,))
        F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
    [finding] = run(HEAD + SGD + source).findings
    assert (finding.code, finding.severity) == ("INS201", Severity.INFO)
    assert finding.message.startswith("if the 4 backwards of this update are for 4 micro-")


WORKER = """\
local, shared = nn.Linear(8, 3), nn.Linear(8, 3)
optimizer = torch.optim.Adam(shared.parameters())
for update in range(30):
    {sync}
    optimizer.zero_grad()
    local.zero_grad()
    F.cross_entropy(local(torch.randn(4, 8)), torch.randint(0, 3, (4,))).backward()
    for mine, ours in zip(local.parameters(), shared.parameters()):
        {copy}
    optimizer.step()
"""


@pytest.mark.parametrize("sync", ["local.load_state_dict(shared.state_dict())", "pass"])
@pytest.mark.parametrize("copy", ["ours._grad = mine.grad", "ours.grad = mine.grad.clone()"])
def test_gradients_that_are_handed_on(sync, copy):
    assert found(run(HEAD + WORKER.format(sync=sync, copy=copy))) == []


def test_gradients_that_are_not_handed_on():
    job = run(HEAD + WORKER.format(sync="pass", copy="pass"))
    assert [finding.code for finding in job.findings] == ["INS502"]


GATE = (
    SGD
    + """\
for epoch in range(5):
    for x, y in batches():
        {before}
        loss = F.cross_entropy(model(x), y)
        if loss > 1.05:
            {gated}
            loss.backward()
        optimizer.step()
        {after}
"""
)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_gate_on_the_loss(moment):
    clear = {"before": "", "gated": "", "after": "", moment: "optimizer.zero_grad()"}
    assert found(run(HEAD + GATE.format(**clear))) == []


def test_a_gate_behind_which_the_clear_is_left_out_as_well():
    source = HEAD + GATE.format(before="", gated="optimizer.zero_grad()", after="")
    assert found(run(source)) == [
        ("INS104", source.splitlines().index("        optimizer.step()") + 1)
    ]


@pytest.mark.parametrize("where", ["fit()", "model = fit()"])
def test_an_optimizer_that_has_the_name_of_a_dead_one(where):
    source = f"""\
def fit():
    model = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    F.cross_entropy(model(torch.randn(4, 8)), torch.randint(0, 3, (4,))).backward()
    optimizer.step()
    optimizer.zero_grad()
    return model
for fold in range(30):
    {where}
"""
    assert found(run(HEAD + source)) == []


@pytest.mark.parametrize(
    "clear",
    [
        "p.grad.data.zero_()",
        "p.grad.data = torch.zeros_like(p)",
        "p.grad.detach_().zero_()",
        "p.grad = None",
    ],
)
def test_gradients_that_are_cleared_by_hand(clear):
    source = f"""\
for epoch in range(3):
    for x, y in batches():
        for p in model.parameters():
            if p.grad is not None:
                {clear}
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
    assert found(run(HEAD + SGD + source)) == []


def test_what_clipping_makes_of_a_sum():
    source = TWO.replace(
        "            optimizer.step()", "            {}\n            optimizer.step()"
    )
    clip = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    [finding] = [each for each in run(HEAD + source.format(clip)).findings if each.code == "INS201"]
    assert finding.message.endswith(
        "is 2 times that of the mean over 2 micro-batches, and clipping it to 1 is like clipping "
        "the mean to 0.5."
    )
    [finding] = run(HEAD + source.format(clip.replace("1.0", "float('inf')"))).findings
    assert "clip" not in finding.message


def test_numbers_of_means_that_differ():
    source = """\
for epoch in range(3):
    for index, (x, y) in enumerate(batches()):
        y[: index % 2 * 3] = -100
        F.cross_entropy(model(x), y).div(2).backward()
        if index % 2:
            optimizer.step()
            optimizer.zero_grad()
"""
    [finding] = run(HEAD + SGD + source).findings
    assert finding.code == "INS203"
    assert finding.message.endswith(
        "(1 and 4 in one window: an item of the smaller counts 4 times as much)."
    )
