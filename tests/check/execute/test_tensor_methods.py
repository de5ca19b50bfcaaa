import pytest

from instep.check.execute.tensors import Tensor
from instep.check.execute.values import ListValue, Unknown
from tests.check.execute.run import SETUP, evaluated

OUT = SETUP + "out = model(x)\nloss = torch.nn.functional.mse_loss(out, y, reduction='none')"


@pytest.mark.parametrize(
    "text", ["loss.item()", "loss.shape", "loss.size(0)", "loss.tolist()", "loss.grad"]
)
def test_what_is_no_tensor(text):
    assert isinstance(evaluated(text, OUT), Unknown)


@pytest.mark.parametrize("text", ["loss.detach()", "loss.data", "loss.detach().cpu()"])
def test_what_leaves_the_graph(text):
    made = evaluated(text, OUT)
    assert (made.graph, made.nets) == (False, frozenset())


@pytest.mark.parametrize("text", ["loss.to(d)", "loss.squeeze()", "loss.clone()", "out.T"])
def test_what_stays_the_loss(text):
    made = evaluated(text, OUT)
    assert isinstance(made, Tensor)
    assert made.graph


@pytest.mark.parametrize(
    ("text", "reduction"),
    [
        ("loss.mean()", "mean"),
        ("loss.sum()", "sum"),
        ("loss.sum().mean()", "sum"),
        ("loss.mean(1)", None),
        ("loss.mean(dim=1)", None),
        ("torch.sum(loss)", "sum"),
    ],
)
def test_reductions(text, reduction):
    assert evaluated(text, OUT).reduction == reduction


def test_arithmetic_as_methods():
    assert evaluated("loss.mean().div(4)", OUT).parts == (0.25,)
    assert evaluated("loss.mean().mul(2)", OUT).parts == (2.0,)
    assert evaluated("loss.mean().div(4).add(loss.mean().div(4))", OUT).parts == (0.25,)
    assert evaluated("out.mm(out)", OUT).coupled


def test_attributes_of_an_output():
    made = evaluated("out.loss", OUT)
    assert made.known_as == "loss"
    assert made.nets


def test_scaled_losses_keep_what_they_are():
    setup = OUT + "\nscaler = torch.amp.GradScaler()"
    made = evaluated("scaler.scale(loss.mean() / 4)", setup)
    assert (made.parts, made.scaled.known_as) == ((0.25,), "scaler")
    assert isinstance(evaluated("scaler.scale([loss, loss])", setup), ListValue)
    assert evaluated("scaler.scale((loss, loss))", setup)[1].scaled
