from tests.check.execute.run import base, events, once

ENGINE = """
import deepspeed, torch
model = torch.nn.Linear(1, 1)
engine, optimizer, loader, _ = deepspeed.initialize(model=model, config={config})
for x in loader:
    loss = engine(x).mean()
    engine.backward(loss)
    engine.step()
"""


def test_every_nth_step_is_one():
    source = ENGINE.format(config="{'gradient_accumulation_steps': 4}")
    kinds = [event[0] for event in events(source, "backward", "step", "zero")]
    assert kinds[:7] == ["backward"] * 4 + ["step", "zero", "backward"]
    assert once(source, "backward") == [("backward", ("engine",), 0.25)]


def test_the_trace_says_who_manages_it():
    source = ENGINE.format(config="{'gradient_accumulation_steps': 4}")
    job = next(event for event in base(source) if event.kind == "created" and event.id == "job")
    assert job.facts["managed"] == "deepspeed"


def test_without_its_number_an_engine_is_opaque():
    assert {event[0] for event in events(ENGINE.format(config="cfg"), "opaque", "step")} == {
        "opaque"
    }


def test_an_engine_has_the_mode_of_its_model():
    source = ENGINE.format(config="{'gradient_accumulation_steps': 2}").replace(
        "for x", "engine.eval()\nfor x"
    )
    assert ("mode", "model", False) in events(source)
