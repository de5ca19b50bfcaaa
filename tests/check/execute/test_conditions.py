from tests.check.execute.run import SETUP, executed, once, run

GATED = """
for i, (x, y) in enumerate(loader):
    model(x).sum().backward()
    if {condition}:
        optimizer.step()
        optimizer.zero_grad()
"""


def gated(condition):
    return once(SETUP + GATED.format(condition=condition), "step")


def test_a_gate_says_every_how_many():
    assert gated("(i + 1) % 4 == 0") == [("step", "optimizer", 4)]
    assert gated("not (i + 1) % 4") == [("step", "optimizer", 4)]


def test_a_gate_among_others():
    assert gated("(i + 1) % 4 == 0 or i + 1 == len(loader)") == [("step", "optimizer", 4)]
    assert gated("ready and (i + 1) % 4 == 0") == [("step", "optimizer", 4)]


def test_loops_become_as_long_as_the_gate_needs():
    source = SETUP + GATED.format(condition="(i + 1) % 16 == 0")
    assert max(event[2] for event in once(source, "drawn")) >= 32


def test_what_is_known_needs_no_decision():
    m, scope = executed("v = 0\nif flag and False:\n    v = 1")
    assert scope.names["v"] == 0
    assert m.decisions.made == {}


def test_the_unknown_is_taken_to_hold():
    m, scope = executed("v = 0\nif flag:\n    v = 1\nif not flag:\n    v = 2")
    assert scope.names["v"] == 1
    assert len(m.decisions.made) == 1


def test_only_the_last_of_several_conditions_goes_either_way():
    m, _ = executed("if a or b:\n    loss.backward()")
    assert len(m.decisions.worth) == 2
    assert list(m.decisions.made.values()) == [False, True]


def test_a_path_for_each_decision_that_matters():
    source = SETUP + "loss = model(x).sum()\nif flag:\n    loss.backward()\noptimizer.step()"
    paths = run(source).paths
    assert [len(path.forced) for path in paths] == [0, 1]
    assert [sum(e.kind == "backward" for e in path.trace) for path in paths] == [1, 0]
