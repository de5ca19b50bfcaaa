"""Going through a tree finds what `ast.walk` finds, in its order."""

import ast
from pathlib import Path

import pytest

from instep.trace.trees import parents, walk

_SHARED = ast.expr_context | ast.boolop | ast.operator | ast.unaryop | ast.cmpop
FILES = sorted(Path(ast.__file__).parent.glob("*.py"))[:40]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_finds_what_ast_walk_finds(path):
    tree = ast.parse(path.read_bytes())
    expected = [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context)]
    assert walk(tree) == expected


def test_a_node_that_was_made_by_hand_may_lack_fields():
    node = ast.Return()
    assert walk(node) == [node]


def test_parents_are_those_that_ast_knows():
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    found = parents(tree)
    for above in ast.walk(tree):
        for node in ast.iter_child_nodes(above):
            is_shared = isinstance(node, _SHARED)
            assert (node not in found) if is_shared else (found[node] is above)
