from __future__ import annotations

import copy
import io
import itertools
import random

import pytest
import torch
from torch import nn

import instep
from instep.engine import auto, careful
from instep.engine.reference import relative_error
from instep.errors import SplitError, WindowError
from instep.rules.verdict import judge_all
from instep.rules.view import View
from instep.splits.fit import PATIENCE, Fit
from instep.trace import Backward, Step, WindowDiscarded
from tests.engine.faults import Faults, assert_same_state

OPTIM = torch.optim
AUTO = instep.Micro("auto")


def noisy():
    """A model with everything that a replay must put back."""
    return nn.Sequential(
        nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 2)
    ).double()


def quiet():
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2)).double()


class World:
    """A stepper with its model, data and random states, always the same at its start."""

    def __init__(self, make, kind=OPTIM.AdamW, how=None, *, samples=8, name=None, **options):
        torch.manual_seed(0)
        random.seed(0)
        self.model = make()
        self.optimizer = kind(self.model.parameters(), lr=0.1, **(how or {}))
        self.trace = instep.Trace()
        optimizer = self.optimizer
        if name is not None:
            self.other = nn.Linear(2, 2).double()
            rest = OPTIM.AdamW(self.other.parameters())
            optimizer = {name: self.optimizer, "rest": rest}
        self.name = name
        self.stepper = instep.Stepper(self.model, optimizer, trace=self.trace, **options)
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(samples, 5, dtype=torch.float64, generator=generator)
        self.y = torch.randn(samples, 2, dtype=torch.float64, generator=generator)

    def loss(self, piece):
        x, y = piece
        random.random()
        return (self.model(x) - y).square().mean()

    def auto(self, split=AUTO):
        batch = (self.x, self.y)
        return self.stepper.step(batch, self.loss, split=split, optimizer=self.name)

    def by_hand(self, sizes):
        with self.stepper.window() as window:
            for x, y in zip(self.x.split(sizes), self.y.split(sizes), strict=True):
                window.backward(self.loss((x, y)), items=len(x), optimizer=self.name)

    def know(self, size):
        """Let the stepper know a size, as if it had been found."""
        shapes = (("float64", (5,)), ("float64", (2,)))
        self.stepper._core.sizes.keep((self.name or "optimizer", shapes), Fit(size, failed=99))

    def fit(self):
        (fit,) = self.stepper._core.sizes._known.values()
        return fit

    def randoms(self):
        return torch.get_rng_state().tolist(), random.getstate()


def assert_same_model(one: nn.Module, other: nn.Module) -> None:
    for (name, a), b in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


KINDS = {
    "adamw": (OPTIM.AdamW, {}, {}),
    "adamw-fused": (OPTIM.AdamW, {"fused": True}, {}),
    "adam-foreach": (OPTIM.Adam, {"foreach": True, "amsgrad": True}, {"keep_grads": True}),
    "sgd": (OPTIM.SGD, {"momentum": 0.9}, {"clip_norm": 0.1}),
    "rmsprop": (OPTIM.RMSprop, {"momentum": 0.9}, {"clip_value": 0.01}),
    "nadam": (OPTIM.NAdam, {}, {"name": "several"}),
}


@pytest.fixture
def _quick(monkeypatch):
    # Hundreds of faults: collecting garbage at each of them takes minutes.
    monkeypatch.setattr(auto, "release", lambda: None)
    monkeypatch.setattr(careful, "release", lambda: None)


def every_fault(make_world, windows):
    """Yield (world, update) for a fault at each operation of one window, after some good ones."""
    for at in itertools.count():
        world = make_world()
        for _ in range(windows):
            world.auto()
        with Faults(at) as faults:
            update = world.auto()
        if not faults.raised:
            break
        yield world, update
    assert at > 100


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(
    ("kind", "windows"), [("adamw", 0), ("adamw-fused", 0), ("sgd", 0), *((k, 1) for k in KINDS)]
)
def test_a_fault_anywhere_is_a_run_with_the_resulting_split(kind, windows):
    optimizer, how, options = KINDS[kind]

    def make():
        world = World(noisy, optimizer, how, **options)
        world.know(4)
        return world

    expected = {}
    for sizes in ([4, 4], [2, 2, 2, 2]):
        reference = World(noisy, optimizer, how, **options)
        for _ in range(windows):
            reference.by_hand([4, 4])
        reference.by_hand(sizes)
        expected[len(sizes)] = (reference, reference.randoms())
    seen = set()
    for world, update in every_fault(make, windows):
        seen.add(update.micro_batches)
        same, randoms = expected[update.micro_batches]
        assert world.randoms() == randoms
        assert_same_model(world.model, same.model)
        assert_same_state(world.optimizer, same.optimizer)
        assert world.stepper._loop.index == windows + 1
    # In forward and backward the split shrinks; in the optimizer it has no reason to.
    assert seen == {2, 4}


@pytest.mark.usefixtures("_quick")
def test_a_fault_anywhere_leaves_the_update_of_the_original_split():
    def make():
        world = World(quiet, samples=7)
        world.know(4)
        return world

    for windows in (0, 1):
        original = make()
        for _ in range(windows + 1):
            original.auto()
        for world, _ in every_fault(make, windows):
            found, true = (list(w.model.parameters()) for w in (world, original))
            assert relative_error(found, true) < 1e-12


@pytest.mark.usefixtures("_quick")
def test_a_fault_anywhere_under_a_scaler():
    def make():
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=1)
        world = World(noisy, precision="bf16", scaler=scaler)
        world.scaler = scaler
        world.know(4)
        return world

    expected = {}
    for sizes in ([4, 4], [2, 2, 2, 2]):
        expected[len(sizes)] = make()
        expected[len(sizes)].by_hand(sizes)
    for world, update in every_fault(make, 0):
        same = expected[update.micro_batches]
        assert world.scaler.state_dict() == same.scaler.state_dict()
        assert_same_model(world.model, same.model)
        assert_same_state(world.optimizer, same.optimizer)


@pytest.mark.usefixtures("_quick")
def test_the_trace_shows_what_was_discarded_and_no_rule_minds():
    def make():
        world = World(noisy)
        world.know(4)
        return world

    discarded = 0
    for world, update in every_fault(make, 0):
        reasons = [e.reason for e in world.trace if isinstance(e, WindowDiscarded)]
        assert reasons == ["out-of-memory"] * (update.micro_batches == 4)
        discarded += len(reasons)
        assert sum(isinstance(e, Step) for e in world.trace) == 1
        assert sum(isinstance(e, Backward) for e in world.trace) >= update.micro_batches
        if discarded % 7 == 1:
            world.auto()
            assert judge_all(View(world.trace)) == []
    assert discarded > 50


class Need:
    """A loss that does not fit if its piece has more than `most` samples."""

    def __init__(self, world, most):
        self.world, self.most, self.tried = world, most, []

    def __call__(self, piece):
        self.tried.append(len(piece[0]))
        if len(piece[0]) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return self.world.loss(piece)


def test_a_size_shrinks_until_it_fits_and_grows_back():
    world = World(quiet, samples=16)
    need = Need(world, most=5)
    batch = (world.x, world.y)
    update = world.stepper.step(batch, need, split=AUTO)
    assert need.tried == [16, 8, 4, 4, 4, 4]
    assert update.micro_batches == 4
    need.tried.clear()
    for _ in range(PATIENCE - 1):
        world.stepper.step(batch, need, split=AUTO)
    assert set(need.tried) == {4}
    need.most = 16
    for _ in range(6 * PATIENCE):
        world.stepper.step(batch, need, split=AUTO)
    assert need.tried[-1] == 16
    assert world.fit().failed is None


def test_one_sample_that_does_not_fit():
    world = World(quiet)
    before = copy.deepcopy(world.model)
    randoms = world.randoms()
    with pytest.raises(SplitError, match=r"one sample does not fit(.|\n)*2\.00 GiB"):
        world.stepper.step((world.x, world.y), Need(world, 0), split=AUTO)
    assert world.randoms() == randoms
    assert not world.stepper.is_in_window
    assert_same_model(world.model, before)
    world.auto()


def test_other_errors_are_not_retried():
    world = World(quiet)
    for error in (RuntimeError("out of memory, says somebody"), MemoryError(), ValueError("x")):
        tried = []

        def fail(piece, error=error, tried=tried):
            tried.append(piece)
            raise error

        with pytest.raises(type(error)):
            world.stepper.step((world.x, world.y), fail, split=AUTO)
        assert len(tried) == 1


def test_what_comes_after_the_update_is_not_replayed():
    world = World(quiet)
    calls = []

    def hook(*_):
        calls.append(1)
        raise torch.OutOfMemoryError("in a hook, after the update")

    world.optimizer.register_step_post_hook(hook)
    with pytest.raises(torch.OutOfMemoryError, match="after the update"):
        world.auto()
    assert len(calls) == 1


def test_an_optimizer_that_cannot_be_stepped_in_units():
    class Mine(OPTIM.AdamW):
        pass

    world = World(quiet, Mine)
    with Faults(None) as counting:
        world.auto()
    again = World(quiet, Mine)
    with Faults(counting.seen - 1), pytest.raises(WindowError, match=r"window 0(.|\n)*half made"):
        again.auto()


def test_gradients_beside_the_window_are_not_added_to_twice():
    world = World(quiet)
    world.know(4)
    outside = nn.Parameter(torch.ones(2, dtype=torch.float64))
    world.stepper.models[0].register_parameter("outside", outside)
    world.x.requires_grad_()
    outside.grad = torch.ones(2, dtype=torch.float64)
    fail = iter([False, True])

    def loss(piece):
        if next(fail, False):
            raise torch.OutOfMemoryError("now")
        return ((world.model(piece[0]) - piece[1]) * outside).square().mean()

    world.stepper.step((world.x, world.y), loss, split=AUTO)
    other = World(quiet)
    again = nn.Parameter(torch.ones(2, dtype=torch.float64))
    other.stepper.models[0].register_parameter("outside", again)
    other.x.requires_grad_()
    again.grad = torch.ones(2, dtype=torch.float64)
    with other.stepper.window() as window:
        for x, y in zip(other.x.split(2), other.y.split(2), strict=True):
            window.backward(((other.model(x) - y) * again).square().mean(), items=2)
    assert torch.equal(world.x.grad, other.x.grad)
    assert torch.equal(outside.grad, again.grad)


# -- with a budget: sizes are found by measuring ---------------------------------------------------


class Wide:
    """A model whose activations are most of its memory, and batches of it."""

    def __init__(self, samples=64, kind=OPTIM.SGD):
        torch.manual_seed(0)
        layers = [layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.Tanh())]
        self.model = nn.Sequential(*layers).double()
        self.optimizer = kind(self.model.parameters(), lr=0.01)
        self.stepper = instep.Stepper(self.model, self.optimizer)
        self.x = torch.randn(samples, 50, 32, dtype=torch.float64)
        self.sizes = []

    def loss(self, x):
        self.sizes.append(len(x))
        return (self.model(x) - 1).square().mean()

    def step(self, budget):
        self.sizes.clear()
        split = instep.Micro("auto", budget=budget)
        return self.stepper.step(self.x, self.loss, split=split)


def test_a_budget_is_met_by_measuring_and_not_by_failing():
    tried = {}
    for budget in (4e6, 8e6, 1.6e7, 1e9):
        world = Wide()
        before = copy.deepcopy(world.model)
        world.step(budget)
        assert sum(world.sizes) == 64  # no attempt was thrown away
        assert world.sizes[:3] == [1, 2, 4]
        world.step(budget)
        assert sum(world.sizes) == 64
        tried[budget] = max(world.sizes)
        whole = OPTIM.SGD(before.parameters(), lr=0.01)
        for _ in range(2):
            whole.zero_grad()
            (before(world.x) - 1).square().mean().backward()
            whole.step()
        found, true = (list(m.parameters()) for m in (world.model, before))
        assert relative_error(found, true) < 1e-12
    assert sorted(tried.values()) == list(tried.values())
    assert tried[4e6] < tried[8e6] < tried[1.6e7]
    assert tried[1e9] == 64


def test_the_size_found_is_nearly_the_largest():
    """Half as much again does not fit any more."""
    world = Wide()
    world.step(8e6)
    world.step(8e6)
    (fit,) = world.stepper._core.sizes._known.values()
    assert 8 < fit.size < 64
    greedy = Wide(samples=fit.size * 3 // 2)
    key = ("optimizer", (("float64", (50, 32)),))
    greedy.stepper._core.sizes.keep(key, Fit(64, failed=65))
    greedy.step(8e6)
    assert sum(greedy.sizes) > len(greedy.x)


def test_moments_that_appear_with_the_first_step_are_reckoned_with():
    world = Wide(kind=OPTIM.Adam)
    budget = 3e6
    for _ in range(3):
        world.step(budget)
        assert sum(world.sizes) == 64


def test_a_sample_over_the_budget_says_what_it_needed():
    world = Wide()
    with pytest.raises(
        SplitError, match=r"one sample(.|\n)*at least [\d.]+ [KM]iB of 976\.6 KiB"
    ) as caught:
        world.step(1e6)
    assert "budget= allows 976.6 KiB" in caught.value.why
    assert "allocator" not in str(caught.value)
    assert "raise the budget" in caught.value.fix


def test_sizes_are_saved_and_loaded():
    world = Wide()
    world.step(8e6)
    world.step(8e6)
    found = list(world.sizes)
    file = io.BytesIO()
    torch.save(world.stepper.state_dict(), file)
    file.seek(0)
    other = Wide()
    other.stepper.load_state_dict(torch.load(file, weights_only=True))
    other.step(8e6)
    assert other.sizes == found
    older = other.stepper.state_dict()
    del older["fitting"]
    other.stepper.load_state_dict(older)
    other.step(8e6)
    assert other.sizes[:3] == [1, 2, 4]


def test_batches_of_any_size():
    for samples in (0, 1, 2, 3, 5, 9):
        world = Wide(samples)
        update = world.step(1e8)
        assert sum(world.sizes) == samples
        assert update.skipped == (None if samples else "empty")
        world.step(1e8)
        assert world.sizes == ([samples] if samples else [])


@pytest.mark.parametrize("samples", [2, 3, 4, 5, 8, 9, 10, 17])
def test_batch_norm_gets_no_piece_of_one(samples):
    world = World(noisy, samples=samples)
    for _ in range(2):
        world.auto(instep.Micro("auto", budget=1e8))
    sizes = [event.items for event in world.trace if event.kind == "backward"]
    assert 1 not in sizes
    assert sum(sizes) == 2 * samples


def test_auto_is_only_for_steps():
    with pytest.raises(SplitError, match="no pieces of its own"):
        list(AUTO.pieces(torch.ones(3)))


@pytest.mark.usefixtures("_quick")
def test_a_fault_anywhere_while_a_size_is_found():
    """The pieces of the attempt that held, cut by hand in a fresh run, give the same bits."""
    kinds = set()
    for at in itertools.count(0, 5):
        world = World(noisy, samples=12)
        sizes = []

        def loss(piece, world=world, sizes=sizes):
            sizes.append(len(piece[0]))
            return world.loss(piece)

        with Faults(at) as faults:
            split = instep.Micro("auto", budget=1e8)
            update = world.stepper.step((world.x, world.y), loss, split=split)
        if not faults.raised:
            break
        held = sizes[-update.micro_batches :]
        assert sum(held) == 12
        kinds.add(tuple(held))
        randoms = world.randoms()
        reference = World(noisy, samples=12)
        reference.by_hand(held)
        assert reference.randoms() == randoms
        assert_same_model(world.model, reference.model)
        assert_same_state(world.optimizer, reference.optimizer)
    # Found without a fault, and what was left of each probe with one.
    assert (2, 2, 4, 4) in kinds
    assert len(kinds) > 1
