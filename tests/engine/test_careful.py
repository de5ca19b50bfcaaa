from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from instep.engine import careful
from instep.engine.careful import SEPARABLE, CarefulStep, is_separable, step_on_host, units_of
from instep.errors import WindowError
from tests.engine.faults import Faults, assert_same_state

OPTIM = torch.optim
# Each class with options that make it keep all the state it can.
OPTIONS = {
    OPTIM.ASGD: {"t0": 1.0, "weight_decay": 0.1},
    OPTIM.Adadelta: {"weight_decay": 0.1},
    OPTIM.Adafactor: {},
    OPTIM.Adagrad: {"lr_decay": 0.1},
    OPTIM.Adam: {"amsgrad": True},
    OPTIM.AdamW: {},
    OPTIM.Adamax: {"weight_decay": 0.1},
    OPTIM.Muon: {},
    OPTIM.NAdam: {"weight_decay": 0.1},
    OPTIM.RAdam: {},
    OPTIM.RMSprop: {"momentum": 0.9, "centered": True},
    OPTIM.Rprop: {},
    OPTIM.SGD: {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    OPTIM.SparseAdam: {},
}
FOREACH = set(OPTIONS) - {OPTIM.Muon, OPTIM.SparseAdam}
FUSED = {OPTIM.Adam, OPTIM.AdamW, OPTIM.SGD, OPTIM.Adagrad}
VARIANTS = [
    *((kind, {}) for kind in OPTIONS),
    *((kind, {"foreach": True}) for kind in OPTIONS if kind in FOREACH),
    *((kind, {"fused": True}) for kind in OPTIONS if kind in FUSED),
    (OPTIM.Adam, {"maximize": True, "foreach": True, "weight_decay": 0.1}),
    (OPTIM.Rprop, {"maximize": True, "foreach": True}),
]


def named(variant):
    kind, how = variant
    return f"{kind.__name__}-{'-'.join(how) or 'single'}"


def made(kind, how, *, steps):
    """An optimizer with two groups, which has made so many plain steps, and its parameters."""
    shapes = [(3, 4), (4, 2), (5, 5), (2, 2)] if kind is OPTIM.Muon else [(3, 4), (4,), (), (2, 2)]
    generator = torch.Generator().manual_seed(3)
    params = [
        nn.Parameter(torch.randn(s, dtype=torch.float64, generator=generator)) for s in shapes
    ]
    groups = [{"params": params[:3]}, {"params": params[3:], "lr": 0.05}]
    optimizer = kind(groups, lr=0.1, **{**OPTIONS[kind], **how})
    for step in range(steps):
        with_gradients(optimizer, step)
        optimizer.step()
    return optimizer, params


def with_gradients(optimizer, step):
    generator = torch.Generator().manual_seed(100 + step)
    for group in optimizer.param_groups:
        for p in group["params"]:
            gradient = torch.randn(p.shape, dtype=p.dtype, generator=generator)
            if isinstance(optimizer, OPTIM.SparseAdam) and p.dim():
                gradient = gradient.to_sparse(1)
            p.grad = gradient
            if isinstance(optimizer, OPTIM.SparseAdam) and not p.dim():
                p.grad = None


def assert_same(optimizer, params, other, expected):
    for one, two in zip(params, expected, strict=True):
        assert torch.equal(one, two)
    assert_same_state(optimizer, other)


def test_every_class_of_torch_is_in_one_list_or_the_other():
    classes = {
        value
        for value in vars(OPTIM).values()
        if isinstance(value, type) and issubclass(value, OPTIM.Optimizer)
    }
    assert classes - SEPARABLE == {OPTIM.Optimizer, OPTIM.LBFGS}
    assert set(OPTIONS) == SEPARABLE


@pytest.mark.parametrize("unit_bytes", [1, 100, 2**25])
@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_units_have_the_bits_of_the_whole(variant, unit_bytes, monkeypatch):
    monkeypatch.setattr(careful, "UNIT_BYTES", unit_bytes)
    kind, how = variant
    optimizer, params = made(kind, how, steps=0)
    for step in range(3):
        with_gradients(optimizer, step)
        CarefulStep(0, keep_gradients=False)([optimizer])
        assert all(p.grad is None for p in params)
    assert_same(optimizer, params, *made(kind, how, steps=3))


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_a_fault_at_every_operation_loses_nothing(variant, steps, monkeypatch):
    # Thousands of faults: collecting garbage at each of them takes minutes.
    monkeypatch.setattr(careful, "release", lambda: None)
    # Units of several parameters, and of one.
    monkeypatch.setattr(careful, "UNIT_BYTES", 200)
    kind, how = variant
    expected = made(kind, how, steps=steps + 1)
    at, operations = 0, 1
    while at < operations:
        optimizer, params = made(kind, how, steps=steps)
        with_gradients(optimizer, steps)
        with Faults(at) as faults:
            CarefulStep(0, keep_gradients=False)([optimizer])
        operations = faults.seen
        assert_same(optimizer, params, *expected)
        at += 1
    assert at > 2


def test_a_plain_step_is_not_atomic():
    """The reason for all this: it shows that the faults have teeth."""
    torn = 0
    for at in range(20):
        optimizer, params = made(OPTIM.AdamW, {}, steps=1)
        before = [p.detach().clone() for p in params]
        with_gradients(optimizer, 1)
        with Faults(at), pytest.raises(torch.OutOfMemoryError):
            optimizer.step()
        torn += any(not torch.equal(a, b) for a, b in zip(before, params, strict=True))
    assert torn > 10


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_on_the_host(variant, steps):
    kind, how = variant
    optimizer, params = made(kind, how, steps=steps)
    with_gradients(optimizer, steps)
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                step_on_host(optimizer, group, p)
    assert_same(optimizer, params, *made(kind, how, steps=steps + 1))


@pytest.mark.parametrize("steps", [0, 2])
def test_two_faults_go_to_the_host(steps, monkeypatch):
    used = []

    def on_host(optimizer, group, parameter):
        used.append(parameter)
        step_on_host(optimizer, group, parameter)

    monkeypatch.setattr(careful, "step_on_host", on_host)
    optimizer, params = made(OPTIM.AdamW, {}, steps=steps)
    with_gradients(optimizer, steps)
    with Faults(0, times=2):
        CarefulStep(0, keep_gradients=False)([optimizer])
    assert [p is params[0] for p in used] == [True]
    assert_same(optimizer, params, *made(OPTIM.AdamW, {}, steps=steps + 1))


def test_no_memory_at_all_says_how_far_it_got(monkeypatch):
    monkeypatch.setattr(careful, "UNIT_BYTES", 1)
    optimizer, params = made(OPTIM.AdamW, {}, steps=1)
    _, expected = made(OPTIM.AdamW, {}, steps=2)
    first = copy.deepcopy(params[3])
    with_gradients(optimizer, 1)
    with Faults(None) as counting:
        careful._try(optimizer, optimizer.param_groups[0], [params[0]])
    optimizer, params = made(OPTIM.AdamW, {}, steps=1)
    with_gradients(optimizer, 1)
    step = CarefulStep(7, keep_gradients=False)
    with (
        Faults(2 * counting.seen, times=10**6),
        pytest.raises(WindowError, match=r"window 7(.|\n)*[12] of its 4 parameters") as caught,
    ):
        step([optimizer])
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)
    assert step.has_begun
    assert torch.equal(params[0], expected[0])
    assert torch.equal(params[3], first)
    assert len(optimizer.param_groups) == 2


def test_other_optimizers_step_as_usual():
    class Mine(OPTIM.SGD):
        pass

    p = nn.Parameter(torch.ones(3))
    mine = Mine([p], lr=0.1)
    assert not is_separable(mine)
    assert not is_separable(OPTIM.LBFGS([p]))
    assert not is_separable(OPTIM.SGD([p], lr=0.1, differentiable=True))
    p.grad = torch.ones(3)
    CarefulStep(0, keep_gradients=False)([mine])
    assert torch.allclose(p, torch.full((3,), 0.9))
    with Faults(0), pytest.raises(WindowError, match="half made"):
        CarefulStep(0, keep_gradients=False)([mine])

    def broken():
        raise RuntimeError("something else")

    mine.step = broken
    with pytest.raises(RuntimeError, match="something else"):
        CarefulStep(0, keep_gradients=False)([mine])


@pytest.mark.parametrize("keep", [True, False])
def test_hooks_and_schedulers_see_one_step(keep):
    p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))
    optimizer = OPTIM.AdamW([p, q], lr=0.1)
    scheduler = OPTIM.lr_scheduler.StepLR(optimizer, 1)
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append(("before", p.grad)))
    optimizer.register_step_post_hook(lambda *_: seen.append(("after", p.grad)))
    gradient = torch.full((3,), 2.0)
    p.grad = gradient
    CarefulStep(0, keep_gradients=keep)([optimizer])
    scheduler.step()
    assert [name for name, _ in seen] == ["before", "after"]
    assert seen[0][1] is gradient
    assert seen[1][1] is (gradient if keep else None)
    assert p.grad is (gradient if keep else None)
    assert q.grad is None
    assert not optimizer.state.get(q)
    assert len(optimizer._optimizer_step_pre_hooks) == 1
    assert len(optimizer._optimizer_step_post_hooks) == 1


def test_errors_of_other_kinds_come_through_and_leave_the_unit_alone():
    optimizer, params = made(OPTIM.AdamW, {}, steps=1)
    before = [p.detach().clone() for p in params]
    with_gradients(optimizer, 1)
    optimizer.param_groups[0]["betas"] = (0.9, None)
    with pytest.raises(TypeError):
        CarefulStep(0, keep_gradients=False)([optimizer])
    assert all(torch.equal(a, b) for a, b in zip(before, params, strict=True))


def test_units_are_small_and_of_one_kind():
    params = [nn.Parameter(torch.ones(2**20)) for _ in range(20)]
    for p in params:
        p.grad = torch.ones_like(p)
    units = units_of(OPTIM.SGD(params, lr=0.1))
    assert [len(together) for _, together in units] == [8, 8, 4]
    mixed = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2, dtype=torch.float64))]
    for p in mixed:
        p.grad = torch.ones_like(p)
    assert len(units_of(OPTIM.Adam([*mixed, params[0]], fused=True))) == 2
