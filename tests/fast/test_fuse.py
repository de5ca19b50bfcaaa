"""Fused layers: the same classes and state, gradients in fp32, and nothing outside of windows."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import instep
from instep.fast.fuse import unfuse

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 16, padding_idx=0)
        self.first = nn.Linear(16, 32)
        self.last = nn.Linear(32, 16, bias=False)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(self.last(functional.gelu(self.first(self.words(x)))))


def trained(*, fused, compiled=False, split=2):
    torch.manual_seed(0)
    model = Tied().to(DEVICE)
    if fused:
        instep.fuse(model)
    call = torch.compile(model, backend="aot_eager") if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = instep.Stepper(model, optimizer, precision="bf16", fused=True)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        x, y = (torch.randint(0, 20, (6, 5), generator=generator).to(DEVICE) for _ in range(2))
        stepper.step(
            (x, y),
            lambda b: functional.cross_entropy(call(b[0]).flatten(0, 1).float(), b[1].flatten()),
            split=split,
        )
    return model


def together(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach().double()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
@pytest.mark.parametrize("compiled", [False, True])
def test_the_update_is_that_of_autocast_but_for_its_rounding(compiled):
    expected = together(trained(fused=False))
    found = together(trained(fused=True, compiled=compiled))
    assert float((found - expected).norm() / expected.norm()) < 1e-3
    assert not torch.equal(found, expected)


def test_sums_are_nearer_to_the_truth_than_those_of_autocast():
    """Compared by the gradient of the last layer, whose inputs are the same for both."""
    torch.manual_seed(0)
    x = torch.randn(64, 16, device=DEVICE)
    layer = nn.Linear(16, 16, bias=False).to(DEVICE)

    def gradient(model, dtype=torch.float32):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        precision = "bf16" if dtype is torch.float32 else "fp32"
        stepper = instep.Stepper(model, optimizer, precision=precision, fused=True, keep_grads=True)
        data = x.bfloat16().to(dtype)
        stepper.step(data, lambda p: model(p).sum() * 0.37, split=1)
        return model.weight.grad.double()

    truth = gradient(copy.deepcopy(layer).double(), torch.float64)
    plain = gradient(copy.deepcopy(layer))
    fused = gradient(instep.fuse(copy.deepcopy(layer)))
    assert (fused - truth).norm() <= (plain - truth).norm()


def test_classes_and_state_stay_and_it_can_be_undone():
    model = Tied()
    names, kinds = sorted(model.state_dict()), [type(m) for m in model.modules()]
    instep.fuse(model)
    assert sorted(model.state_dict()) == names
    assert [type(m) for m in model.modules()] == kinds
    again = copy.deepcopy(model)
    x = torch.tensor([[1, 2, 3]])
    assert torch.equal(again(x), model(x))
    assert again.first.forward.__self__ is again.first
    unfuse(model)
    assert "forward" not in vars(model.first)
    assert torch.equal(again(x), model(x))


def test_outside_of_windows_and_without_gradients_nothing_is_different():
    model = trained(fused=True)
    x = torch.tensor([[1, 2, 3]], device=DEVICE)
    plain = unfuse(copy.deepcopy(model))
    assert torch.equal(model(x), plain(x))
    model(x).sum().backward()
    assert model.first.weight.grad is not None


def test_a_subclass_with_its_own_forward_is_left_alone():
    class Scaled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model = instep.fuse(nn.Sequential(Scaled(3, 3), nn.Linear(3, 3)))
    assert "forward" not in vars(model[0])
    assert "forward" in vars(model[1])
