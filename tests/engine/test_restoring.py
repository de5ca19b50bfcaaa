"""An optimizer's state comes back in its own types, whatever its parameters' are."""

from __future__ import annotations

import copy
import warnings
from collections import Counter, OrderedDict

import pytest
import torch
from torch import nn

import instep
from instep.engine.restoring import changes
from instep.errors import InstepWarning


class Master(torch.optim.Optimizer):
    """bf16 parameters with fp32 weights and momenta behind them."""

    def __init__(self, parameters, lr=1e-3) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["master"] = p.detach().float().clone()
                    state["mean"] = torch.zeros_like(state["master"])
                    state["count"] = torch.tensor(2**40 + 1)
                    state["codes"] = torch.full(p.shape, 200, dtype=torch.uint8)
                state["mean"].mul_(0.9).add_(p.grad.float())
                state["master"].sub_(state["mean"], alpha=group["lr"])
                state["count"] += 1
                p.copy_(state["master"])


class CallsTorch(Master):
    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)


class CastsBack(Master):
    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        for state in self.state.values():
            state["master"], state["mean"] = state["master"].float(), state["mean"].float()
            state["count"], state["codes"] = state["count"].long(), state["codes"].byte()


class OwnCast(Master):
    """Does not call torch's, and casts as that does."""

    def load_state_dict(self, state_dict):
        parameters = [p for group in self.param_groups for p in group["params"]]
        for number, state in state_dict["state"].items():
            p = parameters[number]
            self.state[p] = {key: value.to(p.dtype) for key, value in state.items()}


class Wide(Master):
    """Saves in fp32 what it keeps in bf16, and has it cast when it is loaded."""

    def step(self, closure=None):
        super().step(closure)
        for p, state in self.state.items():
            self.state[p] = {"mean": state["mean"].bfloat16()}

    def state_dict(self):
        state = super().state_dict()
        wide = {n: {k: v.float() for k, v in s.items()} for n, s in state["state"].items()}
        return {**state, "state": wide}

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 3)).bfloat16()


def windows(model, stepper, numbers):
    for number in numbers:
        torch.manual_seed(number)
        with stepper.window() as window:
            window.backward(model(torch.randn(4, 5).bfloat16()).float().square().mean(), items=4)


def grouped(kind, model):
    return kind([{"params": model[1].parameters(), "lr": 2e-3}, {"params": model[0].parameters()}])


def apart(kind, model):
    return [kind(model[0].parameters()), kind(model[1].parameters())]


@pytest.mark.parametrize("kind", [Master, CallsTorch, CastsBack])
@pytest.mark.parametrize("build", [lambda kind, m: kind(m.parameters()), grouped, apart])
def test_wide_states_of_narrow_parameters_go_on_bit_for_bit(tmp_path, kind, build):
    model = net()
    stepper = instep.Stepper(model, build(kind, model))
    windows(model, stepper, range(10))
    stepper.save(tmp_path / "run.ckpt")
    windows(model, stepper, range(10, 40))
    other = net(1)
    resumed = instep.Stepper(other, build(kind, other))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed.load(tmp_path / "run.ckpt")
    windows(other, resumed, range(10, 40))
    for one, two in zip(stepper.optimizers.values(), resumed.optimizers.values(), strict=True):
        for a, b in zip(one, two, strict=True):
            assert changes(a.state_dict(), b.state_dict()) == []
            assert changes(b.state_dict(), a.state_dict()) == []
    assert all(map(torch.equal, model.parameters(), other.parameters()))


def test_a_state_in_torchs_own_loading_is_told_apart():
    model = net()
    optimizer = Master(model.parameters())
    windows(model, instep.Stepper(model, optimizer), range(2))
    other = Master(net().parameters())
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    found = changes(optimizer.state_dict(), other.state_dict())
    assert "'master' of parameter 0 was torch.float32 and is torch.bfloat16" in found
    assert "'count' of parameter 0 was torch.int64 and is torch.bfloat16" in found
    assert len(found) == 16


def test_a_class_that_casts_by_itself_is_said(tmp_path):
    model = net()
    stepper = instep.Stepper(model, OwnCast(model.parameters()))
    windows(model, stepper, range(2))
    stepper.save(tmp_path / "run.ckpt")
    with pytest.warns(InstepWarning, match="OwnCast.load_state_dict has changed what was") as said:
        instep.Stepper(other := net(), OwnCast(other.parameters())).load(tmp_path / "run.ckpt")
    assert "'master' of parameter 0 was torch.float32 and is torch.bfloat16" in str(said[0].message)
    assert "and 13 more" in str(said[0].message)


def test_a_class_that_saves_another_form_keeps_its_own_in_memory(tmp_path):
    model = net()
    optimizer = Wide(model.parameters())
    stepper = instep.Stepper(model, optimizer)
    with stepper.window() as window:
        window.backward(model(torch.ones(1, 5).bfloat16()).float().mean(), items=1)
    stepper.save(tmp_path / "run.ckpt")
    other = net(1)
    loaded = Wide(other.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        instep.Stepper(other, loaded).load(tmp_path / "run.ckpt")
    pairs = zip(optimizer.state.values(), loaded.state.values(), strict=True)
    assert all(torch.equal(a["mean"], b["mean"]) for a, b in pairs)
    assert {s["mean"].dtype for s in loaded.state.values()} == {torch.bfloat16}


VALUES = {
    "text": "warmup",
    "texts": ["a", ("b", {"c": "d"})],
    "set": {"a", 1},
    "counter": Counter("aab"),
    "ordered": OrderedDict(b=torch.ones(2).double() / 3, a=1),
    "nested": {"a": [torch.ones(2).double() / 3, (torch.tensor([True, False]), None, 2.5)]},
    "float64": torch.tensor([1 / 3, float("nan")], dtype=torch.float64),
    "float16": torch.tensor(1 / 3, dtype=torch.float16),
    "int64": torch.tensor(2**40 + 1),
    "bool": torch.tensor([True, False]),
    "complex": torch.tensor([1 + 2j]),
    "sparse": torch.eye(2, dtype=torch.float64).to_sparse(),
    "empty": torch.empty(0, dtype=torch.int8),
    "size": torch.Size([2, 3]),
    "bytes": b"xy",
    "number": 10**40,
}


class Odd(torch.optim.SGD):
    """Keeps all sorts of things."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p].update(copy.deepcopy(VALUES))
        return super().step(closure)


def test_all_sorts_of_values_come_back(tmp_path):
    model = net()
    optimizer = Odd(model.parameters(), lr=0.1, momentum=0.9)
    stepper = instep.Stepper(model, optimizer)
    windows(model, stepper, range(1))
    stepper.save(tmp_path / "run.ckpt")
    other = net(1)
    loaded = Odd(other.parameters(), lr=0.1, momentum=0.9)
    instep.Stepper(other, loaded).load(tmp_path / "run.ckpt")
    assert changes(optimizer.state_dict(), loaded.state_dict()) == []
    state = loaded.state[other[0].weight]
    assert {key: type(value) for key, value in state.items() if key in VALUES} == {
        key: type(value) for key, value in VALUES.items()
    }
    assert type(state["nested"]["a"][1]) is tuple
    assert state["nested"]["a"][0].dtype is torch.float64


@pytest.mark.parametrize("option", ["capturable", "fused", "foreach"])
def test_counters_named_step_keep_their_type(tmp_path, option):
    """torch makes them float32 for capturable and fused updates."""

    class Counting(Odd):
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["step"] = torch.tensor(2**25 + 1)

    def build(model):
        return Counting([{"params": list(model.parameters()), option: True}], lr=0.1)

    model = net()
    optimizer = build(model)
    windows(model, stepper := instep.Stepper(model, optimizer), range(1))
    stepper.save(tmp_path / "run.ckpt")
    loaded = build(other := net())
    instep.Stepper(other, loaded).load(tmp_path / "run.ckpt")
    assert {(s["step"].dtype, s["step"].item()) for s in loaded.state.values()} == {
        (torch.int64, 2**25 + 1)
    }


def test_hooks_of_a_load_see_what_was_saved_and_may_change_it(tmp_path):
    model = net()
    windows(model, stepper := instep.Stepper(model, Master(model.parameters())), range(2))
    stepper.save(tmp_path / "run.ckpt")
    other = net()
    loaded = Master(other.parameters())
    seen = []

    def without_codes(_, state):
        states = {n: {**s, "count": s["count"] * 2} for n, s in state["state"].items()}
        return {**state, "state": states}

    def look(one):
        seen.extend(s["master"].dtype for s in one.state.values())
        for s in one.state.values():
            s["codes"] = s["codes"].int()

    loaded.register_load_state_dict_pre_hook(without_codes)
    loaded.register_load_state_dict_post_hook(look)
    hooks = len(loaded._optimizer_load_state_dict_pre_hooks)
    instep.Stepper(other, loaded).load(tmp_path / "run.ckpt")
    assert seen == [torch.float32] * 4
    assert {s["count"].item() for s in loaded.state.values()} == {2 * (2**40 + 3)}
    assert {s["codes"].dtype for s in loaded.state.values()} == {torch.int32}
    assert len(loaded._optimizer_load_state_dict_pre_hooks) == hooks
    assert len(loaded._optimizer_load_state_dict_post_hooks) == 1


def test_what_a_class_makes_of_a_state_on_its_way_stays(tmp_path):
    class Doubling(Master):
        def __setstate__(self, state):
            super().__setstate__(state)
            for held in self.state.values():
                held["mean"] = held["mean"] * 2

    model = net()
    optimizer = Doubling(model.parameters())
    windows(model, stepper := instep.Stepper(model, optimizer), range(2))
    stepper.save(tmp_path / "run.ckpt")
    loaded = Doubling((other := net()).parameters())
    instep.Stepper(other, loaded).load(tmp_path / "run.ckpt")
    for one, two in zip(optimizer.state.values(), loaded.state.values(), strict=True):
        assert torch.equal(two["mean"], one["mean"].bfloat16() * 2)
        assert torch.equal(two["master"], one["master"])
