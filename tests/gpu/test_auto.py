"""`Micro("auto")` by the statistics of the real allocator, and its real out of memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import instep
from instep.engine.careful import release
from instep.engine.reference import relative_error
from instep.splits.fit import Fit

SHARE = 2**30


@pytest.fixture
def _one_gibibyte() -> Iterator[None]:
    total = torch.cuda.get_device_properties(0).total_memory
    release()
    torch.cuda.set_per_process_memory_fraction(SHARE / total)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


def net() -> nn.Module:
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.Tanh())]
    return nn.Sequential(*layers).double().cuda()


def step(model: nn.Module, x: Tensor, fit: Fit | None = None) -> list[int]:
    """Make two updates; return the sizes of all pieces, those that did not fit among them."""
    sizes: list[int] = []

    def loss(piece: Tensor) -> Tensor:
        sizes.append(len(piece))
        found: Tensor = (model(piece) - 1).square().mean()
        return found

    stepper = instep.Stepper(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    if fit is not None:
        stepper._core.sizes.keep(("optimizer", (("float64", tuple(x.shape[1:])),)), fit)
    for _ in range(2):
        stepper.step(x, loss, split=instep.Micro("auto"))
    return sizes


def last_of(sizes: list[int], samples: int) -> list[int]:
    """Return the last pieces that make up a batch: those of the second update."""
    found: list[int] = []
    while sum(found) < samples:
        found.append(sizes[-1 - len(found)])
    return found


@pytest.mark.usefixtures("_one_gibibyte")
@pytest.mark.parametrize("fit", [None, Fit(64, failed=65)], ids=["measured", "too large"])
def test_a_batch_that_does_not_fit_whole(fit: Fit | None) -> None:
    x = torch.randn(64, 4000, 64, dtype=torch.float64, device="cuda")
    model = net()
    before = copy.deepcopy(model)
    sizes = step(model, x, fit)
    used = last_of(sizes, 64)
    assert sum(used) == 64
    assert 1 <= max(used) < 64
    assert (sum(sizes) > 128) is (fit is not None), "only what was believed to fit runs out"
    whole = torch.optim.AdamW(before.parameters(), lr=0.01)
    torch.cuda.set_per_process_memory_fraction(1.0)
    for _ in range(2):
        whole.zero_grad()
        (before(x) - 1).square().mean().backward()
        whole.step()
    assert relative_error(list(model.parameters()), list(before.parameters())) < 1e-10


@pytest.mark.usefixtures("_one_gibibyte")
def test_a_sample_that_does_not_fit() -> None:
    x = torch.randn(2, 200_000, 64, dtype=torch.float64, device="cuda")
    with pytest.raises(instep.errors.SplitError, match=r"at least [\d.]+ [GM]iB of [\d.]+ [GM]iB"):
        step(net(), x)
