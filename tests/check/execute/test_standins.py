import pytest

from instep.check.execute.standins import has_optimizer, is_trained
from tests.check.execute.run import SETUP, evaluated, events

BUILT = {
    "comprehension": """
nets = [torch.nn.Linear(2, 2) for _ in range(K)]
opts = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
""",
    "append": """
nets, opts = [], []
for k in range(K):
    nets.append(torch.nn.Linear(2, 2))
    opts.append(torch.optim.SGD(nets[k].parameters(), lr=0.1))
""",
    "calls": """
nets = [build(args) for _ in range(K)]
opts = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
""",
    "dict": """
nets = {k: torch.nn.Linear(2, 2) for k in range(K)}
opts = {k: torch.optim.SGD(nets[k].parameters(), lr=0.1) for k in range(K)}
""",
}
LOOPS = {
    "number": "for k in range(K):\n    opts[k].step()",
    "length": "for k in range(len(opts)):\n    opts[k].step()",
    "element": "for o in opts:\n    o.step()",
    "both": "for net, o in zip(nets, opts):\n    o.step()",
    "counted": "for k, o in enumerate(opts):\n    o.step()",
    "argument": "def one(which):\n    opts[which].step()\nfor k in range(K):\n    one(k)",
}
ENSEMBLE = "import torch\n{}\nL = sum(net(x).mean() for net in nets)\nL.backward()\n{}"


def steps(source):
    return [event[1] for event in events(source, "step")]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("built", ["comprehension", "append", "calls"])
def test_what_stands_for_many_has_one_turn(built, loop):
    source = ENSEMBLE.format(BUILT[built], LOOPS[loop])
    assert len(steps(source)) == 1
    # No batch was drawn, and no epoch has ended.
    assert events(source, "drawn") == events(source, "epoch_end") == []


@pytest.mark.parametrize(
    "loop", ["for o in opts.values():\n    o.step()", "for k in opts:\n    opts[k].step()"]
)
def test_so_has_the_value_of_a_dict(loop):
    assert len(steps(ENSEMBLE.format(BUILT["dict"], loop))) == 1


@pytest.mark.parametrize("loop", [name for name in LOOPS if name != "argument"])
def test_what_is_known_has_a_turn_each(loop):
    source = "K = 3\n" + ENSEMBLE.format(BUILT["comprehension"], LOOPS[loop])
    found = steps(source)
    assert len(found) == len(set(found)) == 3
    [backward] = events(source, "backward")
    assert set(backward[1]) == set(found)


def test_a_loss_is_of_every_model_that_a_loop_without_events_picks():
    source = """
import torch
nets = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]
opts = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
L = 0
for k in range(2):
    L = L + nets[k](x).mean()
L.backward()
opts[0].step()
opts[1].step()
"""
    [backward] = events(source, "backward")
    assert len(backward[1]) == 2


def test_batches_go_on_where_a_number_picks_something():
    source = SETUP + "opts = [optimizer]\nfor i, x in enumerate(loader):\n    opts[i].step()"
    assert len(steps(source)) > 1


def test_another_variable_of_that_name_picks_nothing():
    source = (
        SETUP
        + """
opts = [optimizer]
def update():
    k = 0
    opts[k].step()
for k in range(100):
    update()
"""
    )
    assert len(steps(source)) > 1


def test_batches_go_on_where_the_element_that_is_asked_for_is_not_there():
    loop = "for i, x in enumerate(loader):\n    which = i % 2\n    opts[which].step()"
    source = ENSEMBLE.format(BUILT["comprehension"], loop)
    assert len(steps(source)) > 1
    assert {event[1:] for event in events(source, "opaque")} == {(("optimizer",), "opts[which]")}


def test_which_one_a_written_number_means_is_not_known():
    source = ENSEMBLE.format(BUILT["comprehension"], "opts[0].step()\nopts[1].step()")
    [opaque] = events(source, "opaque")
    assert opaque[1:] == (("optimizer",), "opts[1]")


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("optimizer", True),
        ("(model, optimizer)", True),
        ("{'net': model, 'opt': optimizer}", True),
        ("[[optimizer]]", True),
        ("Agent()", True),
        ("torch.optim.lr_scheduler.StepLR(optimizer, 3)", True),
        ("model", False),
        ("[1, 'a', None]", False),
        ("loader", False),
    ],
)
def test_what_has_an_optimizer(text, has):
    agent = "class Agent:\n    def __init__(self):\n        self.opt = optimizer\n"
    found = evaluated(text, SETUP + agent)
    assert has_optimizer(found) is has
    assert is_trained(found) is (has or text == "model")


def test_a_list_that_holds_itself_ends():
    found = evaluated("v", "v = []\nv.append(v)")
    assert not has_optimizer(found)


TWO = SETUP + "opts = {'a': optimizer, 'b': torch.optim.SGD(model.parameters(), lr=0.1)}\n"


@pytest.mark.parametrize(
    ("text", "opaque"),
    [
        ("opts[one].step()\nopts[other].step()", True),
        ("opts[one].step()\nopts['a'].step()", True),
        ("opts[one].zero_grad()\nopts[one].step()", False),
        ("opts['a'].step()\nopts['b'].step()", False),
        ("def f(key):\n    opts[key].step()\nopts[one].zero_grad()\nf(one)", False),
    ],
)
def test_two_keys_that_are_not_known_may_name_two_elements(text, opaque):
    assert bool(events(TWO + text, "opaque")) is opaque
