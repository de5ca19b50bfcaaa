"""Fused layers: the same classes and state, gradients in fp32, and nothing outside of windows."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

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
    assert again.first.forward.args[0] is again.first
    unfuse(model)
    assert "forward" not in vars(model.first)
    assert torch.equal(again(x), model(x))


class Image(nn.Module):
    """Every kind of convolution that is fused, and some that are not."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.strided = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=4, bias=False)
        self.dilated = nn.Conv2d(8, 8, 3, padding=2, dilation=2)
        self.same = nn.Conv2d(8, 8, 3, padding="same")
        self.reflected = nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")
        self.row = nn.Conv1d(8, 6, 3)
        self.volume = nn.Conv3d(1, 2, 2)
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        x = functional.gelu(self.first(x))
        x = self.dilated(functional.gelu(self.strided(x)))
        x = self.reflected(functional.gelu(self.same(x)))
        x = functional.gelu(self.row(x.flatten(2)))
        x = self.volume(x.unflatten(2, (2, 3, -1))[:, :1])
        return self.head(x.flatten(2).mean(2))


def image_gradient(*, fused, compiled=False, frozen=False):
    torch.manual_seed(0)
    model = Image().to(DEVICE)
    model.first.bias.requires_grad_(not frozen)
    call = torch.compile(model, backend="aot_eager") if compiled else model
    if fused:
        instep.fuse(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    stepper = instep.Stepper(model, optimizer, precision="bf16", fused=True, keep_grads=True)
    x = torch.randn(6, 3, 8, 10, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    stepper.step(x, lambda piece: call(piece).float().square().mean(), split=2)
    return {n: p.grad.double() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("frozen", [False, True], ids=["", "a frozen bias"])
def test_convolutions_and_biases_add_what_autocast_adds(frozen, compiled):
    expected = image_gradient(fused=False, frozen=frozen)
    found = image_gradient(fused=True, frozen=frozen, compiled=compiled)
    assert found.keys() == expected.keys()
    assert ("first.bias" in found) is not frozen
    for name, gradient in found.items():
        assert (gradient - expected[name]).norm() < 2e-2 * expected[name].norm(), name


def test_convolutions_with_their_own_padding_are_left_alone():
    model = instep.fuse(Image())
    fused = {name for name, m in model.named_modules() if "forward" in vars(m)}
    assert fused == {"first", "strided", "dilated", "row", "volume", "head"}


def test_a_convolution_in_channels_last():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)).to(DEVICE)
    plain = plain.to(memory_format=torch.channels_last)
    x = torch.randn(4, 3, 9, 9, device=DEVICE).contiguous(memory_format=torch.channels_last)
    gradients = []
    for model in (copy.deepcopy(plain), instep.fuse(copy.deepcopy(plain))):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        stepper = instep.Stepper(model, optimizer, precision="bf16", fused=True, keep_grads=True)
        stepper.step(x, lambda p, model=model: model(p).float().square().mean(), split=2)
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert (gradients[1] - gradients[0]).norm() < 1e-2 * gradients[0].norm()


def test_one_image_without_a_batch_dimension():
    layer = nn.Conv2d(1, 1, 3).to(DEVICE)
    fused = instep.fuse(copy.deepcopy(layer))
    x = torch.randn(1, 5, 5, device=DEVICE)
    for model in (layer, fused):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        stepper = instep.Stepper(model, optimizer, precision="bf16", fused=True)
        with stepper.window() as window:
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = model(x).float().sum()
            window.backward(loss, items=1)
    assert torch.allclose(fused.weight, layer.weight, rtol=1e-2)


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


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpoints_and_hooks_work_on_fused_layers(reentrant):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

        def forward(self, x):
            x = checkpoint(self.first, x, use_reentrant=reentrant)
            return self.second(functional.gelu(x))

    torch.manual_seed(0)
    plain = Checkpointed().to(DEVICE)
    gradients, seen = [], []
    for model in (copy.deepcopy(plain), instep.fuse(copy.deepcopy(plain))):
        model.first.register_forward_hook(lambda *_: seen.append("forward"))
        model.second.register_full_backward_hook(lambda *_: seen.append("backward"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        stepper = instep.Stepper(model, optimizer, precision="bf16", fused=True, keep_grads=True)
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0)).to(DEVICE)
        x.requires_grad_(reentrant)  # what its old form needs
        stepper.step(x, lambda p, model=model: model(p).float().square().mean(), split=2)
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert (gradients[1] - gradients[0]).norm() < 1e-2 * gradients[0].norm()
    # Three pieces, each forward run twice; the same for both models.
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    assert seen.count("backward") == 6
