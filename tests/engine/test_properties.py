"""Properties: over random models, splits and counts, a window equals the whole batch."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import instep
from instep.engine.reference import window_loss
from tests.engine.kit import EXACT, IGNORED, update_error

ACTIVATIONS = {"tanh": nn.Tanh, "gelu": nn.GELU, "none": nn.Identity}


@st.composite
def models(draw) -> nn.Module:
    torch.manual_seed(draw(st.integers(0, 10_000)))
    widths = draw(st.lists(st.integers(1, 6), min_size=0, max_size=2))
    layers: list[nn.Module] = []
    size = 4
    for width in widths:
        layers += [
            nn.Linear(size, width),
            ACTIVATIONS[draw(st.sampled_from(sorted(ACTIVATIONS)))](),
        ]
        size = width
        # Over fewer features a normalisation magnifies rounding itself beyond the tolerance.
        if size >= 4 and draw(st.booleans()):
            layers.append(nn.LayerNorm(size))
    layers.append(nn.Linear(size, 3))
    return nn.Sequential(*layers).double()


@st.composite
def micro_batches(draw) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Up to eight micro-batches of zero to five samples; any target may be ignored."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    made = []
    for size in draw(st.lists(st.integers(0, 5), min_size=1, max_size=8)):
        x = torch.randn(size, 4, dtype=torch.float64, generator=generator)
        labels = draw(st.lists(st.sampled_from([0, 1, 2, IGNORED]), min_size=size, max_size=size))
        made.append((x, torch.tensor(labels, dtype=torch.long)))
    return made


def known(y: torch.Tensor) -> int:
    return int((y != IGNORED).sum())


@given(
    model=models(),
    data=micro_batches(),
    size=st.integers(1, 9),
    clip=st.one_of(st.none(), st.floats(1e-3, 10)),
    as_tensor=st.booleans(),
    ahead=st.booleans(),
)
def test_windows_equal_whole_batches(model, data, size, clip, as_tensor, ahead):
    start = copy.deepcopy(model)
    whole = copy.deepcopy(model)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.05), clip_norm=clip)
    count = (lambda batch: known(batch[1])) if ahead else None
    for window in stepper.windows(data, size=size, count=count):
        for x, y in window:
            items = None if ahead else (y != IGNORED).sum() if as_tensor else known(y)
            window.backward(F.cross_entropy(model(x), y, ignore_index=IGNORED), items=items)
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.05)
    for first in range(0, len(data), size):
        x = torch.cat([x for x, _ in data[first : first + size]])
        y = torch.cat([y for _, y in data[first : first + size]])
        if not known(y):
            continue
        optimizer.zero_grad()
        F.cross_entropy(whole(x), y, ignore_index=IGNORED).backward()
        nn.utils.clip_grad_norm_(whole.parameters(), math.inf if clip is None else clip)
        optimizer.step()
    assert all(p.grad is None for p in model.parameters())
    assert all(p.isfinite().all() for p in model.parameters())
    assert update_error(start, model, whole) < EXACT


@given(
    model=models(),
    data=micro_batches(),
    weights=st.tuples(st.floats(-2, 2), st.floats(-2, 2)),
    ahead=st.booleans(),
    missing=st.sets(st.integers(0, 7)),
)
def test_terms_equal_the_expression_written_down(model, data, weights, ahead, missing):
    """Terms with denominators of their own, present in some micro-batches only."""
    names = dict(zip(("label", "size"), weights, strict=True))

    def terms(net, index, x, y):
        out = net(x)
        parts = {"label": (F.cross_entropy(out, y, ignore_index=IGNORED), known(y))}
        if index not in missing:
            parts["size"] = (out.square().sum(1).mean(), len(x))
        return parts

    indexed = list(enumerate(data))
    count = None
    if ahead:
        count = lambda entry: {
            "label": known(entry[1][1]),
            "size": 0 if entry[0] in missing else len(entry[1][0]),
        }
    start = copy.deepcopy(model)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.05))
    whole = copy.deepcopy(model)
    loss = window_loss([terms(whole, i, x, y) for i, (x, y) in indexed], names)
    if loss is not None:
        loss.backward()
        torch.optim.SGD(whole.parameters(), lr=0.05).step()
    for window in stepper.windows(indexed, size=len(data), count=count):
        for index, (x, y) in window:
            parts = terms(model, index, x, y)
            window.backward(
                {name: part[0] for name, part in parts.items()},
                items=None if ahead else {name: part[1] for name, part in parts.items()},
                weight={name: names[name] for name in parts},
            )
        if loss is None:
            assert window.skipped == "empty"
        else:
            assert window.loss == pytest.approx(loss.item(), rel=1e-9, abs=1e-9)
    moved = any(w != 0 for w in weights) and loss is not None
    error = update_error(start, model, whole)
    assert error < 1e-9 if moved else error == 0


@given(
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=9),
)
def test_two_optimizers_update_as_often_as_their_windows_fill(sizes, lengths):
    torch.manual_seed(0)
    left, right = nn.Linear(3, 1).double(), nn.Linear(3, 1).double()
    optimizers = {
        "left": torch.optim.SGD(left.parameters(), lr=0.1),
        "right": torch.optim.SGD(right.parameters(), lr=0.1),
    }
    stepper = instep.Stepper([left, right], optimizers)
    data = [torch.randn(n, 3, dtype=torch.float64) for n in lengths]
    updates = []
    for window in stepper.windows(data, size=dict(zip(optimizers, sizes, strict=True))):
        for x in window:
            window.backward(left(x).square().mean(), items=len(x), optimizer="left")
            window.backward(right(x).square().mean(), items=len(x), optimizer="right")
        updates += window.updates
    # A frame is the least common multiple of the sizes; each ends with everything closed.
    frame = math.lcm(*sizes)
    for name, size in zip(optimizers, sizes, strict=True):
        own = [u for u in updates if u.optimizer == name]
        expected = []
        for first in range(0, len(data), frame):
            part = lengths[first : first + frame]
            expected += [sum(part[i : i + size]) for i in range(0, len(part), size)]
        assert [u.items for u in own] == expected
