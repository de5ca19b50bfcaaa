import ast

import pytest

from instep.check.rewriting import apply
from instep.rules.counting import count_of, divisions, enumerated, pieces, shift_of
from instep.rules.gates import gate_of
from tests.rules.mends import Text


def gate_in(text):
    shown = Text(text)
    return shown, gate_of(shown.source, shown.statement("optimizer.step()"))


@pytest.mark.parametrize(
    ("header", "start", "length"),
    [
        ("i, x in enumerate(loader)", 0, "len(loader)"),
        ("i, (x, y) in enumerate(self.loader, 1)", 1, "len(self.loader)"),
        ("i, x in enumerate(tqdm(loader, leave=False), start=1)", 1, "len(loader)"),
        ("i, x in tqdm(enumerate(loader), total=3)", 0, "len(loader)"),
        ("i, x in enumerate(zip(a, b))", 0, None),
        ("i in range(steps)", 0, "steps"),
    ],
)
def test_what_loops_count(header, start, length):
    text = f"for {header}:\n    if (i + 1) % n == 0:\n        optimizer.step()\n"
    shown, gate = gate_in(text)
    counted = count_of(shown.source, gate, shown.statement("optimizer.step()"))
    assert (counted.counter, counted.start, counted.length) == ("i", start, length)


@pytest.mark.parametrize("header", ["i, x in pairs", "x in loader", "i, x in enumerate(l, k)"])
def test_loops_that_do_not_count(header):
    text = f"for {header}:\n    if (i + 1) % n == 0:\n        optimizer.step()\n"
    shown, gate = gate_in(text)
    assert count_of(shown.source, gate, shown.statement("optimizer.step()")) is None


@pytest.mark.parametrize(
    ("iterated", "number"),
    [
        ("range(4)", "4"),
        ("range(a + b)", "(a + b)"),
        ("patches", "len(patches)"),
        ("enumerate(patches)", "len(patches)"),
        ("zip(xs, ys)", "len(xs)"),
        ("x.split(8)", None),
        ("range(1, 4)", None),
    ],
)
def test_pieces(iterated, number):
    shown = Text(f"for p in {iterated}:\n    step()\n")
    assert pieces(shown.source, shown.tree.body[0]) == number


def test_shifts():
    def of(code):
        return shift_of(ast.parse(code, mode="eval").body, "i")

    assert [of("i"), of("i + 1"), of("2 + i"), of("i - 1"), of("j")] == [0, 1, 2, None, None]


def test_divisions():
    shown = Text("loss = f(x) / n\nloss /= n\nloss = loss * (1 / n)\nm = a / k\n")
    number = ast.parse("n", mode="eval").body
    assert [node.lineno for node in divisions(shown.tree, number)] == [1, 2, 3]


def test_enumerated():
    shown = Text("for (a, b) in loader:\n    optimizer.step()\n")
    counted, edits = enumerated(shown.source, shown.statement("optimizer.step()"))
    assert counted.length == "len(loader)"
    assert apply(shown.text, edits).startswith("for i, (a, b) in enumerate(loader):")
    shown = Text("while x:\n    optimizer.step()\n")
    assert enumerated(shown.source, shown.statement("optimizer.step()")) is None
