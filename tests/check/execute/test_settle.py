from instep.check.execute.settle import multiplier
from instep.check.execute.values import Unknown
from tests.check.execute.run import SETUP, base, events


def test_the_job_comes_first_then_what_nobody_saw_being_made():
    source = "optimizer.zero_grad()\nloss.backward()\noptimizer.step()"
    created = events(source, "created")
    assert created[:2] == [("created", "job", "job"), ("created", "optimizer", "optimizer")]
    assert base(source).facts["job"]["source"] == "check"


def test_what_was_seen_being_made_is_where_it_was_made():
    source = (
        SETUP
        + """
model.zero_grad()
late = torch.optim.Adam(model.parameters())
late.step()
optimizer.step()
"""
    )
    found = events(source, "created", "zero", "step")
    assert found.index(("created", "late", "optimizer")) > found.index(
        ("zero", ("optimizer",), True)
    )


def test_what_never_matters_is_not_in_the_trace():
    created = events(
        SETUP + "spare = torch.optim.Adam(other.parameters())\noptimizer.step()", "created"
    )
    assert ("created", "spare", "optimizer") not in created


def test_assumptions_come_before_the_events():
    source = SETUP + "if flag:\n    model(x).sum().backward()\noptimizer.step()"
    kinds = [event.kind for event in base(source)]
    assert kinds.index("assumed") < kinds.index("forward")


def test_multipliers():
    counted = Unknown("n")
    counted.count = 4
    assert multiplier((counted, -1)) == 0.25
    assert multiplier((Unknown("n"), -1)) is None
    assert multiplier((0, -1)) is None
    assert multiplier((3, 1)) == 3.0
