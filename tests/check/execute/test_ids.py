from instep.check.execute.ids import known, unit_of
from instep.check.execute.things import Scheduler
from tests.check.execute.run import SETUP, events, facts


def test_things_of_one_name_are_numbered():
    source = (
        SETUP
        + """
def make():
    o = torch.optim.SGD(model.parameters())
    return o
a = make()
b = make()
a.step()
b.step()
"""
    )
    assert [event[1] for event in events(source, "step")] == ["o", "o#2"]


def test_facts_of_an_optimizer():
    source = SETUP + "optimizer.step()"
    assert facts(source, "optimizer") == {
        "type": "torch.optim.SGD",
        "written": True,
        "models": ("model",),
    }
    assert facts("optimizer.step()", "optimizer") == {}


def test_facts_of_a_model():
    source = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1))
optimizer = torch.optim.SGD(model.parameters())
model = torch.nn.parallel.DistributedDataParallel(model)
model(x).sum().backward()
optimizer.step()
"""
    found = facts(source, "model")
    assert found["type"] == "Sequential"
    assert found["batchnorm"] is True
    assert found["distributed"] == "ddp"
    assert found["held"] is True


def test_a_part_says_of_what():
    source = SETUP + "head = model.head\nhead(x).sum().backward()\noptimizer.step()"
    assert facts(source, "model.head")["part_of"] == "model"


def test_facts_of_a_scheduler_and_a_scaler():
    source = (
        SETUP
        + """
s = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
scaler = torch.amp.GradScaler(enabled=False)
s.step(1)
scaler.update()
optimizer.step()
"""
    )
    found = facts(source, "s")
    assert (found["type"], found["optimizer"], found["unit"]) == (
        "ReduceLROnPlateau",
        "optimizer",
        "metric",
    )
    assert facts(source, "scaler") == {"enabled": False}


def test_facts_of_loaders():
    source = (
        SETUP
        + """
for x in loader:
    for patch in make_patches(x):
        model(patch).sum().backward()
    optimizer.step()
"""
    )
    assert facts(source, "patch") == {"type": "make_patches(x)", "pieces": True, "patches": True}
    assert facts(source, "loader") == {"type": "loader"}


def test_a_written_length_is_a_fact():
    source = (
        SETUP
        + """
for i in range(10):
    model(get()).sum().backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
"""
    )
    assert facts(source, "i")["length"] == 10


def test_units_of_schedulers():
    assert unit_of(Scheduler("s", None, "OneCycleLR")) == "update"
    assert unit_of(Scheduler("plateau_sched")) == "metric"
    assert unit_of(Scheduler("s", None, "StepLR")) is None


def test_only_what_is_known_is_a_fact():
    assert known(a=1, b=None, c=False) == {"a": 1, "c": False}


def test_pieces_that_come_again():
    loop = "for batch in loader:\n    for k in range(4):\n        for i in range(0, 64, 16):{}"
    body = "\n            model(batch[{}]).sum().backward()\n            optimizer.step()"
    source = SETUP + loop.format(body)
    assert facts(source.format("i:i + 16"), "i")["again"]
    assert "again" not in facts(source.format("k, i:i + 16"), "i")
    assert facts(source.format("k, i:i + 16").replace("for k", "for epoch"), "i")["again"]
    assert "again" not in facts(source.format("i:i + 16").replace("range(4)", "range(1)"), "i")
    assert "again" not in facts(source.format("i:i + 16").replace("(4)", "(0, 64, 16)"), "i")
