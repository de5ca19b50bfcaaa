"""Watch on models, losses and steps that are compiled. Needs no peer, but a while."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.peers.kit import loader, loss_of, net, watched


def train(backend: str, *, wrong: str = "") -> nn.Module:
    torch.compiler.reset()
    plain = net()
    model = torch.compile(plain, backend=backend, fullgraph=True)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        for index, (x, y) in enumerate(loader()):
            loss = F.cross_entropy(model(x), y)
            if wrong != "undivided":
                loss = loss / 4
            loss.backward()
            if (index + 1) % 4 == 0:
                optimizer.step()
                if wrong != "uncleared":
                    optimizer.zero_grad()
    return plain


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_model(backend):
    assert watched(lambda: train(backend)) == []
    line = "loss.backward()"
    assert watched(lambda: train(backend, wrong="uncleared")) == [("INS101", line)]
    assert watched(lambda: train(backend, wrong="undivided")) == [("INS201", line)]


def test_a_loss_that_is_divided_in_compiled_code():
    def job() -> nn.Module:
        torch.compiler.reset()
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        divided = torch.compile(lambda x, y: loss_of(model, x, y) / 4, backend="aot_eager")
        for index, (x, y) in enumerate(loader()):
            divided(x, y).backward()
            if (index + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
        return model

    assert watched(job) == []


def test_a_backward_in_compiled_code():
    def job() -> nn.Module:
        torch.compiler.reset()
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @torch.compile(backend="aot_eager")
        def backward(x: Tensor, y: Tensor) -> None:
            loss_of(model, x, y).backward()

        for x, y in loader():
            backward(x, y)
            optimizer.step()
            optimizer.zero_grad()
        return model

    assert watched(job) == []
