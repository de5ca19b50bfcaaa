import pytest

from instep.check.execute.arguments import Call
from instep.check.execute.decisions import Undecided
from instep.check.execute.lengths import Lengths
from instep.check.execute.machine import ExhaustedError, Machine, truth
from instep.check.execute.program import Project
from instep.check.execute.things import Optimizer
from instep.check.execute.values import DictValue, Gate, ListValue, Ref, Unknown
from tests.check.execute.run import executed, module_of


def test_an_undefined_name_is_unknown_but_always_the_same():
    m, scope = executed("")
    found = m.lookup("steps", scope)
    assert isinstance(found, Unknown)
    assert m.lookup("steps", scope) is found


def test_inner_names_hide_outer_ones_and_builtins():
    _, scope = executed("len = 3\nv = len")
    assert scope.names["v"] == 3


def test_a_snippet_means_torch_without_importing_it():
    m, scope = executed("x = nn.Linear(2, 2)")
    assert isinstance(m.lookup("nn", scope), Ref)
    m, scope = executed("optim.step()")
    assert isinstance(m.lookup("optim", scope), Unknown)


def test_the_budget_of_a_path():
    module = module_of("x = 1\n" * 10)
    m = Machine(Project(), Lengths(), budget=5)
    with pytest.raises(ExhaustedError):
        m.run(module.tree.body, m.scope_of(module))


def test_without_gradients_tensors_have_no_graph():
    m, _ = executed("")
    assert m.tensor(None, None).graph
    m.no_grad = 1
    made = m.tensor(None, None)
    assert (made.graph, made.nets) == (False, frozenset())


def test_an_unknown_value_is_that_of_its_place():
    m, scope = executed("a = f()\nb = g()")
    one, other = (statement.value for statement in scope.module.tree.body)
    assert m.unknown(one, scope).key == m.unknown(one, scope).key
    assert m.unknown(one, scope).key != m.unknown(other, scope).key


def test_problems_are_told_once_with_their_first_place():
    m, scope = executed("x = 1\ny = 2")
    first, second = scope.module.tree.body
    m.problem("why", Call(first, scope))
    m.problem("why", Call(second, scope))
    assert m.problems == {"why": (first, scope.module)}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, False),
        ("text", True),
        (None, False),
        (Gate(4, written="literal", holds=False), False),
        (ListValue([]), False),
        (ListValue([1], exact=False), True),
        (DictValue({}), False),
        (Optimizer("sgd"), True),
    ],
)
def test_what_is_known_to_be_true(value, expected):
    assert truth(value) is expected


@pytest.mark.parametrize(
    "value", [Unknown("flag"), ListValue([], exact=False), DictValue({}, exact=False)]
)
def test_what_hangs_on_a_decision(value):
    assert isinstance(truth(value), Undecided)


def test_a_gate_asked_for_is_taken_once():
    m, _ = executed("")
    m.ask(matters=True, counting=True)
    m.seen_gate = (4, True)
    assert m.answer() == (4, True)
    assert m.answer() is None
    assert not m.counting
