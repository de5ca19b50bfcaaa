import sys
import weakref

import pytest
import torch

from instep.watching.locals_of import locals_of
from tests.watching.jobs import run

MODULE = """
x = 1
same = locals_of(sys._getframe())
class A:
    y = len(locals_of(sys._getframe()))
"""


class Thing:
    pass


def test_what_is_read_is_not_kept():
    thing = Thing()
    died = weakref.ref(thing)
    assert locals_of(sys._getframe())["thing"] is thing
    del thing
    assert died() is None


def test_what_others_have_asked_for_is_left():
    thing = Thing()
    mine = locals()
    locals_of(sys._getframe())
    assert mine["thing"] is thing


def test_names_of_a_module_and_a_class_are_theirs():
    assert locals_of(sys._getframe(0))
    left = {"sys": sys, "locals_of": locals_of}
    exec(MODULE, left)  # noqa: S102  # our own
    assert left["x"] == 1
    assert left["same"] is left
    assert left["A"].y > 0


@pytest.mark.parametrize("watched", [True, False])
def test_a_watch_keeps_nothing_of_the_users_functions_alive(watched):
    source = """
import weakref
def main():
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total, alive = 0.0, []
    for update in range(40):
        batch = torch.ones(3, 4)
        y = model(batch)
        alive += [weakref.ref(batch), weakref.ref(y)]
        loss = y.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss
    del batch, y, loss, total
    return sum(one() is not None for one in alive)
count = main()
"""
    assert run(source, watched=watched).left["count"] == 0
    assert torch.is_grad_enabled()


def test_names_that_were_made_by_exec_are_left():
    def main():
        exec("made = 5")  # noqa: S102  # our own
        seen = dict(locals_of(sys._getframe()))
        return seen["made"], eval("made")  # noqa: S307  # our own

    assert main() == (5, 5)
