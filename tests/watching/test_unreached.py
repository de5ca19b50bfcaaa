from tests.watching.jobs import found, gauges, hooks, run

LOOP = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)

    def forward(self, x):
        {forward}

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for update in range({updates}):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 8)).square().mean()
    loss.backward()
    optimizer.step()
"""


def job(forward, updates=14):
    return run(LOOP.format(forward=forward, updates=updates))


def test_what_is_used_and_cut_off():
    watched = job("return self.head(self.body(x).detach())")
    assert gauges(watched)["gradients-missing"].subject == "model.body.weight, model.body.bias"
    assert gauges(watched)["gradients-cut-off"].value == 2
    assert [(f.code, f.severity.word, f.place.line) for f in watched.findings] == [
        ("INS504", "warning", 16)
    ]
    assert hooks(watched.left["model"]) == 0


def test_what_is_not_used():
    watched = job("return self.head(x)")
    assert gauges(watched)["gradients-missing"].value == 2
    assert "gradients-cut-off" not in gauges(watched)
    assert [finding.severity.word for finding in watched.findings] == ["info"]


def test_what_is_only_looked_at():
    body = "self.body.eval(); y = self.body(x).detach(); return self.head(x) + 0 * y.sum()"
    assert "gradients-cut-off" not in gauges(job(body))


def test_it_is_not_said_too_early():
    assert found(job("return self.head(x)", updates=9)) == []


def test_one_that_gets_a_gradient_later_is_not_told():
    body = "return self.head(self.body(x) if update > 11 else x)"
    assert "gradients-missing" not in gauges(job(body))
