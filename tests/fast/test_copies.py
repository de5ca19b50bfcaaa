"""The bf16 copy of the weights: true when a window opens, whoever has written to them."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import instep
from instep.errors import InstepWarning
from instep.fast.copies import SPOTS, Copy, _spread
from instep.fast.flat import Flat
from instep.fast.rules import rule_of

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def clamp_data(parameter):
    parameter.data.clamp_(-0.1, 0.1)


def write_by_numpy(parameter):
    parameter.detach().cpu().numpy()[...] *= 0.5
    if parameter.is_cuda:
        parameter.data.mul_(0.5)


@pytest.mark.parametrize("write", [clamp_data, write_by_numpy])
def test_writes_that_torch_does_not_count_are_noticed(write):
    torch.manual_seed(0)
    model = instep.fuse(nn.Linear(5, 3).to(DEVICE))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = instep.Stepper(model, optimizer, fused=True, precision="bf16")
    x = torch.randn(6, 5, device=DEVICE)
    outs = []

    def run():
        with stepper.window() as window:
            outs.append(model(x))
            window.backward(outs[-1].float().square().mean(), items=6)

    run()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            for p in model.parameters():
                write(p)
            expected = torch.nn.functional.linear(x, model.weight, model.bias)
            run()
            if DEVICE == "cuda":
                torch.cuda.synchronize()
            assert torch.allclose(outs[-1].float(), expected, rtol=2e-2, atol=2e-2)
    assert [one.category for one in said] == [InstepWarning]
    assert "through .data" in str(said[0].message)


@pytest.fixture
def flat():
    torch.manual_seed(0)
    members = [nn.Parameter(torch.randn(n, device=DEVICE)) for n in (1, 3000, 70_000)]
    optimizer = torch.optim.SGD(members, lr=0.1)
    rule = rule_of(optimizer)
    group = optimizer.param_groups[0]
    return Flat(optimizer, group, members, rule=rule, gradient_type=torch.float32)


def test_the_first_and_the_last_element_are_looked_at(flat):
    places = _spread(flat).tolist()
    assert len(places) == len(set(places)) == 1 + 2 * SPOTS
    for member, offset in zip(flat.members, flat.layout.offsets, strict=True):
        assert {offset, offset + member.numel() - 1} <= set(places)


@pytest.mark.filterwarnings("ignore::instep.InstepWarning")
@pytest.mark.parametrize("at", [0, 1, 300, -1])
@pytest.mark.parametrize("value", [7.0, float("nan")])
def test_the_kernels_renew_everything_if_one_element_differs(flat, at, value):
    copy = Copy(flat)
    copy._renew_there()
    assert not copy._found.item()
    place = _spread(flat)[at].item()
    flat.parameters.data[place] = value
    flat.narrow.data[flat.layout.offsets[1] + 1] = 5.0
    copy._renew_there()
    assert copy._found.item() == copy._turn == 2
    assert torch.equal(flat.narrow.isnan(), flat.parameters.isnan())
    off = flat.narrow.nan_to_num().float() - flat.parameters.nan_to_num()
    assert (off.abs() <= 0.01 * flat.parameters.nan_to_num().abs()).all()
    copy._renew_there()
    assert copy._found.item() == 2


def test_what_nobody_has_written_is_left_alone(flat):
    copy = Copy(flat)
    version = flat.narrow._version
    copy.renew()
    assert flat.narrow._version == version
    with torch.no_grad():
        flat.members[1].mul_(2.0)
    copy.renew()
    assert torch.equal(copy.views[1], flat.members[1].bfloat16())
