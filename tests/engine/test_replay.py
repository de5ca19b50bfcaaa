from __future__ import annotations

import torch
from torch import Tensor, nn

from instep.engine.replay import Kept, Replay


class Stateful(nn.Module):
    """Writes one buffer, replaces another, leaves a third alone, and has running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("written", torch.zeros(()))
        self.register_buffer("replaced", torch.zeros(()))
        self.register_buffer("left", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.written += 1
        self.replaced = self.replaced + 10
        return self.norm(x) * torch.rand(()) + self.written + self.replaced


X = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_changed_buffers_are_known_and_put_back():
    model = Stateful()
    before, held = state(model), model.replaced
    kept = Kept([model])
    frozen = Kept([model], leave_out={model.norm})
    model(X)
    names = {name for _, name in kept.changed()}
    assert names == {"written", "replaced", "running_mean", "running_var", "num_batches_tracked"}
    assert {name for _, name in frozen.changed()} == {"written", "replaced"}
    assert not same(state(model), before)
    kept.put_back()
    assert same(state(model), before)
    assert model.replaced is held


def test_a_call_is_made_again_as_it_was():
    model = Stateful()
    replay = Replay([model])
    first = []
    for _ in range(3):
        replay.remember()
        first.append(model(X).detach())
    replay.end()
    torch.rand(3)
    after, random = state(model), torch.get_rng_state()
    tensors = [id(buffer) for buffer in model.buffers()]
    with replay.under_way():
        for index in (2, 0, 1):
            with replay.again(index):
                assert torch.equal(model(X), first[index])
    assert same(state(model), after)
    assert [id(buffer) for buffer in model.buffers()] == tensors
    assert torch.equal(torch.get_rng_state(), random)
    assert not torch.equal(model(X), first[0])


def test_autocast_is_as_it_was():
    model = nn.Linear(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        replay = Replay([model])
        replay.remember()
        inside = model(X)
    replay.end()
    assert not torch.is_autocast_enabled("cpu")
    with replay.again(0):
        assert not torch.is_autocast_cache_enabled()
        assert model(X).dtype == inside.dtype == torch.bfloat16
    assert model(X).dtype == torch.float32
    other = Replay([model])
    other.remember()
    other.end()
    with torch.autocast("cpu", dtype=torch.bfloat16), other.again(0):
        assert model(X).dtype == torch.float32
