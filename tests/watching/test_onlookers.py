"""Modes of the user's own see what he does, and nothing of what the watcher does."""

import pytest
import torch

from instep.watching.onlookers import dispatching, leave, overriding
from tests.watching.jobs import found, run

HEAD = """\
from collections import Counter
from contextlib import nullcontext
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

class Operations(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        counts[str(function)] += 1
        return function(*args, **(kwargs or {}))

class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        counts[getattr(function, "__qualname__", "")] += 1
        return function(*args, **(kwargs or {}))

counts = Counter()
model = torch.nn.Linear(8, 3, dtype=DTYPE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
def update(clear=True):
    if clear:
        optimizer.zero_grad()
    x = torch.randn(8, 8, dtype=DTYPE)
    (F.cross_entropy(model(x), torch.randint(0, 3, (8,))) / 1).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""
COUNTED = """\
with {mode}:
    for _ in range(12):
        update()
"""
SOME = """\
for number in range(24):
    with {mode} if number % 3 == 1 else nullcontext():
        update()
"""
MODES = ("Operations()", "Functions()", "Operations(), Functions()")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", MODES)
def test_modes_are_told_what_they_would_have_been_told(mode, dtype):
    source = HEAD + COUNTED.format(mode=mode)
    alone, job = (run(source, watched=watched, DTYPE=dtype) for watched in (False, True))
    assert job.left["counts"] == alone.left["counts"]
    assert job.series.updates == {"optimizer": 12}
    assert torch.equal(job.left["model"].weight, alone.left["model"].weight)
    assert found(job) == []
    assert len(job.series.lines["loss/optimizer"]) == 12


@pytest.mark.parametrize("mode", MODES[:2])
def test_modes_that_come_and_go(mode):
    source = HEAD + SOME.format(mode=mode)
    alone, job = (run(source, watched=watched, DTYPE=torch.bfloat16) for watched in (False, True))
    assert job.left["counts"] == alone.left["counts"]
    assert job.series.updates == {"optimizer": 24}


def test_what_is_wrong_is_seen_under_a_mode():
    loop = COUNTED.format(mode="Operations()").replace("update()", "update(clear=False)")
    job = run(HEAD + loop, DTYPE=torch.float32)
    assert [code for code, _ in found(job)] == ["INS101"]


TRACED = """\
from torch.fx.experimental.proxy_tensor import make_fx
for _ in range(3):
    update()
def traced(x):
    model(x).square().mean().backward()
    seen = model.weight.grad
    model.zero_grad()
    return seen
nodes = len(make_fx(traced)(torch.randn(8, 8)).graph.nodes)
exported = len(torch.export.export(model, (torch.randn(8, 8),)).graph.nodes)
update()
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_graphs_that_are_written_down_have_nothing_of_ours():
    alone, job = (run(HEAD + TRACED, watched=watched, DTYPE=torch.float32) for watched in (0, 1))
    for name in ("nodes", "exported"):
        assert job.left[name] == alone.left[name]
    assert job.series.updates == {"optimizer": 4}
    assert found(job) == []


def test_what_was_left_is_gone_back_to_in_order():
    left = run(HEAD, watched=False, DTYPE=torch.float32).left
    with left["Operations"](), left["Functions"](), left["Operations"](), left["Functions"]():
        modes = leave()
        assert (dispatching(), overriding()) == (0, 0)
        torch.ones(1).add(1)
        assert not left["counts"]
        modes.back()
        assert (dispatching(), overriding()) == (2, 2)
        torch.ones(1).add(1)
        assert left["counts"]["aten.add.Tensor"] == 2
    assert (dispatching(), overriding()) == (0, 0)


def test_a_default_device_looks_at_nothing():
    with torch.device("cpu"):
        assert overriding() == 1
        assert leave() is None
