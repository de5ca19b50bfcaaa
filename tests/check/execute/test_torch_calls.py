import pytest

from instep.check.execute.things import Parameters
from tests.check.execute.run import SETUP, evaluated, events, executed, once


@pytest.mark.parametrize(
    ("text", "event"),
    [
        (
            "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            ("clip", ("optimizer",), "norm", 1.0),
        ),
        (
            "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=m)",
            ("clip", ("optimizer",), "norm", None),
        ),
        (
            "torch.nn.utils.clip_grad_value_(model.parameters(), clip_value=2)",
            ("clip", ("optimizer",), "value", 2.0),
        ),
        (
            "torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]['params'], 3)",
            ("clip", ("optimizer",), "norm", 3.0),
        ),
        (
            "torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 3)",
            ("clip", ("optimizer",), "norm", 3.0),
        ),
    ],
)
def test_clipping(text, event):
    source = SETUP + f"from apex import amp\n{text}\noptimizer.step()"
    assert once(source, "clip") == [event]


def test_autograd_goes_backward_for_each_loss():
    source = SETUP + "torch.autograd.backward([model(x).sum(), model(y).sum()])\noptimizer.step()"
    assert len(events(source, "backward")) == 2
    m, _ = executed(
        "import torch.distributed.autograd as dist_autograd\ndist_autograd.backward(c, [l])"
    )
    assert m.managed == "dist_autograd"


def test_a_penalty_on_gradients_goes_on():
    made = evaluated("torch.autograd.grad(model(x), w, create_graph=True)", SETUP)
    assert made.nets
    assert not hasattr(evaluated("torch.autograd.grad(model(x), w)", SETUP), "nets")


def test_pieces_that_are_joined_may_be_coupled():
    made = evaluated("torch.cat([model(x), old[0]])", SETUP)
    assert made.coupled is None
    setup = SETUP + "kept = [*others]\nkept.append(model(x))"
    assert evaluated("torch.cat(kept)", setup).coupled


def test_new_parametrisations_are_new_parameters():
    source = SETUP + "torch.nn.utils.weight_norm(model.layer)\noptimizer.step()"
    assert once(source, "rebound") == [("rebound", "model.layer", "model.layer", None)]


def test_chained_parameters():
    setup = SETUP + "import itertools\nhead = torch.nn.Linear(1, 1)"
    made = evaluated("itertools.chain(model.parameters(), head.parameters())", setup)
    assert isinstance(made, Parameters)
    assert {net.known_as for net in made.nets} == {"model", "head"}


def test_initialize_is_whose_it_is():
    assert (
        evaluated("amp.initialize(model, optimizer)", SETUP + "from apex import amp")[0].known_as
        == "model"
    )
    m, _ = executed("import deepspeed\ndeepspeed.initialize(model=model)")
    assert m.managed == "deepspeed"
