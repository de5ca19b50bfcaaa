"""Names that begin anew every so many iterations of a loop, as its source says it.

Few iterations are executed, so a sum that is set back at every hundredth is never seen to be. What
holds on to losses only until then does not grow for as long as the loop runs.
"""

from __future__ import annotations

import ast

from instep.trace.trees import walk


def renewed(loop: ast.AST) -> frozenset[str]:
    r"""Return what begins anew behind a count in a loop, as the source spells it.

    >>> source = "for i in n:\n  total += loss\n  if i % 50 == 49:\n    total = self.sum = 0"
    >>> sorted(renewed(ast.parse(source).body[0]))
    ['self.sum', 'total']
    """
    gates = (node for node in walk(loop) if isinstance(node, ast.If) and _counts(node.test))
    return frozenset(
        ast.unparse(let_go)
        for gate in gates
        for part in gate.body
        for node in walk(part)
        if isinstance(node, ast.Assign | ast.Expr)
        for let_go in _let_go(node)
    )


def _counts(test: ast.expr) -> bool:
    """Say whether a test holds every so often: it asks for a remainder, or for how many there are.

    >>> [_counts(ast.parse(t, mode="eval").body) for t in ("i % 50 == 0", "len(losses) > 9")]
    [True, True]
    >>> [_counts(ast.parse(t, mode="eval").body) for t in ("i == 0", "total is None", "not losses")]
    [False, False, False]
    """
    return any(
        (isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod))
        or (
            isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "len"
        )
        for part in walk(test)
    )


def _let_go(node: ast.Assign | ast.Expr) -> list[ast.expr]:
    """Return what a statement gives something new to hold, whatever it held before.

    >>> [ast.unparse(t) for t in _let_go(ast.parse("a = self.b = 0").body[0])]
    ['a', 'self.b']
    >>> [ast.unparse(t) for t in _let_go(ast.parse("losses.clear()").body[0])]
    ['losses']
    >>> _let_go(ast.parse("total = total + loss").body[0])
    []
    """
    if isinstance(node, ast.Expr):
        call = node.value
        func = call.func if isinstance(call, ast.Call) else None
        return [func.value] if isinstance(func, ast.Attribute) and func.attr == "clear" else []
    read = {ast.unparse(part) for part in walk(node.value) if isinstance(part, _NAMED)}
    targets = [part for target in node.targets for part in walk(target) if isinstance(part, _NAMED)]
    bound = [target for target in targets if isinstance(target.ctx, ast.Store)]
    return [target for target in bound if ast.unparse(target) not in read]


_NAMED = (ast.Name, ast.Attribute)
