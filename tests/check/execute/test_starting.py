from instep.check.execute.starting import entries_of
from tests.check.execute.run import events, module_of, once, run


def names(source):
    return [entry.name for entry in entries_of(module_of(source))]


def test_callers_come_first():
    source = """
def update():
    loss.backward()
def train():
    for x in loader:
        update()
def show(): ...
"""
    assert names(source) == ["train", "update"]


def test_what_is_no_entry():
    assert names("def batches():\n    yield loss.backward()") == []
    assert names("class A:\n    def __init__(self):\n        loss.backward()") == []
    assert (
        names(
            """
class F(torch.autograd.Function):
    def backward(ctx, g):
        return ctx.step()
"""
        )
        == []
    )


def test_a_function_that_nobody_calls_is_executed_with_unknown_arguments():
    source = """
def train(model, optimizer, loader):
    for x in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""
    assert [path.entry for path in run(source).paths] == ["train"]
    assert once(source, "backward") == [("backward", ("optimizer",), 1.0)]
    assert len(events(source, "epoch_end")) == 2  # it is one epoch of somebody's loop


def test_a_function_with_its_own_epochs_runs_once():
    source = """
def train(optimizer, loader):
    for epoch in range(9):
        for x in loader:
            loss.backward()
            optimizer.step()
"""
    assert len(events(source, "epoch_end")) == 2


def test_methods_run_on_an_object_that_was_initialised():
    source = """
import torch
class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def epoch(self, loader):
        for x in loader:
            self.optimizer.zero_grad()
            self.model(x).sum().backward()
            self.optimizer.step()
"""
    assert once(source, "step") == [("step", "self.optimizer", None)]
    assert once(source, "backward") == [("backward", ("self.optimizer",), 1.0)]


def test_a_subclass_completes_its_base():
    source = """
import torch
class Base:
    def epoch(self, loader):
        for x in loader:
            self.make().backward()
            self.optimizer.step()
class Mine(Base):
    def __init__(self):
        self.net = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters())
    def make(self):
        return self.net(x).sum()
"""
    assert once(source, "backward", entry="epoch") == [("backward", ("self.optimizer",), 1.0)]


def test_only_what_sets_up_runs_before_an_entry():
    source = """
steps = 4
optimizer.zero_grad()
def train(optimizer, loader):
    for i, x in enumerate(loader):
        loss.backward()
        if (i + 1) % steps == 0:
            optimizer.step()
"""
    assert ("step", "optimizer", 4) in once(source, entry="train")
    assert events(source, "zero", entry="train") == []


def test_settings_of_the_module_are_those_of_its_functions():
    source = """
class cfg:
    steps = 4
def train(cfg, optimizer, loader):
    for i, x in enumerate(loader):
        loss.backward()
        if (i + 1) % cfg.steps == 0:
            optimizer.step()
"""
    assert ("step", "optimizer", 4) in once(source, entry="train")


def test_what_an_entry_is_given_by_other_names_is_not_known():
    source = """
class Fit:
    def __init__(self, **settings):
        self.settings = {"epochs": 1}
        self.settings.update(settings)
    def train(self, loader, **settings):
        for epoch in range(self.settings["epochs"]):
            for x in loader:
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
"""
    assert len(events(source, "epoch_end")) == 2
    known = source.replace("__init__(self, **settings)", "__init__(self)")
    assert (
        len(events(known.replace("        self.settings.update(settings)\n", ""), "epoch_end")) == 1
    )


def test_keywords_of_an_entry_that_takes_others_are_not_known():
    source = """
def train(loader, *, epochs=1, **settings):
    for epoch in range(epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
"""
    assert len(events(source, "epoch_end")) == 2
