from instep.check.execute.methods import METHODS
from instep.check.execute.things import (
    Accelerator,
    Criterion,
    Grad,
    Net,
    Optimizer,
    Param,
    Parameters,
    Scaler,
    Scheduler,
)
from instep.check.execute.values import Unknown
from tests.check.execute.run import SETUP, evaluated, events, once, problems, value


def test_every_role_with_methods_is_in_the_table():
    roles = {Accelerator, Criterion, Grad, Net, Optimizer, Param, Scaler, Scheduler}
    assert roles <= set(METHODS)


def test_a_loss_function_stays_itself_on_a_device():
    setup = "import torch\nc = torch.nn.CrossEntropyLoss()"
    assert isinstance(evaluated("c.to(device)", setup), Criterion)
    assert evaluated("c.parameters()", setup).nets == frozenset()
    assert isinstance(evaluated("c.other()", setup), Unknown)


def test_a_lone_parameter():
    source = SETUP + "for p in model.parameters():\n    v = p.detach()"
    assert isinstance(value(source), Unknown)


def test_losses_are_called():
    made = evaluated("c(model(x), y)", SETUP + "c = torch.nn.MSELoss(reduction='sum')")
    assert (made.reduction, made.kind) == ("sum", "MSELoss")


def test_a_base_class_outside_the_project_may_do_anything():
    source = """
from base import Trainer
class Mine(Trainer):
    def fit(self):
        super().train_step()
        self.optimizer.step()
"""
    assert ("opaque", None, "super().train_step") in once(source, entry="fit")
    assert any("base class of `train_step`" in reason for reason in problems(source))


def test_the_methods_of_a_module_s_base():
    source = """
import torch
class Net(torch.nn.Module):
    def parameters(self):
        return super().parameters()
    def forward(self, x):
        x.backward()
net = Net()
v = net.parameters()
"""
    assert isinstance(value(source), Parameters)


def test_things_without_methods_of_their_own_are_looked_into():
    assert ("opaque", ("optimizer",), "run") in once(
        SETUP + "v = range(3).run(optimizer)\noptimizer.step()"
    )
    assert events(SETUP + "range(3).index(x)\noptimizer.step()") == [("step", "optimizer", None)]


def test_a_loss_function_that_goes_backward_may_be_anything():
    source = SETUP + "for x in loader:\n    loss = torch.nn.BCELoss(model(x), x)\n"
    source += "    loss.backward()\n    optimizer.step()"
    assert ("opaque", None, "loss.backward") in once(source)
    assert problems(source) == ["`loss` is a loss function, and goes backward like a loss"]
