import pytest

from tests.watching.jobs import found, gauges, run

LOOP = """
model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
for update in range(30):
    optimizer.zero_grad()
    y = model(torch.randn(8, 16))
    loss = y.square().mean()
    loss.backward()
    optimizer.step()
    {after}
"""


@pytest.mark.parametrize("after", ["kept.append(y)", "kept.append(loss)", "kept.append(y.sum())"])
def test_what_keeps_graphs(after):
    watched = run(LOOP.format(after=after))
    assert found(watched) == [("INS605", 9)]
    assert gauges(watched)["graphs-kept"].value >= 8


@pytest.mark.parametrize(
    "after",
    [
        "kept.append(y.detach())",
        "kept.append(loss.item())",
        "kept = [*kept[-3:], loss]",
        "ring = [y]; ring.append(ring)",  # freed when Python looks for it
    ],
)
def test_what_does_not(after):
    watched = run(LOOP.format(after=after))
    assert "graphs-kept" not in gauges(watched)
    assert found(watched) == []


def test_graphs_that_are_let_go_are_no_longer_told():
    after = "kept.append(loss) if update < 20 else kept.clear()"
    assert "graphs-kept" not in gauges(run(LOOP.format(after=after)))
