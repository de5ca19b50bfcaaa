import pytest

from instep.check.execute.things import Scaler
from tests.check.execute.run import SETUP, base, events, facts, value

LOSS = SETUP + "loss = model(x).sum()\n"


def test_steps_and_zeros():
    found = events(LOSS + "optimizer.zero_grad()\nloss.backward()\noptimizer.step()")
    assert [event[0] for event in found] == ["forward", "zero", "backward", "step"]


@pytest.mark.parametrize(
    ("text", "none"), [("", True), ("set_to_none=False", False), ("False", False), ("flag", None)]
)
def test_how_gradients_are_cleared(text, none):
    trace = base(LOSS + f"optimizer.zero_grad({text})\noptimizer.step()")
    assert next(event for event in trace if event.kind == "zero").set_to_none is none


def test_a_closure_is_called_before_the_step():
    source = (
        LOSS
        + """
def closure():
    optimizer.zero_grad()
    loss.backward()
    return loss
optimizer.step(closure)
"""
    )
    assert [event[0] for event in events(source)] == ["forward", "zero", "backward", "step"]
    assert next(event for event in base(source) if event.kind == "step").closure
    assert ("opaque", ("optimizer",), "closure") in events(LOSS + "optimizer.step(unknown)")


def test_groups_can_be_added():
    source = (
        SETUP
        + """
head = torch.nn.Linear(1, 1)
optimizer.add_param_group({'params': head.parameters()})
optimizer.step()
"""
    )
    assert set(facts(source, "optimizer")["models"]) == {"model", "head"}


def test_a_scaler_scales_unscales_steps_and_updates():
    source = (
        LOSS
        + """
scaler = torch.amp.GradScaler()
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
scaler.step(optimizer)
scaler.update()
"""
    )
    assert events(source)[1:] == [
        ("backward", ("optimizer",), 1.0),
        ("unscale", "optimizer", "scaler"),
        ("step", "optimizer", None),
        ("scaler_update", "scaler"),
    ]
    trace = base(source)
    assert next(event for event in trace if event.kind == "backward").scaled
    assert next(event for event in trace if event.kind == "step").scaler == "scaler"


def test_whether_a_scaler_is_enabled():
    assert value("import torch\nv = torch.amp.GradScaler(enabled=False).is_enabled()") is False
    assert value("import torch\nv = torch.amp.GradScaler(enabled=flag)").enabled is None
    assert isinstance(value("import torch\nv = torch.cuda.amp.GradScaler()"), Scaler)


def test_schedulers_belong_to_their_optimizer():
    source = (
        LOSS
        + """
s = torch.optim.lr_scheduler.StepLR(optimizer, 3)
s.step()
s.step(epoch)
s.state_dict()
optimizer.step()
"""
    )
    assert events(source, "schedule") == [
        ("schedule", "optimizer", "s", False),
        ("schedule", "optimizer", "s", True),
    ]


def test_an_optimizer_inside_another_object():
    source = (
        SETUP
        + """
class Wrap:
    def __init__(self, o):
        self.o = o
w = Wrap(optimizer)
scaler.step(w)
"""
    )
    assert events(source, "step") == [("step", "optimizer", None)]


def test_other_steps_are_opaque():
    assert ("opaque", ("optimizer",), "step_all") in events(
        SETUP + "optimizer.step_all()\noptimizer.step()"
    )
    assert events("import torch_xla as xm\nxm.optimizer_step(optimizer)") == [
        ("step", "optimizer", None)
    ]


@pytest.mark.parametrize(
    ("made", "kept"),
    [("torch.optim.SGD(model.parameters(), lr=0.1)", True), ("build(model.parameters())", False)],
)
def test_what_a_step_returns_is_its_closures_loss_where_its_class_is_known(made, kept):
    source = f"""
import torch
model = torch.nn.Linear(2, 2)
optimizer = {made}
total = 0
for x, y in loader:
    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss
    total += optimizer.step(closure)
"""
    assert bool(events(source, "loss_kept")) is kept
