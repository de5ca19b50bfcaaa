import ast

import pytest

from instep.rules.source import Source, end_of, start_of
from instep.trace import Place
from tests.check.programs import SOURCES

TEXT = """\
import torch

@decorated
def train(loader):
    for x, y in loader:
        for é in range(3):
            loss = model(x); loss.backward()
        if é: optimizer.step()
        elif y:
            (loss + 1).backward()  # twice
    else:
        done()
"""
TREE = ast.parse(TEXT)
CALLS = {ast.unparse(n): n for n in ast.walk(TREE) if isinstance(n, ast.Call)}
PLACE = Place("train.py", 7)
SOURCE = Source(TEXT, TREE, {PLACE: CALLS["loss.backward()"]})


def statement(call):
    found = SOURCE.statement(CALLS[call])
    assert found is not None
    return found


def test_the_node_of_a_place():
    assert SOURCE.node(PLACE) is CALLS["loss.backward()"]
    assert SOURCE.call_at(PLACE) is CALLS["loss.backward()"]
    assert SOURCE.statement_at(PLACE) is statement("loss.backward()")
    assert SOURCE.node(None) is None
    assert SOURCE.statement_at(Place("train.py", 8)) is None


def test_a_node_of_another_file_is_none_of_this():
    stranger = ast.parse("helper()").body[0]
    source = Source(TEXT, TREE, {PLACE: stranger})
    assert source.node(PLACE) is None
    assert source.call_at(PLACE) is None


def test_the_call_of_a_statement():
    tree = ast.parse("await opt.step()\nx = 1\n")
    places = [Place("a.py", 1), Place("a.py", 2)]
    source = Source("", tree, dict(zip(places, tree.body, strict=True)))
    assert ast.unparse(source.call_at(places[0])) == "opt.step()"
    assert source.call_at(places[1]) is None


def test_loops_are_those_whose_body_it_is():
    assert [ast.unparse(loop.target) for loop in SOURCE.loops(CALLS["loss.backward()"])] == [
        "é",
        "(x, y)",
    ]
    assert SOURCE.loops(CALLS["done()"]) == []
    assert SOURCE.loops(CALLS["range(3)"])[0].iter.id == "loader"


def test_a_nested_function_is_not_in_the_loop():
    tree = ast.parse("for x in xs:\n    def closure():\n        loss.backward()\n")
    source = Source("", tree, {})
    inner = tree.body[0].body[0].body[0]
    assert source.loops(inner) == []
    assert source.function(inner).name == "closure"
    assert source.function(tree.body[0]) is None


def test_blocks():
    block = SOURCE.block(statement("loss.backward()"))
    assert (block.at, len(block.statements)) == (1, 2)
    assert SOURCE.block(statement("done()")).owner is SOURCE.loops(CALLS["range(3)"])[0]
    assert SOURCE.conditions(CALLS["(loss + 1).backward()"])[0].test.id == "y"
    assert len(SOURCE.conditions(CALLS["(loss + 1).backward()"])) == 2


def test_blocks_of_handlers_and_cases():
    tree = ast.parse(
        "try:\n    a()\nexcept E:\n    b()\nelse:\n    c()\nfinally:\n    d()\n"
        "match x:\n    case 1:\n        e()\n"
    )
    source = Source("", tree, {})
    for name in "abcde":
        call = next(n for n in ast.walk(tree) if isinstance(n, ast.Call) and n.func.id == name)
        assert source.block(source.statement(call)).statements == [source.statement(call)]


def test_the_part_of_an_ancestor():
    loop = SOURCE.loops(CALLS["loss.backward()"])[1]
    assert SOURCE.child_of(loop, CALLS["loss.backward()"]) is loop.body[0]
    assert SOURCE.child_of(loop, loop.body[0]) is loop.body[0]


def test_what_stands_alone():
    assert not SOURCE.stands_alone(statement("loss.backward()"))
    assert not SOURCE.stands_alone(statement("model(x)"))
    assert not SOURCE.stands_alone(statement("optimizer.step()"))
    assert SOURCE.stands_alone(statement("(loss + 1).backward()"))
    continued = "if x: \\\n    step()\n"
    source = Source(continued, ast.parse(continued), {})
    assert not source.stands_alone(source.tree.body[0].body[0])


def test_text_and_indent():
    assert SOURCE.code(CALLS["range(3)"]) == "range(3)"  # after a letter of two bytes
    assert SOURCE.indent(statement("model(x)")) == " " * 12
    function = TREE.body[1]
    assert start_of(function).line == 3
    assert SOURCE.code(function).startswith("@decorated\ndef")
    assert end_of(function).line == 12


def test_brackets():
    assert SOURCE.is_bracketed(CALLS["(loss + 1).backward()"].func.value)
    assert not SOURCE.is_bracketed(CALLS["loss.backward()"].func.value)


@pytest.mark.parametrize("text", SOURCES[::40])
def test_everything_that_has_a_place_has_a_parent(text):
    text = text.removeprefix("\ufeff")  # one has a byte-order mark
    tree = ast.parse(text)
    source = Source(text, tree, {})
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if hasattr(child, "lineno"):
                assert source.parent(child) is node
