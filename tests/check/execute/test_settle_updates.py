import pytest

from tests.check.execute.run import SETUP, base, events

TWO = (
    SETUP
    + """
other = torch.nn.Linear(1, 1)
second = torch.optim.Adam(other.parameters())
"""
)


def found(source, kind):
    return next(event for event in base(source) if event.kind == kind)


def test_a_backward_reaches_the_optimizers_of_its_models():
    source = TWO + "{}.backward()\noptimizer.step()\nsecond.step()"
    assert found(source.format("model(x).sum()"), "backward").optimizers == ("optimizer",)
    assert found(source.format("other(model(x)).sum()"), "backward").optimizers == (
        "optimizer",
        "second",
    )
    assert found(source.format("unknown_loss"), "backward").optimizers is None


def test_what_a_backward_says_about_its_loss():
    source = (
        SETUP
        + """
loss = torch.nn.functional.mse_loss(model(x), y) / 2 / 4
loss.backward()
optimizer.step()
"""
    )
    event = found(source, "backward")
    assert (event.factor, event.parts, event.reduction, event.models) == (
        0.125,
        (0.5, 0.25),
        "mean",
        ("model",),
    )
    assert base(source).facts[event.loss]["type"] == "mse_loss"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("loss.backward()", "loss"),
        ("scaler.scale(loss).backward()", "loss"),
        ("(loss + 1).backward()", "loss"),
        ("self.total.backward()", "self.total"),
    ],
)
def test_the_name_of_a_loss(text, name):
    source = SETUP + f"loss = model(x).sum()\nself.total = loss\n{text}\noptimizer.step()"
    assert found(source, "backward").loss.partition("#")[0] == name


def test_losses_of_a_loop_over_things_are_told_apart():
    source = SETUP + "for k in (1, 2):\n    model(x).sum().backward()\noptimizer.step()"
    losses = {event.loss for event in base(source) if event.kind == "backward"}
    assert len(losses) == 2


def test_clearing_a_part_is_not_complete():
    source = TWO.replace(
        "Adam(other.parameters())", "Adam([*other.parameters(), *model.parameters()])"
    )
    zeros = events(source + "other.zero_grad()\nsecond.step()\noptimizer.step()", "zero")
    assert zeros == [("zero", ("second",), False)]


def test_a_gate_that_is_unsure_says_nothing():
    source = (
        SETUP
        + """
for x in loader:
    model(x).sum().backward()
    if count % 4 == 0:
        optimizer.step()
"""
    )
    assert ("step", "optimizer", None) in events(source)


def test_whether_a_gate_is_written_as_a_number():
    source = (
        SETUP
        + """
for i, x in enumerate(loader):
    model(x).sum().backward()
    if (i + 1) % {} == 0:
        optimizer.step()
"""
    )
    assert found(source.format("4"), "step").every_written == "literal"
    assert found(source.format("n"), "step").every_written == "nowhere"


def test_a_scheduler_of_nobody_belongs_to_the_only_optimizer():
    assert events(SETUP + "scheduler.step()\noptimizer.step()", "schedule") == [
        ("schedule", "optimizer", "scheduler", False)
    ]
    assert events(TWO + "scheduler.step()\noptimizer.step()\nsecond.step()", "schedule") == [
        ("schedule", None, "scheduler", False)
    ]


def test_reading_gradients_of_a_frozen_model_says_whose():
    source = (
        SETUP
        + """
model.requires_grad_(False)
for p in model.parameters():
    n = p.grad.norm()
optimizer.step()
"""
    )
    assert found(source, "grad-read").parameter == "model.*"
