from instep.check.execute.definitions import Instance
from instep.check.execute.things import Net, Optimizer
from tests.check.execute.run import SETUP, events, value

NET = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        self.layer = torch.nn.Linear(1, 1)
    def forward(self, x):
        return self.layer(x)
"""


def test_a_class_of_the_project_makes_objects():
    made = value("class A:\n    def __init__(self, n):\n        self.n = n\nv = A(3)")
    assert isinstance(made, Instance)
    assert made.attrs == {"n": 3}


def test_a_module_is_a_model():
    made = value(NET + "v = Net()")
    assert isinstance(made, Net)
    assert (made.kind, made.written, made.training, made.trainable) == ("Net", True, True, True)


def test_an_optimizer_of_the_project():
    made = value(
        NET + "class Mine(torch.optim.Optimizer): ...\nnet = Net()\nv = Mine(net.parameters())"
    )
    assert isinstance(made, Optimizer)
    assert {net.known_as for net in made.nets} == {"net"}


def test_settings_have_their_fields():
    made = value("@dataclass\nclass C:\n    a: int\n    b: int = 2\nv = C(1, b=3)")
    assert made.attrs == {"a": 1, "b": 3}


def test_super_calls_the_base():
    source = """
class A:
    def __init__(self, n):
        self.n = n
    def f(self):
        return self.n
class B(A):
    def __init__(self):
        super().__init__(5)
    def f(self):
        return super().f() + 1
v = B().f()
"""
    assert value(source) == 6


def test_a_trainer_trains():
    source = (
        SETUP
        + """
class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
    def step(self, x):
        self.model(x).sum().backward()
        self.optimizer.step()
Trainer(model, optimizer).step(x)
"""
    )
    assert [event[0] for event in events(source)] == ["forward", "backward", "step"]
