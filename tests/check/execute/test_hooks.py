import pytest

from instep.check.execute.scan import is_hook
from tests.check.execute.run import run

TRAINING = """
import torch

class Training:
    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self.wanted = []
{methods}
    def run(self, loader):
        for x in loader:
            {call}
            self.net(x).mean().backward()
            self.optimizer.step()
"""
MADE = "\nTraining(torch.nn.Linear(1, 1)).run(loader)\n"


def kinds(call, methods="", made=""):
    (path, *_) = run(TRAINING.format(call=call, methods=methods) + made).paths
    return {event.kind for event in path.trace}


@pytest.mark.parametrize(
    "body", ["pass", "...", "return", "return None", '"""Nothing."""', '"""Text."""\n        pass']
)
def test_a_method_that_does_nothing_is_left_to_a_subclass(body):
    methods = f"    def prepare(self):\n        {body}"
    assert "opaque" in kinds("self.prepare()", methods)
    assert "opaque" not in kinds("self.prepare()", methods, MADE)  # this one has no subclass


def test_a_method_that_does_something_is_followed():
    for body in ("print(1)", "self.count = 1", "raise ValueError"):
        assert "opaque" not in kinds("self.prepare()", f"    def prepare(self):\n        {body}")
    assert "opaque" not in kinds("self.save()", "    def save(self):\n        pass")


def test_a_function_is_nobodys_hook():
    text = "def prepare():\n    pass\n\ndef same(x):\n    return x\n" + TRAINING + MADE
    for call in ("prepare()", "same(x)"):
        (path, *_) = run(text.format(call=call, methods="")).paths
        assert "opaque" not in {event.kind for event in path.trace}


def test_a_method_that_nobody_has():
    assert "opaque" in kinds("self.before_step()", made=MADE)
    assert "opaque" not in kinds("self.describe()", made=MADE)
    answers = "    def __getattr__(self, name):\n        return find(name)"
    assert "opaque" in kinds("self.describe()", answers, MADE)


def test_callbacks_that_are_handed_in():
    tells = "    def tell(self):\n        for what in self.wanted:\n            {each}"
    assert "opaque" in kinds("self.tell()", tells.format(each="what()"), MADE)
    assert "opaque" in kinds("self.tell()", tells.format(each="what.on_step()"), MADE)
    assert "opaque" not in kinds("self.tell()", tells.format(each="what.print()"), MADE)


def test_hooks_of_something_unknown():
    assert "opaque" in kinds("plugins.before_step()")
    assert "opaque" not in kinds("plugins.on_end()")


def test_names():
    assert is_hook("after_backward")
    assert not is_hook("online")
