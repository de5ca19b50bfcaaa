"""Several losses of one batch are meant to be added up: nothing is said where that can be told."""

import pytest

from tests.watching.jobs import found, run

HEAD = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Linear(8, 8)
        self.heads = torch.nn.ModuleList(torch.nn.Linear(8, 2) for _ in range(3))
    def forward(self, x, head=None):
        if head is not None:
            return self.heads[head](self.trunk(x))
        return [head(self.trunk(x)) for head in self.heads]
model = Net()
parts = [torch.nn.Linear(8, 8), *(torch.nn.Linear(8, 2) for _ in range(3))]
optimizer = torch.optim.SGD([p for m in (model, *parts) for p in m.parameters()], lr=0.01)
batch = lambda: (torch.randn(4, 8), torch.randint(0, 2, (4,)))
for update in range(12):
    optimizer.zero_grad()
    x, y = batch()
"""
ONE_FORWARD = """
    for out in model(x):
        F.cross_entropy(out, y).backward(retain_graph=True)
    optimizer.step()
"""
OF_PARTS = """
    features = parts[0](x)
    for part in parts[1:]:
        F.cross_entropy(part(features), y).backward(retain_graph=True)
    optimizer.step()
"""
ONE_BY_ONE = """
    for head in range(3):
        F.cross_entropy(model(x, head), y).backward()
    optimizer.step()
"""
WITH_BATCHES_OF_THEIR_OWN = """
    for head in range(3):
        x, y = batch()
        F.cross_entropy(model(x, head), y).backward()
    optimizer.step()
"""
MICRO_BATCHES = """
    for micro in range(3):
        x, y = batch()
        F.cross_entropy(model(x, 0), y).backward()
    optimizer.step()
"""
TURNS = """
    for micro in range(3):
        x, y = batch()
        F.cross_entropy(model(x, update % 3), y).backward()
    optimizer.step()
"""


def notes(body):
    return [code for code, _ in found(run(HEAD + body)) if code == "INS201"]


@pytest.mark.parametrize("body", [ONE_FORWARD, OF_PARTS, ONE_BY_ONE, WITH_BATCHES_OF_THEIR_OWN])
def test_heads_with_a_backward_each(body):
    assert notes(body) == []


@pytest.mark.parametrize("body", [MICRO_BATCHES, TURNS])
def test_batches_that_go_the_same_way(body):
    assert notes(body) == ["INS201"]
