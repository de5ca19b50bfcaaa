import pytest

from instep.check.execute.tensors import Tensor
from instep.check.execute.values import Unknown
from tests.check.execute.run import SETUP, evaluated, events, executed, problems


@pytest.mark.parametrize(
    "text", ["train_one(model, optimizer)", "run([optimizer])", "go(o=optimizer)"]
)
def test_who_is_given_an_optimizer_may_do_anything(text):
    source = SETUP + text + "\noptimizer.step()"
    name = text.partition("(")[0]
    assert events(source)[0] == ("opaque", ("optimizer",), name)
    assert f"`{name}` takes an optimizer and cannot be followed" in problems(source)


@pytest.mark.parametrize(
    "text", ["save_checkpoint(optimizer)", "Trainer(optimizer)", "get_lr(optimizer)"]
)
def test_unless_its_name_says_what_it_does(text):
    assert [event[0] for event in events(SETUP + text + "\noptimizer.step()")] == ["step"]


def test_who_is_given_a_loss_may_act_if_its_name_says_so():
    source = SETUP + "{}(model(x).sum())\noptimizer.step()"
    assert "opaque" in [event[0] for event in events(source.format("do_backward"))]
    assert "opaque" not in [event[0] for event in events(source.format("show"))]


def test_what_comes_out_is_made_of_what_goes_in():
    assert isinstance(evaluated("helper(model(x))", SETUP), Tensor)
    assert isinstance(evaluated("helper(3)", SETUP), Unknown)
    assert evaluated("contrastive(model(x))", SETUP).coupled


def test_what_manages_itself_is_said():
    m, _ = executed("engine.backward(loss)")
    assert m.managed == "engine"


@pytest.mark.parametrize("name", ["flatnonzero", "is_world_process_zero", "zeros_like"])
def test_not_all_that_speaks_of_zero_clears(name):
    source = SETUP + "thing.{}(x)\noptimizer.step()"
    assert "opaque" not in [event[0] for event in events(source.format(name))]
    assert "opaque" in [event[0] for event in events(source.format("set_to_zero"))]
