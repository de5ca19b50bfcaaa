import ast

import pytest

from instep.check.execute.items import adding
from tests.check.execute.run import SETUP, base

BATCH = (
    SETUP
    + """
for x, y in loader:
    out = model(x)
    loss = 0
    {loop}
    {then}
    loss.backward()
    optimizer.step()
"""
)
ITEMS = "for i in range(len(out)): loss += torch.nn.functional.mse_loss(out[i], y[i])"


def added(loop):
    return len(adding(ast.parse(loop).body[0]))


@pytest.mark.parametrize(
    "loop",
    [
        "for i in range(out.size(0)): loss = loss + f(out[i], y[i])",
        "for i in range(y.shape[0]): loss += f(out[i], target=y[i])",
        "for i in range(args.batch_size): loss += f(out[i], y[i])",
        "for o, t in zip(out, y): loss += f(o, t)",
        "for i, (o, t) in enumerate(zip(out, y)): loss += f(o, t) * w",
    ],
)
def test_an_item_and_its_target(loop):
    assert added(loop) == 1


def test_names_on_the_way():
    loop = "for i in range(len(out)):\n    o = out[i]\n    t = y[i]\n    l = f(o, t)\n    loss += l"
    assert added(loop) == 2


@pytest.mark.parametrize(
    "loop",
    [
        "for o in out: loss += f(o, y)",
        "for i in range(out.size(1)): loss += f(out[i], y[i])",
        "for o, w in zip(out, weights): loss += w * f(o, y)",
        "for i in range(len(out)):\n    print(i, out[i])\n    loss += f(out[i], y)",
    ],
)
def test_other_sums(loop):
    assert added(loop) == 0


def reduction(loop, then="pass"):
    trace = base(BATCH.format(loop=loop, then=then))
    return next(event.reduction for event in trace if event.kind == "backward")


def test_a_sum_over_items_is_a_sum_until_it_is_divided():
    assert reduction(ITEMS) == "sum"
    assert reduction(ITEMS, "loss = 0.5 * loss") == "sum"
    assert reduction(ITEMS, "loss = loss + model.penalty()") == "sum"
    assert reduction(ITEMS, "loss = loss / len(out)") == "mean"
    assert reduction(ITEMS.replace("y[i]", "y")) == "mean"
