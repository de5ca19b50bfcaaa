"""Captured windows without a device: what is recorded here runs again when it is replayed.

A recording of the host does what a CUDA graph does: nothing while it is recorded, and the same work
in the same memory at every replay. So everything about captured windows but the graphs themselves
is held against the portable path: rounds and what is left of them, micro-steps side by side, first
products, gradients that are laid out anew, layers that are frozen.
"""

from __future__ import annotations

import copy
import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import instep
from instep.engine import captured, recordings
from instep.engine.abreast import Streams
from instep.engine.recordings import Recording, Series
from instep.engine.reference import relative_error
from instep.engine.sources import Pieces, RowsOf
from instep.engine.tape import LONGEST, Tape
from instep.errors import InstepWarning
from instep.fast.operators import Firsts, noting

pytest.importorskip("triton")
# It is not so here.
pytestmark = pytest.mark.filterwarnings("ignore:capture has no effect")

HOST = torch.device("cpu")
WIDTH = 24


def record(tape, work, places, firsts):
    """Stand in for `Tape.record`."""
    if not len(tape._rows):
        tape._rows = torch.zeros(LONGEST, 2, dtype=torch.float64)
        tape._place = torch.zeros(1, dtype=torch.long)
        tape._next = torch.arange(LONGEST)
        tape._streams = Streams(HOST)
    recording = Recording(work.source.inputs(work.given, len(places)), HOST, len(places))
    buffers = work.buffers
    held = [flat.gradients.clone() for flat in buffers.flats]
    place, before = tape._place.clone(), buffers.reached
    inputs = copy.deepcopy(vars(recording.inputs))
    buffers.forget_reached()
    buffers.begin()
    with noting(firsts):
        tape._micro_steps(recording, work, places)
    buffers.end(added=True)
    recording.reached = buffers.reached
    recording.touches, recording.writes = frozenset(firsts.touched), frozenset(firsts.written)
    buffers.reach(before)
    # A graph that is recorded does nothing yet.
    with torch.no_grad():
        for flat, gradients in zip(buffers.flats, held, strict=True):
            flat.gradients.copy_(gradients)
        tape._place.copy_(place)
        if "_index" in inputs:
            recording.inputs._index.copy_(inputs["_index"])
    buffers.seal()

    def replay():
        items = recording.items
        with noting(Firsts(writes=firsts._writes, without=firsts._without)):
            recording.items = []
            tape._micro_steps(recording, work, places)
        recording.items = items
        buffers.seal()  # what a graph writes is not counted

    recording.graph.replay = replay
    return recording


def let_host_record(monkeypatch):
    """Let the host record; return the series that are made."""
    made = []

    class Noted(Series):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            made.append(self)

    def source_of(plan, function):
        batch = getattr(getattr(plan, "cut", None), "batch", None)
        return Pieces(plan, function) if batch is None else RowsOf(plan, batch, function)

    monkeypatch.setattr(recordings.torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(captured, "source_of", source_of)
    monkeypatch.setattr(captured, "Series", Noted)
    monkeypatch.setattr(Tape, "record", record)
    return made


@pytest.fixture
def on_host(monkeypatch):
    return let_host_record(monkeypatch)


def net(*between):
    """Return a net whose last layer is too small to wait for others: its rows are added at once."""
    torch.manual_seed(0)
    first, last = (nn.Linear(WIDTH, 64), *between), (nn.Linear(64, 8), nn.Linear(8, 1))
    return nn.Sequential(*first, nn.GELU(), nn.LayerNorm(64), *last)


def loss_of(model, piece):
    return model(piece).float().square().mean()


def trained(options, sizes, *, fuse=True, between=(), change=None, precision="bf16"):
    """Train over batches of these sizes, in pieces of 2 rows; return weights and what was said."""
    model = net(*between)
    if fuse:
        instep.fuse(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    stepper = instep.Stepper(model, optimizer, clip_norm=1.0, precision=precision, **options)
    generator = torch.Generator().manual_seed(1)
    told = []
    for index, size in enumerate(sizes):
        if change is not None:
            change(index, model, optimizer)
        x = torch.randn(size, WIDTH, generator=generator)
        update = stepper.step(x, lambda piece: loss_of(model, piece), split=2)
        told.append((update.loss, update.items, update.micro_batches, update.grad_norm))
    return [p.detach().clone() for p in model.parameters()], told


def require_same(options, sizes, **kinds):
    expected, told = trained({"fused": True}, sizes, **kinds)
    found, again = trained({"fused": True, **options}, sizes, **kinds)
    # The same kernels, but for sums over rows that lie beside each other.
    assert relative_error(found, expected) < 1e-4
    for one, other in zip(told, again, strict=True):
        assert one == pytest.approx(other, rel=1e-4)


@settings(max_examples=10, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 24), min_size=3, max_size=6),
    width=st.integers(1, 8),
    fuse=st.booleans(),
)
def test_any_window_in_any_width(sizes, width, fuse):
    with pytest.MonkeyPatch.context() as monkeypatch:
        let_host_record(monkeypatch)
        require_same({"capture": width}, [8, *sizes], fuse=fuse)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("fuse", [False, True])
def test_rounds_and_branches_are_used(on_host, width, fuse):
    require_same({"capture": width}, [16, 16, 16, 10, 4, 16], fuse=fuse)
    assert on_host
    series = on_host[0]
    assert series._round == (8 if fuse else 1)
    assert series.most == width
    # Whatever is fused is written first, and nothing is where nothing is fused.
    assert bool(series.writes(8)) == fuse
    assert not series.writes(7 if fuse else 8)


def test_zeros_are_spared_for_windows_of_replays_only(on_host, monkeypatch):
    spared = []
    open_ = captured.FlatBuffers.open

    def noted(buffers):
        open_(buffers)
        spared.append(len(buffers.spared))

    monkeypatch.setattr(captured.FlatBuffers, "open", noted)
    trained({"fused": True, "capture": 2}, [16, 16, 15, 16, 4, 16])
    # The first records; the third has a piece of another shape; the fifth is no whole round.
    assert spared == [0, 2, 0, 2, 0, 2]


def test_parameters_that_are_added_between_windows(on_host):
    extra = nn.Linear(4, 4)

    def change(index, model, optimizer):
        if index == 3:
            optimizer.add_param_group({"params": list(extra.parameters())})

    for width in (1, 4):
        require_same({"capture": width}, [16] * 6, change=change)


@pytest.mark.parametrize("width", [1, 4])
def test_a_parameter_that_is_replaced_between_windows(on_host, width):
    def change(index, model, optimizer):
        if index == 3:
            old = model[0].weight
            model[0].weight = nn.Parameter(old.detach().clone() * 0.5)
            held = optimizer.param_groups[0]["params"]
            held[:] = [model[0].weight if p is old else p for p in held]

    require_same({"capture": width}, [16] * 6, change=change)


@pytest.mark.parametrize("width", [1, 4])
def test_layers_that_are_frozen_and_thawed(on_host, width):
    def change(index, model, optimizer):
        model[0].requires_grad_(index not in (3, 4))

    require_same({"capture": width}, [16] * 8, change=change)


def hook_on_a_weight(model):
    model[0].weight.register_hook(lambda gradient: gradient * 0.5)


def hook_after_a_weight(model):
    def halve(parameter):
        parameter.grad.mul_(0.5)

    model[0].bias.register_post_accumulate_grad_hook(halve)


@pytest.mark.filterwarnings("ignore:capture. micro-steps run one after the other")
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize(
    "what", [hook_on_a_weight, hook_after_a_weight, instep.unfuse, instep.fuse]
)
def test_what_layers_are_lent_changes_and_is_recorded_anew(on_host, width, what):
    def change(index, model, optimizer):
        if index == 3:
            what(model)

    require_same({"capture": width}, [16] * 6, change=change, fuse=what is not instep.fuse)
    assert len(on_host) == 2


@pytest.mark.filterwarnings("ignore:weights were written")
@pytest.mark.parametrize("width", [1, 4])
def test_weights_that_are_written_between_windows(on_host, width):
    def change(index, model, optimizer):
        model[0].weight.data.clamp_(-0.05 * index, 0.05 * index)
        with torch.no_grad():
            model[-1].weight.mul_(1.1)

    require_same({"capture": width}, [16] * 6, change=change)
    assert len(on_host) == 1


@pytest.mark.parametrize("width", [1, 4])
def test_a_window_that_is_not_finite_leaves_nothing_behind(on_host, width):
    model = instep.fuse(net())
    stepper = instep.Stepper(
        model,
        torch.optim.SGD(model.parameters(), lr=0.05),
        precision="bf16",
        fused=True,
        capture=width,
    )
    x = torch.randn(16, WIDTH)
    for _ in range(2):
        stepper.step(x, lambda piece: loss_of(model, piece), split=2)
    bad = x.clone()
    bad[3] = float("nan")
    with pytest.warns(InstepWarning, match="finite"):
        assert stepper.step(bad, lambda piece: loss_of(model, piece), split=2).skipped
        update = stepper.step(x, lambda piece: loss_of(model, piece), split=2)
    assert update.skipped is None
    with torch.autocast("cpu", torch.bfloat16):
        assert all(p.isfinite().all() for p in model.parameters())


def test_a_loss_function_that_raises_takes_the_window_back(on_host):
    model = instep.fuse(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    stepper = instep.Stepper(model, optimizer, precision="bf16", fused=True, capture=4)
    x = torch.randn(16, WIDTH)
    fails = []

    def loss(piece):
        if fails:
            raise ValueError("mine")
        return loss_of(model, piece)

    for _ in range(2):
        stepper.step(x, loss, split=2)
    before = [p.detach().clone() for p in model.parameters()]
    fails.append(None)
    with pytest.raises(ValueError, match="mine"):
        stepper.step(x, loss, split=2)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    fails.clear()
    assert stepper.step(x, loss, split=2).skipped is None


def test_running_statistics_are_said_and_kept_in_order(on_host):
    sizes = [16] * 4
    expected, told = trained({"fused": True, "capture": 1}, sizes, between=(nn.BatchNorm1d(64),))
    with pytest.warns(InstepWarning, match="running_mean"):
        found, again = trained({"fused": True, "capture": 4}, sizes, between=(nn.BatchNorm1d(64),))
    assert told == again
    assert all(torch.equal(p, q) for p, q in zip(found, expected, strict=True))
    assert on_host[-1].most == 1


def test_a_sum_in_a_closure_keeps_micro_steps_in_order(on_host):
    model = net()
    stepper = instep.Stepper(
        model, torch.optim.SGD(model.parameters(), lr=0.05), fused=True, capture=4
    )
    total = torch.zeros(())

    def loss(piece):
        made = loss_of(model, piece)
        total.add_(made.detach())
        return made

    with pytest.warns(InstepWarning, match="total"):
        for _ in range(2):
            stepper.step(torch.randn(16, WIDTH), loss, split=2)


class Trainer:
    """What many write: the loss is a method, and the model an attribute."""

    def __init__(self):
        self.model = net()

    def loss(self, piece):
        return loss_of(self.model, piece)


def test_a_method_is_recorded_once(on_host):
    trainer = Trainer()
    optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.05)
    stepper = instep.Stepper(trainer.model, optimizer, fused=True, capture=True)
    for _ in range(5):
        stepper.step(torch.randn(16, WIDTH), trainer.loss, split=2)
    assert len(on_host) == 1


def test_functions_that_are_new_in_every_step_are_said_and_not_kept(on_host):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    stepper = instep.Stepper(model, optimizer, fused=True, capture=True)
    kept = []
    with pytest.warns(InstepWarning, match="no further kinds") as caught:
        for _ in range(20):
            weight = torch.ones(1)
            kept.append(weakref.ref(weight))
            x = torch.randn(8, WIDTH)
            stepper.step(x, lambda piece, w=weight: loss_of(model, piece) * w.sum(), split=2)
    assert len(caught) == 1
    assert len(on_host) == captured.FUNCTIONS
    del weight
    gc.collect()
    assert sum(ref() is not None for ref in kept) <= captured.FUNCTIONS


@pytest.mark.filterwarnings("error::instep.errors.InstepWarning")
def test_one_function_may_have_many_kinds_of_pieces(on_host):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    stepper = instep.Stepper(model, optimizer, fused=True, capture=True)

    def step(rows):
        x = torch.randn(rows * (captured.WARM_UP + 1), WIDTH)
        return stepper.step(x, lambda piece: loss_of(model, piece), split=rows)

    for rows in range(1, captured.SHAPES + 1):
        step(rows)
    assert len(on_host) == captured.SHAPES
    with pytest.warns(InstepWarning, match=f"{captured.SHAPES} are, of 1 functions"):
        step(captured.SHAPES + 1)
    assert len(on_host) == captured.SHAPES


def test_kinds_that_came_once_make_room_for_others(on_host):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    stepper = instep.Stepper(model, optimizer, fused=True, capture=True)
    for rows in range(1, captured.MOST_WARM + 10):  # a piece of each kind, and no second one
        stepper.step(torch.randn(rows, WIDTH), lambda piece: loss_of(model, piece), split=rows)
    assert not on_host
    assert len(stepper._captures._warm) <= captured.MOST_WARM
    for _ in range(3):
        stepper.step(torch.randn(8, WIDTH), lambda piece: loss_of(model, piece), split=2)
    assert len(on_host) == 1
