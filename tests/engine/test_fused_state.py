"""The fused close when the optimizer, its options or its parameters change between windows.

Each case runs fused and portable side by side, in float64, and must leave the same weights, states
and rates behind.
"""

from __future__ import annotations

import copy
import math
import pickle
import warnings

import pytest
import torch
from torch import nn

import instep
from instep.engine.reference import relative_error
from instep.errors import InstepWarning, WindowError
from instep.fast.rules import LION, rule_of
from tests.engine.test_fused_close import Lion

pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def net(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).to(DEVICE, dtype)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def halving(optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)


class Job:
    """A model, its optimizer and a stepper; `window` closes one window."""

    def __init__(self, make=adamw, dtype=torch.float64, schedule=None, **options):
        self.model = net(dtype)
        self.dtype = dtype
        self.optimizer = make(self.model.parameters())
        self.scheduler = schedule and schedule(self.optimizer)
        self.stepper = instep.Stepper(
            self.model, self.optimizer, scheduler=self.scheduler, **options
        )

    def window(self, seed=0, *, factor=1.0, read=True):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(6, 5, generator=generator, dtype=torch.float64).to(DEVICE, self.dtype)
        with self.stepper.window() as window:
            loss = (self.model(x) - 1).square().mean() * factor
            window.backward(loss, items=6)
        return window.skipped if read else None

    def plain_step(self):
        self.model(torch.ones(2, 5, device=DEVICE, dtype=self.dtype)).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    @property
    def state(self):
        return self.optimizer.state[self.model[0].weight]


def compare(body, tolerance=1e-14, **options):
    """Run a body on a fused and on a portable job; return what it returned for the portable one."""
    found = []
    for fused in (True, False):
        job = Job(fused=fused, **options)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=InstepWarning, message="fused=True")
            said = body(job)
        states = job.optimizer.state_dict()
        found.append((job, said, states))
    (fused, one, states), (plain, other, expected) = found
    assert one == other
    assert (
        relative_error(list(fused.model.parameters()), list(plain.model.parameters())) < tolerance
    )
    assert [g["lr"] for g in states["param_groups"]] == [g["lr"] for g in expected["param_groups"]]
    assert states["state"].keys() == expected["state"].keys()
    for index, held in expected["state"].items():
        for name, value in held.items():
            assert torch.allclose(states["state"][index][name].cpu(), value.cpu(), rtol=1e-12), name
    return other


def windows(job, count, start=0):
    for seed in range(start, start + count):
        job.window(seed)


# -- groups and options ---------------------------------------------------------------------------


def load_rate(job):
    windows(job, 2)
    state = copy.deepcopy(job.optimizer.state_dict())
    state["param_groups"][0]["lr"] = 1e-5
    job.optimizer.load_state_dict(state)
    windows(job, 3)


def load_and_set_rate(job):
    windows(job, 2)
    job.optimizer.load_state_dict(copy.deepcopy(job.optimizer.state_dict()))
    for seed in range(3):
        job.optimizer.param_groups[0]["lr"] = 1e-5
        job.window(seed)


def replace_groups(job):
    windows(job, 2)
    job.optimizer.param_groups = [dict(g, lr=1e-5) for g in job.optimizer.param_groups]
    windows(job, 3)


def move_a_parameter_to_another_group(job):
    windows(job, 2)
    (group,) = job.optimizer.param_groups
    last = group["params"].pop()
    job.optimizer.add_param_group({"params": [last], "lr": 0.5})
    windows(job, 2)


@pytest.mark.parametrize(
    "body", [load_rate, load_and_set_rate, replace_groups, move_a_parameter_to_another_group]
)
@pytest.mark.parametrize("rule", ["AdamW", "SGD"])
def test_groups_that_are_replaced_between_windows(body, rule):
    kinds = {"AdamW": adamw, "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)}
    compare(body, make=kinds[rule])


def test_loading_a_checkpoint_brings_its_rate_back(tmp_path):
    def body(job):
        job.window()
        job.stepper.save(tmp_path / "run.ckpt")
        windows(job, 4)
        job.stepper.load(tmp_path / "run.ckpt")
        windows(job, 3)

    compare(body, schedule=halving)


def switch_to_amsgrad(job):
    job.window()
    job.optimizer.param_groups[0]["amsgrad"] = True
    for held in job.optimizer.state.values():
        held["max_exp_avg_sq"] = held["exp_avg_sq"] * 4
    windows(job, 2)
    job.optimizer.param_groups[0]["amsgrad"] = False
    windows(job, 2)


def test_options_that_the_kernel_does_not_know_are_heeded_from_then_on():
    compare(switch_to_amsgrad)


def test_momentum_that_is_switched_on_and_off():
    def body(job):
        for momentum in (0.0, 0.9, 0.0, 0.9):
            job.optimizer.param_groups[0]["momentum"] = momentum
            windows(job, 2)

    compare(body, make=lambda p: torch.optim.SGD(p, lr=0.1))


def test_the_portable_close_is_said_once_and_leaves_out_what_was_not_reached():
    def body(job):
        windows(job, 1)
        job.optimizer.param_groups[0]["amsgrad"] = True
        for held in job.optimizer.state.values():
            held["max_exp_avg_sq"] = held["exp_avg_sq"].clone()
        with job.stepper.window() as window:
            x = torch.ones(2, 8, device=DEVICE, dtype=torch.float64)
            window.backward(job.model[2](x).square().mean(), items=2)
        return float(job.state["step"])

    assert compare(body) == 1.0
    job = Job(fused=True)
    job.optimizer.param_groups[0]["amsgrad"] = True
    with pytest.warns(InstepWarning, match="has no effect for 'optimizer' now") as caught:
        windows(job, 3)
    assert len(caught) == 1


# -- hooks of the optimizer -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pre", "post"])
def test_hooks_of_a_step_find_gradients(kind):
    def body(job):
        seen = []

        def hook(optimizer, *_):
            gradients = [p.grad for p in optimizer.param_groups[0]["params"]]
            seen.append([g is not None for g in gradients])
            for g in gradients:
                g.mul_(0.5)

        getattr(job.optimizer, f"register_step_{kind}_hook")(hook)
        windows(job, 2)
        return seen

    assert compare(body, make=lambda p: torch.optim.SGD(p, lr=0.1)) == [[True] * 4] * 2


@pytest.mark.parametrize("kind", ["pre", "post"])
def test_a_hook_that_raises(kind):
    def body(job):
        job.window()

        def broken(*_):
            raise KeyError("mine")

        handle = getattr(job.optimizer, f"register_step_{kind}_hook")(broken)
        with pytest.raises(KeyError, match="mine"):
            job.window(1)
        handle.remove()
        job.window(2)
        return float(job.state["step"])

    assert compare(body) == (2.0 if kind == "pre" else 3.0)


# -- states ---------------------------------------------------------------------------------------


def clear(job):
    windows(job, 3)
    job.optimizer.state.clear()
    windows(job, 2)


def rewind(job):
    state = copy.deepcopy(job.optimizer.state_dict())
    windows(job, 3)
    job.optimizer.load_state_dict(state)
    windows(job, 2)


def zero_in_place(job):
    windows(job, 3)
    for held in job.optimizer.state.values():
        for value in held.values():
            value.zero_()
    windows(job, 2)


def load_without_one(job):
    windows(job, 3)
    state = copy.deepcopy(job.optimizer.state_dict())
    del state["state"][1]
    job.optimizer.load_state_dict(state)
    windows(job, 2)


def step_between(job):
    for seed in range(3):
        job.window(seed)
        job.plain_step()


def step_between_unread(job):
    for seed in range(3):
        job.window(seed, read=False)
        job.plain_step()


def another_stepper(job):
    other = instep.Stepper(job.model, job.optimizer)
    for seed in range(3):
        job.window(seed)
        with other.window() as window:
            x = torch.ones(2, 5, device=DEVICE, dtype=torch.float64)
            window.backward(job.model(x).square().mean(), items=2)


@pytest.mark.parametrize(
    "body",
    [
        clear,
        rewind,
        zero_in_place,
        load_without_one,
        step_between,
        step_between_unread,
        another_stepper,
    ],
)
@pytest.mark.parametrize("rule", ["AdamW", "Adam", "SGD", "plain SGD", "Lion"])
def test_states_that_others_change_between_windows(body, rule):
    kinds = {
        "AdamW": adamw,
        "Adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
        "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2),
        "plain SGD": lambda p: torch.optim.SGD(p, lr=0.1),
        "Lion": lambda p: Lion(p, lr=0.01),
    }
    if body is load_without_one and rule == "plain SGD":
        pytest.skip("it has no state to leave out")
    compare(body, make=kinds[rule])


# -- outcomes that nobody has read yet ------------------------------------------------------------


def test_copies_of_the_optimizer_count_the_last_update():
    job = Job(fused=True)
    for count in (1, 2):
        job.window(read=False)
        for other in (copy.deepcopy(job.optimizer), pickle.loads(pickle.dumps(job.optimizer))):
            assert {float(held["step"]) for held in other.state.values()} == {count}
            assert len(other.state) == 4


def test_an_update_that_was_not_made_is_not_counted():
    job = Job(fused=True)
    with pytest.warns(InstepWarning, match="finite"):
        assert job.window(factor=math.nan) == "non-finite"
    assert not job.optimizer.state
    job.window()
    assert job.window(factor=math.nan) == "non-finite"
    assert float(job.state["step"]) == 1.0
    fresh = Job(fused=False)
    fresh.window()
    assert relative_error(list(job.model.parameters()), list(fresh.model.parameters())) < 1e-14


def rewind_by_hand(job):
    job.window()
    kept = [copy.deepcopy(one.state_dict()) for one in (job.model, job.optimizer, job.scheduler)]
    job.window(1, read=False)
    for one, state in zip((job.model, job.optimizer, job.scheduler), kept, strict=True):
        one.load_state_dict(state)
    windows(job, 2, start=3)
    return job.scheduler.last_epoch


def rate_by_hand(job):
    job.window(read=False)
    job.optimizer.param_groups[0]["lr"] = 0.3
    job.window(1, read=False)
    job.window(2)


@pytest.mark.parametrize("body", [rewind_by_hand, rate_by_hand])
def test_what_is_done_before_an_outcome_is_read_comes_after_it(body):
    compare(body, schedule=halving)


def test_a_checkpoint_that_is_loaded_before_an_outcome_is_read(tmp_path):
    def body(job):
        job.window(read=False)
        job.stepper.save(tmp_path / "run.ckpt")
        job.window(1, read=False)
        job.stepper.load(tmp_path / "run.ckpt")
        windows(job, 2, start=2)
        return job.scheduler.last_epoch

    assert compare(body, schedule=halving) == 3


# -- memory ---------------------------------------------------------------------------------------


def test_another_memory_format_between_windows():
    found = []
    for fused in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Conv2d(4, 2, 3)).double().to(DEVICE)
        stepper = instep.Stepper(model, adamw(model.parameters()), fused=fused)
        x = torch.randn(3, 2, 7, 7, dtype=torch.float64).to(DEVICE)
        for form in (torch.contiguous_format, torch.channels_last, torch.contiguous_format):
            model.to(memory_format=form)
            stepper.step(x, lambda x, model=model: model(x).square().mean(), split=1)
        found.append(list(model.parameters()))
    assert relative_error(*found) < 1e-14


def test_another_type_between_windows():
    def body(job):
        job.window()
        job.model.double()
        job.dtype = torch.float64
        job.window(1)
        return job.model[0].weight.dtype

    made = compare(
        body, 1e-6, make=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.0), dtype=torch.float32
    )
    assert made is torch.float64


def test_parameters_that_share_memory_stay_tied():
    torch.manual_seed(0)
    one, other = nn.Linear(5, 5), nn.Linear(5, 5)
    other.weight.data = one.weight.data
    model = nn.Sequential(one, other).to(DEVICE)
    other.weight.data = one.weight.data
    with pytest.warns(InstepWarning, match="two parameters lie in the same memory"):
        stepper = instep.Stepper(model, adamw(model.parameters()), fused=True)
    stepper.step(torch.ones(2, 5, device=DEVICE), lambda x: model(x).square().mean())
    assert one.weight.data_ptr() == other.weight.data_ptr()


def test_parameters_that_are_tied_by_memory_later_are_refused():
    model = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5)).to(DEVICE)
    stepper = instep.Stepper(model, adamw(model.parameters()), fused=True)
    x = torch.ones(2, 5, device=DEVICE)
    stepper.step(x, lambda x: model(x).square().mean())
    model[1].weight.data = model[0].weight.data
    with pytest.raises(WindowError, match="two parameters lie in the same memory"):
        stepper.step(x, lambda x: model(x).square().mean())


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e25, 1e-12, 1e19])
def test_a_norm_whose_squares_do_not_fit(factor):
    jobs = [
        Job(lambda p: torch.optim.SGD(p, lr=0.1), torch.float32, fused=fused, clip_norm=1.0)
        for fused in (True, False)
    ]
    for job in jobs:
        assert job.window(factor=factor) is None
    one, other = (list(job.model.parameters()) for job in jobs)
    assert relative_error(one, other) < 1e-6


# -- who is Lion ----------------------------------------------------------------------------------


class CautiousLion(torch.optim.Optimizer):
    """A variant: it moves only where the gradient agrees."""

    def __init__(self, params, lr=0.01, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                u = m * b1 + p.grad * (1 - b1)
                p.sub_(u.sign() * (u * p.grad > 0), alpha=group["lr"])
                m.lerp_(p.grad, 1 - b2)


class Demanding(Lion):
    """It cannot be made from its defaults alone."""

    def __init__(self, params, lr, needed):
        super().__init__(params, lr)


def test_only_what_acts_as_lion_is_lion():
    parameters = [nn.Parameter(torch.ones(3))]
    assert rule_of(Lion(parameters, weight_decay=0.1)) is LION
    variant = type("Lion", (CautiousLion,), {})
    assert rule_of(variant(parameters)) is None
    assert rule_of(type("Lion", (Demanding,), {})(parameters, 0.1, "this")) is None
