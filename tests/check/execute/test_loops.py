import pytest

from tests.check.execute.run import SETUP, events, once, value

BODY = """
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""


def drawn(header, body=BODY):
    return [event[1:] for event in events(SETUP + header + body, "drawn")]


def ends(source):
    return [event[1:] for event in events(SETUP + source, "epoch_end")]


def test_two_epochs_of_a_few_batches():
    source = "for epoch in range(100):\n    for x in loader:" + BODY
    assert ends(source) == [("loader", 3, None)] * 2


def test_a_known_length_is_kept_where_a_gate_hangs_on_it():
    source = """
for i in range(10):
    x = next(batches)
    model(x).sum().backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
"""
    indices = [event[2] for event in events(SETUP + source, "drawn") if event[1] != "next()"]
    assert max(indices) == 9


def test_an_unknown_length_does_not_end_with_a_window():
    source = """
for i, x in enumerate(loader):
    model(x).sum().backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
"""
    ((_, batches, _),) = ends(source)
    assert batches % 4 > 1


def test_pieces_of_a_batch_belong_to_their_loader():
    source = """
for x in loader:
    optimizer.zero_grad()
    for piece in x.split(8):
        model(piece).sum().backward()
    optimizer.step()
"""
    found = once(SETUP + source, "drawn")
    assert ("drawn", "piece", 1, "loader") in found
    assert ("drawn", "loader", 1, None) in found
    assert ("epoch_end", "piece", 3, "loader") in once(SETUP + source, "epoch_end")


def test_a_break_ends_no_epoch():
    assert ends("for x in loader:\n    if 1:" + BODY + "    break") == []


def test_else_runs_if_nothing_broke():
    assert value("for i in (1, 2):\n    pass\nelse:\n    v = 3") == 3
    assert value("v = 0\nfor i in (1, 2):\n    break\nelse:\n    v = 3") == 0


def test_known_things_are_gone_through_one_by_one():
    source = """
head = torch.nn.Linear(2, 2)
other = torch.optim.Adam(head.parameters())
for o in (optimizer, other):
    o.zero_grad()
"""
    assert once(SETUP + source) == [("zero", ("optimizer",), True), ("zero", ("other",), True)]


def test_a_loop_over_parameters_is_one_event():
    source = "for p in model.parameters():\n    p.grad.zero_()\noptimizer.step()"
    assert events(SETUP + source, "zero") == [("zero", ("optimizer",), True)]


def test_a_loop_without_events_runs_once():
    assert value("v = 0\nfor x in loader:\n    v = v + 1") == 1
    assert value("v = 0\nfor x in []:\n    v = 1") == 0


@pytest.mark.parametrize("test", ["True", "step < 1000", "not done"])
def test_a_while_is_cut_off_without_an_end(test):
    source = (
        SETUP
        + f"step = 0\nwhile {test}:\n    x = next(batches)\n    if 1:"
        + BODY
        + "    step += 1"
    )
    assert len(events(source, "step")) == 3
    assert events(source, "epoch_end") == []


def test_a_while_that_does_not_hold_runs_its_else():
    assert value("v = 0\nwhile False:\n    v = 1\nelse:\n    v = 2") == 2


def test_a_while_around_a_loader_counts_epochs():
    source = SETUP + "while training:\n    for x in loader:" + BODY
    assert len(events(source, "epoch_end")) == 2


def test_a_return_leaves_both_loops():
    source = """
def f():
    for a in (1, 2):
        for b in (3, 4):
            return (a, b)
v = f()
"""
    assert value(source) == (1, 3)
