import pytest

from tests.check.execute.run import SETUP, events, once, value

LOOP = (
    SETUP
    + """
for i, x in enumerate(loader):
    loss = model(x).mean()
    loss_scaler(loss, optimizer, parameters=model.parameters(){more})
    if (i + 1) % 4 == 0:
        optimizer.zero_grad()
"""
)


def test_backward_and_step_in_one():
    assert [event[0] for event in events(LOOP.format(more=""), "backward", "step")][:2] == [
        "backward",
        "step",
    ]


def test_it_may_wait_for_the_end_of_a_window():
    source = LOOP.format(more=", need_update=(i + 1) % 4 == 0")
    assert once(source, "step") == [("step", "optimizer", 4)]
    kinds = [event[0] for event in events(source, "backward", "step")]
    assert kinds[:5] == ["backward"] * 4 + ["step"]


def test_it_may_be_unknown_whether_it_steps():
    assert ("opaque", ("optimizer",), "loss_scaler") in once(LOOP.format(more=", need_update=flag"))


def test_without_an_optimizer_it_is_a_function():
    assert "step" not in {
        event[0]
        for event in events(
            LOOP.replace("optimizer, ", "").format(more="") + "optimizer.zero_grad()"
        )
    }


def test_apex_scales_inside_its_context():
    source = (
        SETUP
        + """
from apex import amp
with amp.scale_loss(model(x).mean() / 4, optimizer) as scaled:
    scaled.backward()
optimizer.step()
"""
    )
    assert events(source, "backward") == [("backward", ("optimizer",), 0.25)]


@pytest.mark.parametrize(
    ("text", "name"),
    [("amp.initialize(model, optimizer)[1]", "optimizer"), ("amp.initialize(model)", "model")],
)
def test_apex_gives_back_what_it_is_given(text, name):
    assert value(SETUP + f"from apex import amp\nv = {text}").known_as == name
