import pytest

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
    assert [path.forced is not None for path in paths] == [False, True]
    assert [sum(e.kind == "backward" for e in path.trace) for path in paths] == [1, 0]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ('kind == "a"', 'kind == "b"'),
        ('kind == "a"', '"b" == kind'),
        ("rank == 0", "rank == -1"),
        ('kind == "a"', 'kind in ("b", "c")'),
        ('kind in ["a"]', 'kind in ["b", "c"]'),
        ('kind == "a"', "not kind"),
        ('kind != "a"', 'kind == "a"'),
    ],
)
def test_two_things_that_exclude_each_other_are_not_both_true(one, two):
    _, scope = executed(f"v = w = 0\nif {one}:\n    v = 1\nif {two}:\n    w = 1")
    assert (scope.names["v"], scope.names["w"]) == (1, 0)


def test_what_is_one_of_two_is_not_ruled_out():
    _, scope = executed('v = 0\nif kind in ("a", "b"):\n    if kind == "b":\n        v = 1')
    assert scope.names["v"] == 1


def test_every_side_of_a_choice_has_its_path():
    source = (
        SETUP
        + "loss = model(x).sum()\n"
        + "".join(
            f"if kind == '{kind}':\n    loss.backward()\n    optimizer.{does}()\n"
            for kind, does in [("a", "step"), ("b", "zero_grad")]
        )
    )
    paths = [{e.kind for e in path.trace} & {"step", "zero"} for path in run(source).paths]
    assert paths == [{"step"}, {"zero"}, {"zero"}]
