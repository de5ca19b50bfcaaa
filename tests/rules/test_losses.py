import ast

import pytest

from instep.check.rewriting import apply
from instep.rules.losses import divided, loss_divisors
from tests.rules.mends import Text


@pytest.mark.parametrize(
    ("call", "written"),
    [
        ("loss.backward()", "(loss / n).backward()"),
        ("(loss).backward()", "(loss / n).backward()"),
        ("(a + b).backward()", "((a + b) / n).backward()"),
        (
            "f(x).mean().backward(retain_graph=True)",
            "(f(x).mean() / n).backward(retain_graph=True)",
        ),
        ("scaler.scale(loss).backward()", "scaler.scale(loss / n).backward()"),
        ("scaler.scale(a + b).backward()", "scaler.scale((a + b) / n).backward()"),
        ("accelerator.backward(loss)", "accelerator.backward(loss / n)"),
        ("self.manual_backward(loss)", "self.manual_backward(loss / n)"),
        ("torch.autograd.backward(loss)", "torch.autograd.backward(loss / n)"),
    ],
)
def test_a_divided_loss(call, written):
    shown = Text(f"{call}\n")
    edits = divided(shown.source, shown.source.call_at(shown.at(call)), "n")
    assert apply(shown.text, edits) == f"{written}\n"


def test_what_is_no_backward_is_not_divided():
    shown = Text("step(loss)\n")
    assert divided(shown.source, shown.source.call_at(shown.at("step(loss)")), "n") is None


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("loss = f(x) / n\nloss.backward()\nlog(loss.item() / n)", [1]),
        ("a = f(x)\nloss = a / n\n(loss + b).backward()\nmean = total / n", [2]),
        ("loss = f(x)\nloss /= n\nscaler.scale(loss).backward()", [2]),
        ("a = f(x) / n\nb = a + c\nself.loss = b\nself.loss.backward()", [1]),
        ("(f(x) / n).backward()\nshown += loss.item() / n", [1]),
        ("train_step(loss / n)\nspeed(t / n)", [1]),
    ],
)
def test_divisions_that_a_backward_feels(code, lines):
    shown = Text(code)
    number = ast.parse("n", mode="eval").body
    assert [node.lineno for node in loss_divisors(shown.source, shown.tree, number)] == lines
