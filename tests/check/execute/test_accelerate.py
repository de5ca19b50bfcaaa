import pytest

from instep.check.execute.accelerate import is_accelerator, kind_of
from tests.check.execute.run import SETUP, base, events, once, value

PREPARED = (
    SETUP
    + """
from accelerate import Accelerator
accelerator = Accelerator(gradient_accumulation_steps={steps})
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""
)
LOOP = """
for x in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(x).mean())
        optimizer.step()
        optimizer.zero_grad()
"""


def test_names():
    assert is_accelerator("accelerator", "backward")
    assert is_accelerator("fabric", "backward")
    assert not is_accelerator("accelerator", "step")
    assert not is_accelerator("fabrics", "backward")
    assert (kind_of("self.fabric"), kind_of("accelerator")) == ("fabric", "accelerate")


def test_it_steps_at_the_end_of_a_window_and_of_the_loader():
    source = PREPARED.format(steps=4) + LOOP
    kinds = [event[0] for event in events(source, "backward", "step", "zero")]
    backwards = kinds.count("backward")
    assert kinds[:6] == ["backward"] * 4 + ["step", "zero"]
    assert kinds.count("step") == -(-backwards // 4)
    assert kinds[-1] == "zero"


@pytest.mark.parametrize(
    ("made", "managed"),
    [
        ("Accelerator(deepspeed_plugin=DeepSpeedPlugin(gradient_accumulation_steps=8))", True),
        ("Accelerator(deepspeed_plugins=plugins)", True),
        ("Accelerator(deepspeed_plugin=None)", False),
        ("Accelerator()", False),
    ],
)
def test_with_deepspeed_the_engine_counts(made, managed):
    source = (
        SETUP
        + f"from accelerate import Accelerator\naccelerator = {made}\n"
        + """
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for i, x in enumerate(loader):
    accelerator.backward(model(x).mean() / 8)
    if (i + 1) % 8 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
    )
    assert base(source).facts["job"].get("managed") == ("deepspeed" if managed else None)


def test_it_divides_the_loss():
    assert once(PREPARED.format(steps=4) + LOOP, "backward") == [("backward", ("optimizer",), 0.25)]
    assert once(PREPARED.format(steps=1) + LOOP, "backward") == [("backward", ("optimizer",), 1.0)]


def test_an_unknown_number_of_micro_batches():
    assert once(PREPARED.format(steps="args.steps") + LOOP, "backward") == [
        ("backward", ("optimizer",), 1 / 3)
    ]


def test_the_trace_says_who_manages_it():
    (job,) = (
        event
        for event in base(PREPARED.format(steps=4) + LOOP)
        if event.kind == "created" and event.id == "job"
    )
    assert job.facts["managed"] == "accelerate"


def test_clipping():
    source = (
        PREPARED.format(steps=1)
        + "accelerator.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()"
    )
    assert once(source, "clip") == [("clip", ("optimizer",), "norm", None)]


def test_fabric_divides_nothing():
    source = (
        SETUP
        + """
from lightning.fabric import Fabric
fabric = Fabric()
model, optimizer = fabric.setup(model, optimizer)
fabric.backward(model(x).sum())
optimizer.step()
"""
    )
    assert events(source, "backward") == [("backward", ("optimizer",), 1.0)]


@pytest.mark.parametrize(
    ("enabled", "sync"), [("True", False), ("1 % 4 == 0", True), ("flag", None)]
)
def test_no_backward_sync(enabled, sync):
    source = (
        SETUP
        + f"""
fabric.setup(model)
model = torch.nn.parallel.DistributedDataParallel(model)
with fabric.no_backward_sync(model, enabled={enabled}):
    model(x).sum().backward()
optimizer.step()
"""
    )
    assert next(event for event in base(source) if event.kind == "forward").sync is sync


def test_what_gives_back_what_it_is_given():
    source = PREPARED.format(steps=1)
    assert value(source + "v = accelerator.unwrap_model(model)").known_as == "model"
    assert value(source + "v = accelerator.gather(model(x))").nets
