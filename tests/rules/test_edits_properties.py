"""Edits of texts that nobody would write: what is left must be the tree with that one change."""

import ast

from hypothesis import given
from hypothesis import strategies as st

from instep.check.rewriting import apply
from instep.rules import edits
from instep.rules.source import Source

SIMPLE = [
    "f({n})",
    "é = g({n})  # é",
    "f(\n{i}  {n},\n{i})",
    "s = '''{n}\n  b\n''' # c",
    "f({n}); g({n}, 1)",
    "f({n}); g({n}, 1);  # end",
    "if x{n}: f({n})",
    "if x{n}: f({n}); g({n}, 1)  # both",
    "x{n} = 1 + \\\n{i}    2",
    "for y in ys: f({n})",
]
OPENERS = ["if x:", "for y in ys:  # all", "with z as w:", "while q():", "if x():", "try:"]


@st.composite
def blocks(draw, indent="", depth=0, counter=None):
    counter = counter if counter is not None else iter(range(1000))
    step = draw(st.sampled_from(["    ", "\t", "  "]))
    written = []
    for _ in range(draw(st.integers(1, 3))):
        notes = st.sampled_from(["", "", f"{indent}# note", f"{indent}# %%"])
        written += draw(st.lists(notes, max_size=2))
        if depth < 2 and draw(st.booleans()):
            opener = draw(st.sampled_from(OPENERS))
            written.append(indent + opener)
            written.append(draw(blocks(indent + step, depth + 1, counter)))
            if draw(st.booleans()):
                written.append(f"{indent}{step}# the end")
            if opener == "try:":
                written += [f"{indent}except E:", draw(blocks(indent + step, depth + 1, counter))]
            elif opener.startswith("if") and draw(st.booleans()):
                word = draw(st.sampled_from(["else:", "elif v:"]))
                written += [indent + word, draw(blocks(indent + step, depth + 1, counter))]
        else:
            code = draw(st.sampled_from(SIMPLE)).format(n=next(counter), i=indent)
            written.append(indent + code)
    return "\n".join(written)


@st.composite
def texts(draw):
    return draw(blocks()) + draw(st.sampled_from(["", "\n", "\n\n"]))


def statements(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def dump(tree):
    return ast.dump(tree)


@given(texts(), st.data(), st.booleans())
def test_insert(text, data, after):
    tree, expected = ast.parse(text), ast.parse(text)
    at = data.draw(st.integers(0, len(statements(tree)) - 1))
    source = Source(text, tree, {})
    made = edits.insert(source, statements(tree)[at], "new()", after=after)
    target = statements(expected)[at]
    if made is None:
        shared = not source.stands_alone(statements(tree)[at])
        assert shared or source.is_elif(statements(tree)[at])
        return
    block = Source(text, expected, {}).block(target)
    block.statements.insert(block.at + after, ast.parse("new()").body[0])
    assert dump(ast.parse(apply(text, made))) == dump(expected)


@given(texts(), st.data())
def test_delete(text, data):
    tree, expected = ast.parse(text), ast.parse(text)
    at = data.draw(st.integers(0, len(statements(tree)) - 1))
    made = edits.delete(Source(text, tree, {}), statements(tree)[at])
    if made is None:
        return
    new = ast.parse(apply(text, made))
    block = Source(text, expected, {}).block(statements(expected)[at])
    gone = block.statements.pop(block.at)
    if block.statements:
        assert dump(new) == dump(expected)
    else:  # the block went, too, or has a `pass` now
        left = {ast.dump(node) for node in statements(new)}
        assert len(statements(new)) <= len(statements(tree))
        assert not any(ast.dump(n) in left for n in statements(gone) if isinstance(n, ast.Expr))


@given(texts(), st.data(), st.booleans())
def test_move(text, data, after):
    tree = ast.parse(text)
    source = Source(text, tree, {})
    alone = [s for s in statements(tree) if isinstance(s, ast.Expr | ast.Assign)]
    moved, at = data.draw(st.sampled_from(alone)), data.draw(st.sampled_from(alone))
    if moved is at:
        return
    made = edits.move(source, [moved], at, after=after)
    if made is None:
        return
    new = ast.parse(apply(text, made))
    simple = (ast.Expr, ast.Assign)
    before = sorted(ast.dump(s) for s in statements(tree) if isinstance(s, simple))
    assert sorted(ast.dump(s) for s in statements(new) if isinstance(s, simple)) == before
    shown = Source("", new, {})
    [placed] = [s for s in statements(new) if ast.dump(s) == ast.dump(moved)]
    block = shown.block(placed)
    neighbour = block.statements[block.at - 1 if after else block.at + 1]
    assert ast.dump(neighbour) == ast.dump(at)
