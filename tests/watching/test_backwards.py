"""Backwards that are the same again are told by one event; what changes is told anew."""

import pytest

from tests.watching.jobs import run

LONG = 700
"""Updates after which a loss is no longer read closely."""


def backwards(job):
    return [event for event in job.trace if event.kind == "backward"]


def facts(job):
    return job.trace.facts["loss"]


def test_the_same_backward_is_one_event():
    job = run(f"""
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range({LONG}):
    optimizer.zero_grad()
    loss = F.mse_loss(model(torch.ones(3, 4)), torch.ones(3, 2))
    loss.backward()
    optimizer.step()
""")
    assert len({id(event) for event in backwards(job)}) == 1
    assert job.recorder.backwards._closely < 0


@pytest.mark.parametrize("at", [3, LONG])
def test_another_factor_is_told(at):
    job = run(f"""
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for update in range({at} + 20):
    optimizer.zero_grad()
    loss = F.mse_loss(model(torch.ones(3, 4)), torch.ones(3, 2))
    (loss / (2 if update < {at} else 4)).backward()
    optimizer.step()
""")
    assert {event.factor for event in backwards(job)} == {0.5, 0.25}


@pytest.mark.parametrize("at", [3, LONG])
def test_another_reduction_is_told(at):
    job = run(f"""
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
for update in range({at} + 20):
    optimizer.zero_grad()
    said = "mean" if update < {at} else "sum"
    loss = F.mse_loss(model(torch.ones(3, 4)), torch.ones(3, 2), reduction=said)
    loss.backward()
    optimizer.step()
""")
    assert {event.reduction for event in backwards(job)} == {"mean", "sum"}


@pytest.mark.parametrize("at", [3, LONG])
def test_items_are_counted_where_windows_have_become_larger(at):
    job = run(f"""
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for update in range({at} + 20):
    optimizer.zero_grad()
    for size in (3,) if update < {at} else (3, 5):
        target = torch.zeros(size, dtype=torch.long)
        loss = F.cross_entropy(model(torch.ones(size, 4)), target)
        loss.backward()
    optimizer.step()
""")
    assert facts(job).get("ragged") is True


@pytest.mark.parametrize("at", [3, LONG])
def test_samples_that_are_compared_are_noticed_where_windows_have_become_larger(at):
    job = run(f"""
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for update in range({at} + 20):
    optimizer.zero_grad()
    for _ in range(1 if update < {at} else 2):
        one, other = model(torch.randn(3, 4)), model(torch.randn(3, 4))
        logits = one @ other.t() if update >= {at} else one
        loss = F.cross_entropy(logits, torch.arange(3))
        loss.backward()
    optimizer.step()
""")
    assert facts(job).get("coupled") is True


def test_samples_that_are_compared_are_noticed_late_in_windows_of_several():
    job = run("""
model = torch.nn.Linear(4, 4, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for update in range(60):
    optimizer.zero_grad()
    for _ in range(4):
        one, other = model(torch.randn(4, 4)), model(torch.randn(4, 4))
        other = other if update >= 50 else other.detach()
        F.cross_entropy(one @ other.t(), torch.arange(4)).backward()
    optimizer.step()
""")
    assert facts(job).get("coupled") is True


@pytest.mark.parametrize("size", [13, 17, 34])
def test_no_size_of_a_window_hides_the_one_that_compares_its_samples(size):
    """With one distance between those that are looked at, a window of as many always hides some."""
    job = run(f"""
model = torch.nn.Linear(4, 4, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for update in range(120):
    optimizer.zero_grad()
    for piece in range({size}):
        one, other = model(torch.randn(4, 4)), model(torch.randn(4, 4))
        other = other if update >= 10 and piece == 3 else other.detach()
        F.cross_entropy(one @ other.t(), torch.arange(4)).backward()
    optimizer.step()
""")
    assert facts(job).get("coupled") is True


def test_the_worst_of_a_window_is_quoted():
    job = run("""
model = torch.nn.Linear(4, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for update in range(8):
    optimizer.zero_grad()
    for count in (21, 23, 3, 20, 22):
        y = torch.zeros(24, dtype=torch.long)
        y[count:] = -100
        (F.cross_entropy(model(torch.ones(24, 4)), y) / 5).backward()
    optimizer.step()
""")
    [finding] = job.findings
    assert finding.code == "INS203"
    assert "(3 and 23 in one window: an item of the smaller counts 7.67 times" in finding.message
