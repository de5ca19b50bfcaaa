from instep.check.execute.tensors import Tensor
from instep.check.execute.values import Unknown
from tests.check.execute.run import SETUP, events, executed, once, value


def test_things_are_named_by_what_they_are_assigned_to():
    assert value("v = torch.nn.Linear(1, 1)").known_as == "v"
    assert (
        value("class A: ...\na = A()\na.net = torch.nn.Linear(1, 1)\nv = a.net").known_as == "a.net"
    )
    assert (
        value("nets = {}\nnets['g'] = torch.nn.Linear(1, 1)\nv = nets['g']").known_as == "nets['g']"
    )


def test_the_first_name_stays():
    assert value("net = torch.nn.Linear(1, 1)\nv = net").known_as == "net"


def test_tuples_are_unpacked():
    assert value("(a, (b, v)) = 1, (2, 3)") == 3
    assert value("[a, v] = [1, 2]") == 2


def test_parts_of_an_unknown_are_told_apart():
    _, scope = executed("for x, y in loader:\n    pass")
    x, y = scope.names["x"], scope.names["y"]
    assert x.key != y.key
    assert x.drawn is y.drawn


def test_parts_of_an_output_come_from_its_model():
    _, scope = executed(SETUP + "a, *b = model(x)")
    assert isinstance(scope.names["a"], Tensor)
    assert isinstance(scope.names["b"], Tensor)


def test_items_of_lists_and_dicts():
    assert value("d = {}\nd['a'] = 3\nv = d['a']") == 3
    assert value("d = [1, 2]\nd[0] = 5\nv = d[0]") == 5
    assert not value("v = {}\nv[key] = 3").exact
    assert value("x[0] = 4\nv = x[0]") == 4


def test_attributes_of_unknowns_keep_what_they_are_given():
    assert value("self.step = 4\nv = self.step") == 4


def test_a_model_in_the_place_of_another_is_noted():
    source = SETUP + "model = torch.nn.Linear(3, 3)\noptimizer.step()"
    assert once(source, "rebound") == [("rebound", "model", "model", "model#2")]
    assert once(SETUP + "model = model.to(d)\noptimizer.step()", "rebound") == []


def test_a_part_that_is_exchanged_is_noted_but_not_while_building():
    source = SETUP + "model.head = torch.nn.Linear(3, 3)\noptimizer.step()"
    assert once(source, "rebound") == [("rebound", "model.head", "model", "model.head")]
    source = """
import torch
import lightning
class Net(lightning.LightningModule):
    def __init__(self):
        self.body = torch.nn.Linear(3, 3)
model = Net()
optimizer = torch.optim.SGD(model.parameters())
optimizer.step()
"""
    assert once(source, "rebound") == []
    assert value(source + "v = model.body").part_of.known_as == "model"


def test_synchronisation_can_be_switched_off():
    made = value(SETUP + "model.require_backward_grad_sync = False\nv = model")
    assert made.sync is False
    assert value(SETUP + "model.require_backward_grad_sync = flag\nv = model").sync is None


def test_parameters_can_be_frozen():
    assert value(
        SETUP + "for p in model.parameters():\n    p.requires_grad = False\nv = model"
    ).frozen
    assert value(SETUP + "model.requires_grad = False\nv = model").frozen


def test_gradients_can_be_cleared_by_hand():
    source = SETUP + "for p in model.parameters():\n    p.grad = None\noptimizer.step()"
    assert ("zero", ("optimizer",), True) in events(source)


def test_named_parameters_are_pairs():
    source = (
        SETUP
        + """
for name, p in model.named_parameters():
    p.grad = None
    v = name
optimizer.step()
"""
    )
    assert ("zero", ("optimizer",), True) in events(source)
    assert isinstance(value(source), Unknown)


def test_a_part_without_parameters_of_its_own_replaces_none():
    def rebound(new):
        source = f"model.fc = {new}\nmodel(x).backward()\noptimizer.step()"
        return len(events(SETUP + source, "rebound"))

    for new in (
        "torch.nn.Identity()",
        "torch.nn.Dropout2d(0.5)",
        "torch.nn.LeakyReLU()",
        "torch.nn.AdaptiveAvgPool2d(1)",
        "torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Softmax(1))",
        "torch.nn.Sequential(torch.nn.Dropout(0.5), model.fc)",
    ):
        assert rebound(new) == 0, new
    for new in (
        "torch.nn.Linear(model.fc.in_features, 3)",
        "torch.nn.PReLU()",
        "torch.nn.Sequential(*layers)",
        "torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(model.fc.in_features, 3))",
        "torch.nn.Sequential(model.fc, torch.nn.Sequential(torch.nn.Linear(2, 2)))",
    ):
        assert rebound(new) == 1, new


def test_an_optimizer_that_is_given_other_parameters_is_not_followed():
    source = SETUP + "optimizer.param_groups[0]['params'] = list(other.parameters())"
    what = "optimizer.param_groups[0]['params']"
    assert events(source + "\noptimizer.step()", "opaque") == [("opaque", ("optimizer",), what)]
    other = SETUP + "optimizer.param_groups[0]['lr'] = 0.1\noptimizer.step()"
    assert events(other, "opaque") == []
