import pytest

from instep.check.execute.things import Net, Parameters
from tests.check.execute.run import SETUP, UPDATE, base, evaluated, events, executed, once, value

NET = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)
    def forward(self, x):
        return self.drop(x)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def test_a_forward_says_the_mode():
    source = NET + "model.eval()\nmodel(x)\nmodel.train()\nmodel(x)\noptimizer.step()"
    assert events(source)[:4] == [
        ("mode", "model", False),
        ("forward", "model", False),
        ("mode", "model", True),
        ("forward", "model", True),
    ]


@pytest.mark.parametrize(
    ("call", "training"), [("train(False)", False), ("train(mode=True)", True)]
)
def test_the_mode_may_be_an_argument(call, training):
    assert events(NET + f"model.{call}\noptimizer.step()", "mode") == [("mode", "model", training)]


def test_an_unknown_mode_is_unknown():
    source = NET + "model.train(flag)\nmodel(x)\noptimizer.step()"
    assert events(source)[0] == ("forward", "model", None)


def test_without_gradients_a_forward_is_none():
    assert events(SETUP + "with torch.no_grad():\n    model(x)\noptimizer.step()", "forward") == []


@pytest.mark.parametrize("call", ["to(d)", "cuda()", "half()", "train()", "requires_grad_(True)"])
def test_what_gives_back_the_model(call):
    assert value(SETUP + f"v = model.{call}") is not None
    _, scope = executed(SETUP + f"v = model.{call}")
    assert scope.names["v"] is scope.names["model"]


def test_parameters():
    assert isinstance(evaluated("model.parameters()", SETUP), Parameters)
    assert evaluated("model.named_parameters()", SETUP).named


def test_freezing():
    source = SETUP + "model.requires_grad_(False)\nv = model(x)"
    assert not value(source).graph
    assert value(
        SETUP + "f = torch.nn.Linear(1, 1)\nf.requires_grad_(False)\nv = f(model(x))"
    ).graph


def test_clearing_a_model_clears_its_optimizer():
    assert ("zero", ("optimizer",), True) in events(SETUP + "model.zero_grad()\noptimizer.step()")


def test_no_sync_is_entered_and_left():
    source = (
        SETUP
        + """
model = torch.nn.parallel.DistributedDataParallel(model)
with model.no_sync():
    model(x).sum().backward()
model(x).sum().backward()
optimizer.step()
"""
    )
    assert [event.sync for event in base(source) if event.kind == "forward"] == [False, True]


def test_layers_are_parts():
    source = SETUP + "for name, layer in model.named_modules():\n    v = layer"
    made = value(source)
    assert isinstance(made, Net)
    assert made.part_of.known_as == "model"


def test_an_engine_steps_by_itself():
    assert ("opaque", None, "model") in once(SETUP + "model.backward(loss)\noptimizer.step()")


RESIZED = SETUP + "tokenizer.{}\nmodel.resize_token_embeddings(len(tokenizer))\noptimizer.step()"


@pytest.mark.parametrize(
    "call",
    [
        "add_tokens(['<a>'])",
        "add_tokens('<a>')",
        "add_tokens(more)",
        "add_special_tokens({'pad_token': '<pad>'})",
        "add_special_tokens({'additional_special_tokens': ['<a>', '<b>']})",
    ],
)
def test_embeddings_of_new_tokens_are_new_parameters(call):
    source = RESIZED.format(call)
    assert once(source, "rebound") == [("rebound", "model.embeddings", "model", None)]


@pytest.mark.parametrize(
    "call",
    [
        "encode(text, add_special_tokens=True)",
        "add_tokens([])",
        "add_special_tokens({'pad_token': tokenizer.eos_token})",
    ],
)
def test_embeddings_of_the_same_tokens_stay(call):
    assert once(RESIZED.format(call), "rebound") == []


ROOM = """
import torch
model = load()
other = load()
tokenizer.add_tokens(['<a>'])
{}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{}
model(x).backward()
optimizer.step()
"""


@pytest.mark.parametrize(
    ("before", "after", "times"),
    [
        ("model.resize_token_embeddings(n)", "model.resize_token_embeddings(n)", 1),
        ("model.module.resize_token_embeddings(n)", "model.resize_token_embeddings(n)", 1),
        ("", "model.resize_token_embeddings(n)", 1),
        ("other.resize_token_embeddings(n)", "model.resize_token_embeddings(n)", 2),
        (
            "model.resize_token_embeddings(n)",
            "tokenizer.add_tokens(['<b>'])\nmodel.resize_token_embeddings(n)",
            2,
        ),
    ],
)
def test_new_tokens_are_new_until_a_model_has_room_for_them(before, after, times):
    assert len(events(ROOM.format(before, after), "rebound")) == times


def test_a_forward_that_trains_is_followed():
    source = NET.replace("return self.drop(x)", "x.backward()") + "model(loss)\noptimizer.step()"
    assert [event[0] for event in events(source)] == ["backward", "step"]


def test_other_methods_are_like_a_forward():
    assert {net.known_as for net in evaluated("model.encode(x)", SETUP).nets} == {"model"}


def test_apply_of_a_function_that_clears():
    looped = SETUP + "for x, y in loader:" + UPDATE + "        model.apply(lambda layer: {})\n"
    cleared = events(looped.format("layer.zero_grad()"), "zero")
    assert len(cleared) == 2 * len(events(looped.format("print(layer)"), "zero"))


LOCAL = """
import torch

class Block(torch.nn.Module):
    def forward(self, x, y):
        x = self.layer(x)
        {}
        return x.detach()

class Front(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x, y):
        return self.block(x, y)

front = Front()
optimizer = torch.optim.SGD(front.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    hidden = front(x, y)
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("line", "opaque"),
    [("torch.nn.functional.mse_loss(x, y).backward()", True), ("x = torch.relu(x)", False)],
)
def test_a_layer_that_goes_backward_may_be_in_any_model_beside_it(line, opaque):
    assert bool(events(LOCAL.format(line), "opaque")) is opaque
