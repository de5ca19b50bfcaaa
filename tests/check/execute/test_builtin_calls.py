import pytest

from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Parameters
from instep.check.execute.values import Iterator, ListValue, Range, Ref, Unknown
from tests.check.execute.run import SETUP, UPDATE, evaluated, events, executed, value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("len([1, 2])", 2),
        ("min(3, 2)", 2),
        ("max(3, 2)", 3),
        ("int(3.7)", 3),
        ("float(2)", 2.0),
        ("bool(3)", True),
        ("bool()", False),
        ("sum((1, 2, 3))", 6),
        ("sum({'a': 4}.values())", 4),
        ("getattr(o, 'n')", 5),
        ("next(iter((7, 8)))", 7),
    ],
)
def test_what_is_computed(text, expected):
    assert evaluated(text, "class O:\n    n = 5\no = O()") == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("range(3)", Range),
        ("range(1, n)", Range),
        ("enumerate(x)", Iterator),
        ("zip(a, b)", Iterator),
        ("iter(x)", Iterator),
        ("list((1, 2))", ListValue),
        ("list()", ListValue),
        ("print", Ref),
        ("sum(x)", Unknown),
        ("max(x, 3)", Unknown),
        ("map(f, x)", Unknown),
        ("len()", Unknown),
        ("getattr(x, name)", Unknown),
    ],
)
def test_what_stands_for_something(text, kind):
    assert isinstance(evaluated(text), kind)


def test_a_list_is_a_new_one():
    _, scope = executed("a = [1]\nb = list(a)\nb.append(2)")
    assert scope.names["a"].items == [1]


def test_an_unknown_number_stays_itself():
    _, scope = executed("a = int(args.steps)\nb = args.steps")
    assert scope.names["a"] is scope.names["b"]


def test_losses_are_summed():
    made = evaluated("sum([model(x).mean(), model(y).mean()])", SETUP)
    assert isinstance(made, Tensor)
    assert made.reduction == "mean"


def test_filtered_parameters_are_parameters():
    made = evaluated("filter(lambda p: p.requires_grad, model.parameters())", SETUP)
    assert isinstance(made, Parameters)


def test_setattr_sets():
    assert value("class A: ...\na = A()\nsetattr(a, 'n', 3)\nv = a.n") == 3


def test_the_same_question_has_the_same_answer():
    _, scope = executed("a = hasattr(x, 'y')\nb = hasattr(x, 'y')\nc = hasattr(x, 'z')")
    assert scope.names["a"].key == scope.names["b"].key != scope.names["c"].key


def test_partial_functions():
    source = """
from functools import partial
def f(a, b, c=0):
    return a, b, c
g = partial(f, 1, c=3)
v = g(2)
"""
    assert value(source) == (1, 2, 3)


def test_progress_bars_are_what_they_show():
    assert value("from tqdm import tqdm, trange\na = (1, 2)\nv = tqdm(a)") == (1, 2)
    assert value("from tqdm import tqdm\nv = tqdm(iterable=(3,))") == (3,)
    assert isinstance(value("from tqdm import trange\nv = trange(3)"), Range)


def test_iterators_without_end():
    source = "from itertools import cycle, islice\nv = {}"
    assert value(source.format("cycle(x)")).infinite
    assert value(source.format("islice(x, 5)")).limit == 5


NUMBERS = SETUP + "loss = model(x).mean()\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("isinstance(loss, float)", False),
        ("isinstance(loss, (int, float))", False),
        ("isinstance(0.5, float)", True),
        ("isinstance(1, float)", False),
        ("isinstance(1, (int, float))", True),
    ],
)
def test_a_tensor_is_no_number(text, expected):
    assert evaluated(text, NUMBERS) is expected


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(loss, dict)",  # what a model returns may be one
        "isinstance(loss, (float, dict))",
        "isinstance(loss, kinds)",
        "isinstance(x, float)",
        "isinstance(True, int)",
        "isinstance(loss)",
    ],
)
def test_what_is_not_known_of_types(text):
    assert not isinstance(evaluated(text, NUMBERS), bool)


def test_types():
    assert evaluated("type(loss)", NUMBERS).path == "torch.Tensor"
    assert evaluated("type(0.5)") is evaluated("float")
    assert evaluated("type(3)") is evaluated("int")
    assert isinstance(evaluated("type(x)"), Unknown)


def test_map_over_parameters_calls_what_it_is_given():
    looped = SETUP + "for x, y in loader:" + UPDATE + "        list(map({}, model.parameters()))\n"
    cleared = events(looped.format("lambda p: p.grad.zero_()"), "zero")
    assert len(cleared) == 2 * len(events(looped.format("print"), "zero"))
