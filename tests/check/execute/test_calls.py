from instep.check.execute.tensors import Tensor
from instep.check.execute.values import Unknown
from tests.check.execute.run import SETUP, evaluated, events, value


def test_an_object_with_call_is_called():
    assert value("class A:\n    def __call__(self, x):\n        return x + 1\nv = A()(2)") == 3


def test_a_model_that_replaces_a_method_keeps_its_own_if_events_happen_in_it():
    source = """
import torch
class Net(torch.nn.Module):
    def step(self, x):
        self(x).sum().backward()
    def train(self, mode=True):
        return 7
net = Net()
optimizer = torch.optim.SGD(net.parameters())
net.step(x)
net.train()
optimizer.step()
"""
    assert [event[0] for event in events(source)] == ["forward", "backward", "mode", "step"]


def test_a_function_in_a_variable_is_called():
    assert value("def f(x):\n    return x\ng = f\nv = g(4)") == 4
    assert value("fs = {'a': lambda x: x * 2}\nv = fs['a'](4)") == 8


def test_a_function_that_an_unknown_was_given():
    assert value("self.f = lambda: 3\nv = self.f()") == 3


def test_calling_a_number_gives_nothing_known():
    assert isinstance(evaluated("(3)(4)"), Unknown)


def test_what_calls_give_comes_from_what_goes_in():
    made = evaluated("helper(model(x))", SETUP)
    assert isinstance(made, Tensor)
    assert {net.known_as for net in made.nets} == {"model"}
