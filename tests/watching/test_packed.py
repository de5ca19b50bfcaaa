"""Jobs whose graphs are packed by hooks: they are unpacked by nobody but the backward."""

import pytest
import torch

from tests.watching.jobs import found, run

HEAD = """\
from torch import nn
from torch.utils.checkpoint import checkpoint
model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
calls = 0
def entropy(x, y):
    global calls
    calls += 1
    return F.cross_entropy(model(x), y)
def masked(x, y):
    global calls
    calls += 1
    return (F.cross_entropy(model(x), y, reduction="none") * (y > 0)).sum() / (y > 0).sum()
def batch():
    return torch.randn(8, 8), torch.randint(0, 3, (8,))
"""
CHECKPOINTED = """\
for update in range(12):
    optimizer.zero_grad()
    checkpoint({loss}, *batch(), use_reentrant=False, preserve_rng_state={keeps}).backward()
    optimizer.step()
"""
ACCUMULATED = """\
for update in range(6):
    optimizer.zero_grad()
    for micro in range(2):
        (checkpoint(entropy, *batch(), use_reentrant=False) / 2).backward()
    optimizer.step()
"""
ONCE = """\
kept = {}
def pack(tensor):
    calls = len(kept) + drawn
    kept[calls] = tensor
    return calls
drawn = 0
def unpack(key):
    global drawn
    drawn += 1
    return kept.pop(key)
for update in range(12):
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = entropy(*batch())%s
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
assert not kept
"""
JOBS = {
    "a loss in a checkpoint": CHECKPOINTED.format(loss="entropy", keeps="True"),
    "one that draws anew": CHECKPOINTED.format(loss="entropy", keeps="False"),
    "a mean by hand": CHECKPOINTED.format(loss="masked", keeps="False"),
    "micro-batches": ACCUMULATED,
    "unpacked only once": ONCE % "",
    "factors, too": ONCE % " * torch.tensor(0.5) / torch.tensor(4.0)",
}


@pytest.mark.parametrize("source", JOBS.values(), ids=JOBS)
def test_numbers_and_calls_are_what_they_would_have_been(source):
    alone, job = (run(HEAD + source, watched=watched) for watched in (False, True))
    assert job.left["calls"] == alone.left["calls"]
    state = job.left["model"].state_dict()
    assert all(torch.equal(state[key], t) for key, t in alone.left["model"].state_dict().items())
    assert {code for code, _ in found(job)} <= {"INS206"}  # of micro-batches: it is there
