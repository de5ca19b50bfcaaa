"""Models in the trace: their calls, their modes, and layers that are replaced."""

from __future__ import annotations

from tests.watching.jobs import run


def test_one_line_that_calls_different_models_in_different_modes():
    job = run("""
models = [torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)]
one, two = models
optimizer = torch.optim.SGD([*one.parameters(), *two.parameters()], lr=0.1)
for update in range(40):
    two.train(update < 20)
    optimizer.zero_grad()
    for each in models:
        each(torch.ones(3, 4)).mean().backward()
    optimizer.step()
""")
    told = [(event.model, event.training) for event in job.trace if event.kind == "forward"]
    assert told[:4] == [("one", True), ("two", True)] * 2
    assert told[-2:] == [("one", True), ("two", False)]
    assert len({id(event) for event in job.trace if event.kind == "forward"}) == 3


def test_a_layer_that_is_replaced_has_its_whole_name():
    job = run("""
model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model[0][0].weight = torch.nn.Parameter(torch.ones(4, 4))
model[0][0] = torch.nn.Linear(4, 4)
model[1] = torch.nn.Linear(4, 2)
for update in range(4):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).mean().backward()
    optimizer.step()
""")
    told = [event.name for event in job.trace if event.kind == "rebound"]
    assert told == ["model.0.0.weight", "model.0.0", "model.1"]
    messages = [each.message.partition(" ")[0] for each in job.findings if each.code == "INS503"]
    assert messages == ["`model.0.0.weight`", "`model.0.0`", "`model.1`"]
