"""Whatever was hooked or replaced is gone when watching ends."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.nn.utils import clip_grad, clip_grad_norm_
from torch.optim import optimizer as optimizers
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

import instep


def below(kind):
    return [kind, *(found for inner in kind.__subclasses__() for found in below(inner))]


def owners():
    """Everything of PyTorch's that a watcher could have its hands in, and this very module."""
    return [
        torch, torch.autograd, torch.autograd.graph, torch.nn.utils, clip_grad, torch.optim,
        optimizers, modules, torch.amp, torch.cuda.amp, torch.Tensor,
        nn.parallel.DistributedDataParallel, sys.modules[__name__],
        *below(torch.optim.Optimizer), *below(LRScheduler), *below(torch.amp.GradScaler),
        *below(torch.autocast), *below(DataLoader), *below(_BaseDataLoaderIter), nn.Module,
        nn.Linear, nn.Sequential,
    ]  # fmt: skip


def snapshot(*things):
    """What every owner has by name, and the hooks that hang anywhere."""
    found = {(owner, name): value for owner in owners() for name, value in vars(owner).items()}
    # Tables of hooks stay the same objects: their contents count.
    hooks = {
        name: dict(value)
        for owner in (optimizers, modules)
        for name, value in vars(owner).items()
        if "hooks" in name and isinstance(value, dict)
    }
    for number, thing in enumerate(things):
        for part in thing.modules() if isinstance(thing, nn.Module) else [thing]:
            for name, value in vars(part).items():
                hooks[number, id(part), name] = dict(value) if isinstance(value, dict) else None
        if isinstance(thing, nn.Module):
            for name, parameter in thing.named_parameters():
                for kind in ("_backward_hooks", "_post_accumulate_grad_hooks"):
                    hooks[number, name, kind] = dict(getattr(parameter, kind) or {})
    return found, hooks


def changed(before, *things):
    """Names whose value is another object now, and tables of hooks that are not as they were."""
    attributes, hooks = before
    now, hooks_now = snapshot(*things)
    different = [
        key for key in attributes.keys() | now.keys() if attributes.get(key) is not now.get(key)
    ]
    return different + [
        key for key in hooks.keys() | hooks_now.keys() if hooks.get(key) != hooks_now.get(key)
    ]


@pytest.fixture
def job():
    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def train(model, optimizer):
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    for batch in DataLoader(torch.randn(6, 2), batch_size=2):
        optimizer.zero_grad()
        scaler.scale(model(batch).square().mean()).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()


@pytest.fixture
def before(job):
    model, optimizer = job
    train(model, optimizer)
    torch.optim.Adam(model.parameters())  # PyTorch wraps the `step` of a kind at its first use
    return snapshot(model)


def test_something_is_replaced_while_watching(job, before):
    """The comparison has eyes."""
    with instep.watch():
        found = {key[1] for key in changed(before, job[0]) if isinstance(key, tuple)}
    assert {"backward", "zero_grad", "clip_grad_norm_", "__next__"} <= found


@pytest.mark.parametrize("named", [False, True])
def test_nothing_is_left(job, before, named):
    with instep.watch(*job) if named else instep.watch() as watched:
        train(*job)
    assert watched.seam.faults == []
    assert changed(before, job[0]) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_nothing_is_left_after_an_exception(job, before, error):
    with pytest.raises(error), instep.watch():
        train(*job)
        raise error
    assert changed(before, job[0]) == []


def test_an_exception_inside_of_what_is_watched(job, before):
    model, optimizer = job
    with pytest.raises(RuntimeError), instep.watch() as watched:
        train(model, optimizer)
        loss = model(torch.randn(2, 2)).sum()
        loss.backward()
        loss.backward()  # its graph is gone
    assert watched.seam.faults == []
    assert changed(before, model) == []


def test_one_after_the_other(job, before):
    for _ in range(3):
        with instep.watch() as watched:
            train(*job)
        assert watched.series.updates
        assert changed(before, job[0]) == []


def test_one_inside_of_another(job, before):
    with instep.watch() as outer:
        train(*job)
        with instep.watch() as inner:
            train(*job)
        train(*job)
    assert sum(outer.series.updates.values()) == 9
    assert sum(inner.series.updates.values()) == 3
    assert changed(before, job[0]) == []


@pytest.mark.parametrize("first", [0, 1])
def test_two_that_overlap(job, before, first):
    watchers = [instep.watch(), instep.watch()]
    for watcher in watchers:
        watcher.start()
    train(*job)
    watchers[first].stop()
    train(*job)
    watchers[1 - first].stop()
    train(*job)
    assert sum(watchers[first].series.updates.values()) == 3
    assert sum(watchers[1 - first].series.updates.values()) == 6
    assert [watcher.seam.faults for watcher in watchers] == [[], []]
    if first == 1:  # otherwise the second has kept the first one's, which does nothing any more
        assert changed(before, job[0]) == []


def test_somebody_else_on_top(job, before):
    """Who replaced something after us keeps his, and what he calls is quiet."""
    calls = []
    watched = instep.watch().start()
    ours = torch.optim.Optimizer.zero_grad

    def theirs(self, *args, **kwargs):
        calls.append("zero_grad")
        return ours(self, *args, **kwargs)

    torch.optim.Optimizer.zero_grad = theirs
    try:
        train(*job)
        watched.stop()
        updates = dict(watched.series.updates)
        assert torch.optim.Optimizer.zero_grad is theirs
        train(*job)
        assert calls == ["zero_grad"] * 6
        assert watched.series.updates == updates
        left = changed(before, job[0])
        assert left == [(torch.optim.Optimizer, "zero_grad")]
    finally:
        torch.optim.Optimizer.zero_grad = dict(before[0])[torch.optim.Optimizer, "zero_grad"]
    assert changed(before, job[0]) == []


def test_what_was_made_while_watching_is_let_go(job, before):
    with instep.watch():
        model = nn.Linear(2, 1)
        optimizer = torch.optim.Adam(model.parameters())
        train(model, optimizer)
        assert model._forward_pre_hooks
        assert model.weight._post_accumulate_grad_hooks
    assert not model._forward_pre_hooks
    assert not model.weight._post_accumulate_grad_hooks
    assert not optimizer._optimizer_step_pre_hooks
    assert changed(before, job[0]) == []


def test_a_watcher_that_has_failed_lets_go(job, before):
    with instep.watch() as watched:
        watched.seam.on_fault = lambda _: None
        watched.recorder.clearing.by_optimizer = lambda *_, **__: 1 / 0
        for _ in range(3):
            train(*job)
        assert not watched.seam.is_on
    assert changed(before, job[0]) == []
