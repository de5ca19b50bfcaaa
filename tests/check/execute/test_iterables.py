import pytest

from instep.check.execute.iterables import length_of, source_of
from instep.check.execute.values import UNEVEN, Unknown
from tests.check.execute.run import SETUP, evaluated, events, executed, value


def source(text, setup=""):
    m, scope = executed(f"{setup}\nv = {text}")
    return source_of(m, scope.module.tree, scope.names["v"], scope)


@pytest.mark.parametrize(
    ("text", "kind", "length"),
    [
        ("range(10)", "range", 10),
        ("range(2, 10, 3)", "range", 3),
        ("range(n)", "range", None),
        ("(1, 2)", "things", 2),
        ("[]", "things", 0),
        ("{'a': 1}", "things", 1),
        ("train_loader", "loader", None),
        ("torch.utils.data.DataLoader(d)", "loader", None),
        ("patches", "unknown", None),
        ("enumerate(train_loader)", "loader", None),
        ("zip(range(5), train_loader)", "loader", None),
        ("zip((1, 2), (3, 4, 5))", "things", 2),
        ("itertools.islice(train_loader, 7)", "loader", 7),
        ("model.parameters()", "params", 1),
    ],
)
def test_what_is_gone_through(text, kind, length):
    found = source(text, SETUP + "import itertools")
    assert (found.kind, found.length) == (kind, length)


def test_elements():
    assert source("range(2, 10, 3)").element(1) == 5
    assert source("enumerate((7, 8), 1)").element(1) == (2, 8)
    assert source("zip((1, 2), (3, 4))").element(1) == (2, 4)
    assert source("train_loader").element(0).drawn.known_as == "train_loader"


def test_a_cycle_has_no_end():
    assert source("cycle(train_loader)", "from itertools import cycle").endless


@pytest.mark.parametrize(
    ("text", "length"),
    [("[1, 2]", 2), ("(1,)", 1), ("'abc'", 3), ("{'a': 1}", 1), ("enumerate([1])", 1)],
)
def test_known_lengths(text, length):
    m, scope = executed(f"v = {text}")
    assert length_of(m, scope.names["v"]) == length


def test_the_length_of_a_loader_is_the_same_everywhere_and_a_number():
    _, scope = executed("a = len(train_loader)\nb = len(train_loader)\nc = len(things)")
    assert scope.names["a"] is scope.names["b"]
    assert scope.names["a"].count == 8
    assert scope.names["c"].count is None


def test_next_draws_one_after_the_other():
    source = (
        SETUP
        + """
batches = iter(train_loader)
for step in range(3):
    x = next(batches)
    model(x).sum().backward()
    optimizer.step()
"""
    )
    found = [event[1:3] for event in events(source, "drawn")]
    assert [index for _, index in found] == [0, 1, 2]


def test_next_of_known_things():
    assert value("it = iter((5, 6))\nv = next(it)") == 5


def test_uneven_pieces_are_remembered():
    setup = """
loader = torch.utils.data.DataLoader(d, batch_size=10)
for x in loader:
    v = x.split(4)
"""
    assert UNEVEN in value(setup).attrs
    assert UNEVEN not in value(setup.replace("split(4)", "split(5)")).attrs


def test_nothing_can_be_said_about_the_length_of_a_number():
    assert isinstance(evaluated("len(3)"), Unknown)
