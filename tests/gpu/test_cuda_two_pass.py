"""Two passes and BatchNorm statistics on a GPU, where backward runs in a thread of its own."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import instep
from instep.engine.reference import relative_error


def net_of(dropout: float, dtype: torch.dtype, *middle: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(32, 64), *middle, nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 16)]
    return nn.Sequential(*layers).to("cuda", dtype)


def nce(z: Tensor) -> Tensor:
    z = F.normalize(z.double() if z.dtype == torch.float64 else z.float(), dim=1)
    return F.cross_entropy(4 * z @ z.roll(1, 0).T, torch.arange(len(z), device="cuda"))


def gradients(model: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in model.parameters()]


def stepper_of(model: nn.Module, **options: Any) -> instep.Stepper:
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    return instep.Stepper(model, still, keep_grads=True, **options)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("split", [7, 16, 50])
def test_the_gradient_is_that_of_one_graph(dropout, split):
    model = net_of(dropout, torch.float64)
    x = torch.randn(50, 32, device="cuda", dtype=torch.float64)
    other = copy.deepcopy(model)
    torch.manual_seed(1)
    nce(torch.cat([other(part) for part in x.split(split)])).backward()
    after = torch.cuda.get_rng_state()
    torch.manual_seed(1)
    stepper_of(model).step(x, lambda z, _: nce(z), encode=model, split=split)
    assert relative_error(gradients(model), gradients(other)) < 1e-10
    assert torch.equal(torch.cuda.get_rng_state(), after)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_autocast_reaches_the_second_pass(precision):
    model = net_of(0.5, torch.float32)
    x = torch.randn(64, 32, device="cuda")
    types = []

    def encode(piece):
        z = model(piece)
        types.append(z.dtype)
        return z

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    other = copy.deepcopy(model)
    torch.manual_seed(1)
    with torch.autocast("cuda", dtype=dtype):
        loss = nce(torch.cat([other(part) for part in x.split(16)]))
    loss.backward()
    torch.manual_seed(1)
    update = stepper_of(model, precision=precision).step(
        x, lambda z, _: nce(z), encode=encode, split=16
    )
    assert update.skipped is None
    assert types == [dtype] * 8
    assert update.loss == pytest.approx(loss.item(), rel=1e-3)
    assert relative_error(gradients(model), gradients(other)) < 2e-2


def test_counts_of_several_terms_on_the_device():
    model = net_of(0.0, torch.float64)
    x = torch.randn(50, 32, device="cuda", dtype=torch.float64)
    count = torch.tensor(50, device="cuda")
    terms = lambda z, _: {"nce": (nce(z), count), "size": (z.square().mean(), 2 * count)}
    stepper_of(model).step(x, terms, encode=model, split=16)
    other = net_of(0.0, torch.float64)
    z = other(x)
    (nce(z) + z.square().mean()).backward()
    assert relative_error(gradients(model), gradients(other)) < 1e-10


@pytest.mark.parametrize("encoded", [False, True])
def test_batchnorm(encoded):
    model = net_of(0.0, torch.float64, nn.BatchNorm1d(64))
    x = torch.randn(50, 32, device="cuda", dtype=torch.float64)
    loss_fn = (lambda z, _: nce(z)) if encoded else (lambda x: found(x).square().mean())
    other = copy.deepcopy(model)
    (nce(other(x)) if encoded else other(x).square().mean()).backward()
    for mode in ("window", "exact"):
        found = copy.deepcopy(model)
        encode = found if encoded else None
        stepper_of(found).step(x, loss_fn, encode=encode, split=16, batchnorm=mode)
        assert torch.equal(found[1].running_var, other[1].running_var)
    assert relative_error(gradients(found), gradients(other)) < 1e-10


def test_memory_stays_that_of_a_piece():
    torch.manual_seed(0)
    wide = [layer for _ in range(8) for layer in (nn.Linear(512, 512), nn.GELU())]
    model = nn.Sequential(*wide).cuda()
    x = torch.randn(16384, 512, device="cuda")
    pooled = lambda z: z.mean(0).square().sum()

    def peak(run) -> int:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before

    stepper = stepper_of(model)
    stepper.step(x[:64], lambda z, _: pooled(z), encode=model, split=32)
    model.zero_grad()
    split = peak(lambda: stepper.step(x, lambda z, _: pooled(z), encode=model, split=512))
    model.zero_grad()
    whole = peak(lambda: pooled(model(x)).backward())
    assert split < whole / 3
