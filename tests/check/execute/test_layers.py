import inspect

import pytest

from instep.check.execute.layers import MODELESS
from tests.check.execute.run import value

CLASS = """
import torch
class Block(torch.nn.Module):
    def __init__(self):
        self.norm = torch.nn.BatchNorm2d(3)
class Net(torch.nn.Module):
    def __init__(self):
        self.block = {part}
v = Net()
"""


def test_batch_normalisation_in_the_class_or_beside_it():
    assert value(CLASS.format(part="Block()")).batchnorm
    assert value(CLASS.format(part="torch.nn.BatchNorm1d(2)")).batchnorm
    assert value(CLASS.format(part="torch.nn.Linear(1, 1)")).batchnorm is None


def test_parameters_in_the_class():
    assert value(CLASS.format(part="torch.nn.Linear(1, 1)")).trainable
    assert value(CLASS.format(part="torch.nn.ReLU()")).trainable is None
    named = CLASS.format(part="torch.nn.ReLU()").replace("Net", "TransformerLoss")
    assert value(named).trainable is None


def test_models_that_do_the_same_in_both_modes():
    plain = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        self.a = torch.nn.{}(2)
v = Net()
"""
    assert value(plain.format("Linear")).modeless
    assert not value(plain.format("Dropout")).modeless


TAKEN = """
import torch
class Probe(torch.nn.Module):
    def __init__(self):
        super().__init__()
        trained = Encoder()
        trained.{mode}()
        self.norm = trained.norm
        self.head = torch.nn.{head}(2)
    def forward(self, x):
        return self.head(self.norm(x))
v = Probe()
"""


def test_what_came_in_eval_mode_stays_in_it_until_somebody_asks_for_train_mode():
    taken = TAKEN.format(mode="eval", head="Linear")
    assert value(taken).settled
    assert value(taken + "v.eval()\n").settled
    assert not value(taken + "v.train()\n").settled
    assert not value(taken + "v.train(flag)\n").settled
    assert value(taken + "import copy\nv = copy.deepcopy(v)\n").settled


def test_a_layer_of_its_own_with_a_mode_is_not_settled():
    assert not value(TAKEN.format(mode="eval", head="BatchNorm1d")).settled
    assert not value(TAKEN.format(mode="train", head="Linear")).settled
    helped = TAKEN.format(mode="eval", head="Linear").replace("self.norm(x)", "self.helper(x)")
    assert not value(helped).settled
    dropped = TAKEN.format(mode="eval", head="Linear").replace(
        "self.norm(x)", "torch.nn.functional.dropout(x)"
    )
    assert not value(dropped).settled


@pytest.mark.parametrize("name", sorted(MODELESS))
def test_a_layer_without_a_mode_does_not_ask_for_it(name):
    torch = pytest.importorskip("torch")  # a checker that is compiled is tested without it
    layer = getattr(torch.nn, name)
    own = [base for base in layer.__mro__ if base.__module__.startswith("torch.nn.modules")]
    text = "".join(inspect.getsource(base) for base in own if base is not torch.nn.Module)
    assert "forward" in text
    assert "self.training" not in text
