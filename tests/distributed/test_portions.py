"""States of optimizers that are each rank's own: they come back to it, or are refused."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.distributed.tensor import Replicate

import instep
from instep.engine.portions import require_for_all
from instep.engine.ranks.digests import digests_of
from instep.engine.restoring import changes
from instep.errors import CheckpointError, StateError
from tests.distributed.kit import spread, values
from tests.engine.test_restoring import VALUES


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def added_up(tensor):
    is_term = any(p.is_partial() for p in getattr(tensor, "placements", ()))
    return tensor.redistribute(placements=[Replicate()]) if is_term else tensor


class Local(torch.optim.Optimizer):
    """Keeps plain tensors for its shard of each parameter, and others that know how they lie."""

    def __init__(self, parameters, rank=0):
        super().__init__([{"params": list(parameters), "mine": rank}], {"lr": 0.1})
        self.rank = rank

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["mean"] = torch.zeros_like(local(p), dtype=torch.float64)
                state["step"] = torch.tensor(0.0)
                state["rows"] = added_up(p.detach().mean(-1))
                state["columns"] = added_up(p.detach().mean(0))
                state["deep"] = {"all": [p.detach().double()]}
            state["step"] += 1
            state["mean"].mul_(0.9).add_(local(p.grad))
            state["deep"]["all"][0] += 1
            local(p).sub_(state["mean"].to(p.dtype), alpha=0.1)


class Different(torch.optim.SGD):
    """All sorts of values, some of which differ between ranks, and one that only some have."""

    def __init__(self, parameters, rank=0):
        super().__init__([{"params": list(parameters), "mine": rank}], lr=0.1, momentum=0.9)
        self.rank = rank

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            self.state[p].update(copy.deepcopy(VALUES))
            self.state[p]["number"] = self.rank
            self.state[p]["own"] = {"a": [torch.full((2,), 1.0 + self.rank), ("s", None)]}
            self.state[p]["turned"] = torch.arange(4).roll(self.rank)
            self.state[p]["thin"] = torch.eye(3)[self.rank :].to_sparse()
            if self.rank:
                self.state[p]["late"] = torch.tensor(2**40 + self.rank)
        return super().step(closure)


class Even(torch.optim.SGD):
    """Sparse states, the same on all ranks, and numbers."""

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            self.state[p]["thin"] = torch.eye(6).to_sparse()
            self.state[p]["step"] = torch.tensor([3.0])
        return super().step(closure)


def build(rank, world, kind, make, seed=0):
    torch.manual_seed(seed)
    model = spread(nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), kind)
    optimizer = make(model.parameters(), *([0.1] if make is Even else [rank]))
    return model, optimizer, instep.Stepper(model, optimizer)


def windows(rank, model, stepper, numbers):
    for number in numbers:
        torch.manual_seed(10 * number + rank)
        with stepper.window() as window:
            window.backward(model(torch.randn(4, 5)).square().mean(), items=4)


def here(optimizer):
    """The state as this rank has it, and how it lies."""
    state = copy.copy(optimizer.state_dict())
    lies = []

    def plain(tree):
        if isinstance(tree, dict):
            return {key: plain(value) for key, value in tree.items()}
        if isinstance(tree, list | tuple):
            return type(tree)(map(plain, tree))
        lies.append(str(getattr(tree, "placements", "")))
        return local(tree).clone() if isinstance(tree, torch.Tensor) else tree

    state["state"] = {n: plain(dict(sorted(s.items()))) for n, s in state["state"].items()}
    return state, lies


def goes_on(rank, world, kind, make, path, wait):
    model, optimizer, stepper = build(rank, world, kind, make)
    windows(rank, model, stepper, range(3))
    writing = stepper.save(path, wait=wait)
    (saved, lies), groups = here(optimizer), copy.deepcopy(optimizer.param_groups[0]["mine"])
    windows(rank, model, stepper, range(3, 6))
    writing.wait()
    other, loaded, resumed = build(rank, world, kind, make, seed=1)
    loaded.param_groups[0]["mine"] = None
    resumed.load(path)
    found, lie = here(loaded)
    assert changes(saved, found) == changes(found, saved) == []
    assert lies == lie
    assert loaded.param_groups[0]["mine"] == groups == rank
    windows(rank, other, resumed, range(3, 6))
    return values(model) == values(other)


@pytest.mark.parametrize("wait", [True, False], ids=["", "background"])
@pytest.mark.parametrize("make", [Local, Different])
@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_what_is_a_ranks_own_comes_back_to_it(two, tmp_path, kind, make, wait):
    assert two.run(goes_on, kind, make, str(tmp_path), wait) == [True, True]


def test_shards_of_three_ranks(three, tmp_path):
    assert three.run(goes_on, "fsdp", Local, str(tmp_path), True) == [True] * 3


def save(rank, world, kind, make, path):
    model, _, stepper = build(rank, world, kind, make)
    windows(rank, model, stepper, range(2))
    stepper.save(path)
    return values(model)


def load(rank, world, kind, make, path):
    model, optimizer, stepper = build(rank, world, kind, make, seed=1)
    before = values(model)
    try:
        stepper.load(path)
    except StateError as error:
        assert values(model) == before
        assert not optimizer.state
        return error.what
    return [local(s["thin"]).to_dense().tolist() for s in optimizer.state.values()]


@pytest.mark.parametrize(("kind", "make"), [("fsdp", Local), ("ddp", Different)])
def test_another_number_of_ranks_is_refused_and_told_which_states(two, three, tmp_path, kind, make):
    two.run(save, kind, make, str(tmp_path))
    for said in (*three.run(load, kind, make, str(tmp_path)), load(0, 1, "alone", make, tmp_path)):
        assert "of 2 ranks cannot go on with" in said
        name = "mean" if make is Local else "number"
        assert f"{name!r} of '0.weight'" in said
        assert "and " in said


@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_what_all_ranks_have_alike_goes_on_with_any_number(two, three, tmp_path, kind):
    two.run(save, kind, Even, str(tmp_path))
    eye = torch.eye(6).tolist()
    for found in (*three.run(load, kind, Even, str(tmp_path)), load(0, 1, "", Even, tmp_path)):
        assert found == [eye] * 4


class Mixed(Local):
    def step(self, closure=None):
        super().step(closure)
        for p, state in self.state.items():
            state["mixed"] = [p.detach().clone(), torch.full((2,), float(self.rank))]


class Unsummed(Local):
    def step(self, closure=None):
        super().step(closure)
        for p, state in self.state.items():
            state["sum"] = p.detach().sum()


def refused(rank, world, make, path):
    model, _, stepper = build(rank, world, "fsdp", make)
    windows(rank, model, stepper, range(2))
    with pytest.raises(CheckpointError) as caught:
        stepper.save(path)
    windows(rank, model, stepper, range(1))
    return caught.value.what


def test_what_cannot_be_saved_is_refused_before_anything_is_written(two, tmp_path):
    assert all("'mixed'" in said for said in two.run(refused, Mixed, str(tmp_path)))
    assert all("not added up" in said for said in two.run(refused, Unsummed, str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_numbers_tell_places_and_types_apart_and_leave_values_alone():
    ones = torch.ones(3)
    trees = {
        "first": torch.tensor([0, 1]),
        "second": torch.tensor([1, 0]),
        "floats": torch.tensor([0.0, 1.0]),
        "negative": torch.tensor([-0.0, 1.0]),
        "column": torch.tensor([[0], [1]]),
        "listed": [ones, ones],
        "tuple": (ones, ones),
        "keyed": {"a": ones, 0: ones},
        "text": "a",
        "texts": {"a"},
        "thin": torch.eye(2).to_sparse(),
        "none": torch.empty(0),
        "complex": torch.tensor([1j]),
        "surrogate": "\ud800",
    }
    before = copy.deepcopy(trees)
    found = digests_of(trees)
    assert len(set(found.values())) == len(trees)
    assert digests_of(before) == found
    assert str(trees) == str(before)
    long = torch.randn(2**20 + 5)
    swapped = long.clone()
    swapped[0], swapped[2**20] = long[2**20], long[0]
    assert len(set(digests_of({1: long, 2: swapped}).values())) == 2
    assert digests_of({1: long.clone()}) == digests_of({1: long})


def test_the_error_names_groups_and_parameters_without_names():
    own = [(("o", 0, "param_groups", 1, "mine"), False), (("o", 0, "state", 5, "mean"), False)]
    with pytest.raises(StateError, match="'mine' of group 1 of 'o', 'mean' of parameter 5 of 'o'"):
        require_for_all({"own": own}, 2, 3)
    require_for_all({"own": [(own[0][0], True)]}, 2, 3)
    require_for_all({}, 2, 3)
