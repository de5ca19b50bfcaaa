import ast

import pytest

from instep.check.rewriting import apply
from instep.rules.keeping import detached
from instep.rules.source import Source


def kept(text, loss="loss"):
    tree = ast.parse(text)
    edits = detached(Source(text, tree, {}), tree.body[0], loss)
    return None if edits is None else apply(text, edits)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("total += loss", "total += loss.detach()"),
        ("total += loss * x.size(0)", "total += loss.detach() * x.size(0)"),
        ("total = total + loss", "total = total + loss.detach()"),
        ("losses.append(loss)", "losses.append(loss.detach())"),
        ("self.losses['é'].append(loss)", "self.losses['é'].append(loss.detach())"),
        ("history = {'loss': loss}", "history = {'loss': loss.detach()}"),
        ("total += f(x, y)", "total += f(x, y).detach()"),
        ("total += a + b", "total += (a + b).detach()"),
        ("log(loss=loss)", "log(loss=loss.detach())"),
    ],
)
def test_losses_are_detached(text, expected):
    assert kept(text) == expected


def test_attributes():
    assert kept("total += out.loss", "out.loss") == "total += out.loss.detach()"


def test_what_keeps_nothing():
    assert kept("pass") is None
    assert kept("f()") is None
