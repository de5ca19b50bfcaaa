"""A line that clears the same again is told by one event; whatever is different is told anew."""

import pytest

from tests.watching.jobs import found, run

SETUP = """
model, other = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
second = torch.optim.SGD(other.parameters(), lr=0.1)
x = torch.ones(3, 4)
"""


def clears(job):
    return [event for event in job.trace if event.kind == "zero"]


def test_the_same_clear_is_one_event():
    job = run(f"""{SETUP}
for _ in range(50):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
""")
    assert len({id(event) for event in clears(job)}) == 1
    assert job.recorder.clears["optimizer"] == 50
    assert list(job.recorder.since) == ["optimizer"]


def test_two_optimizers_that_are_cleared_in_one_line():
    job = run(f"""{SETUP}
for _ in range(50):
    for each in (optimizer, second):
        each.zero_grad()
    (model(x) + other(x)).mean().backward()
    optimizer.step()
    second.step()
""")
    owners = [event.optimizers for event in clears(job)]
    assert owners[:4] == [("optimizer",), ("second",)] * 2
    assert job.recorder.clears == {"optimizer": 50, "second": 50}
    assert job.findings == ()


@pytest.mark.parametrize("at", [2, 30])
def test_a_clear_that_comes_to_leave_zeros(at):
    job = run(f"""{SETUP}
for update in range({at} + 20):
    optimizer.zero_grad(update < {at})
    model(x).mean().backward()
    optimizer.step()
""")
    assert [event.set_to_none for event in clears(job)][:1] == [True]
    assert {event.set_to_none for event in clears(job)} == {True, False}


def test_parameters_that_are_added_later_are_cleared_as_well():
    job = run(f"""{SETUP}
for update in range(60):
    if update == 30:
        optimizer.add_param_group({{"params": [other.weight]}})
    (optimizer if update % 2 else model).zero_grad()
    (model(x) + other(x)).mean().backward()
    optimizer.step()
""")
    told = [(e.target, e.optimizers, e.complete) for e in clears(job)]
    # The weight that was added is in the other optimizer as well, with another one.
    before = [("model", ("optimizer",), True), (None, ("optimizer",), True)]
    after = [
        ("model", ("optimizer",), False),
        (None, ("optimizer",), True),
        (None, ("second",), False),
    ]
    assert told[:2] == before
    assert told[-3:] == after


def test_a_clear_in_a_backward_is_not_told_as_one():
    job = run(f"""{SETUP}
def clear(): optimizer.zero_grad()
for update in range(20):
    clear()
    loss = model(x).mean()
    if update > 10:
        loss.register_hook(lambda grad: clear())
    loss.backward()
    optimizer.step()
""")
    assert any(event.kind == "opaque" and "zero_grad" in event.what for event in job.trace)
    assert job.findings == ()


@pytest.mark.parametrize("grad", ["parameter.grad", "parameter.grad.data"])
def test_gradients_that_are_made_smaller_are_no_mistake(grad):
    source = f"""
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for update in range(20):
    for parameter in model.parameters():
        if parameter.grad is not None:
            {grad}.mul_(0.5)
    model(torch.randn(8, 8)).square().mean().backward()
    optimizer.step()
"""
    assert found(run(source)) == []
    assert found(run(source.replace("mul_(0.5)", "sum()"))) == [("INS101", 8)]
