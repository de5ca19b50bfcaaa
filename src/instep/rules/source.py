"""The user's source beside the findings: the node behind an event, and what stands around it."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeGuard

from instep.rules.layout import Layout, Spot
from instep.trace.pattern import pattern
from instep.trace.trees import parents

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from instep.trace import Place

Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)
_BLOCKS = ("body", "orelse", "finalbody")
_NOTHING_ELSE = pattern(r"\s*;?\s*(#.*)?\Z")


class Block(NamedTuple):
    """The statements that a statement stands among, and where it is among them."""

    owner: ast.AST
    statements: list[ast.stmt]
    at: int


class Source:
    r"""One text, its tree, and the node of every place that events name.

    >>> tree = ast.parse("for x in xs:\n    loss.backward()\n")
    >>> source = Source("for x in xs:\n    loss.backward()\n", tree, {})
    >>> [type(loop).__name__ for loop in source.loops(tree.body[0].body[0])]
    ['For']
    >>> source.code(tree.body[0].iter)
    'xs'
    """

    def __init__(self, text: str, tree: ast.Module, nodes: Mapping[Place, ast.AST]) -> None:
        self.text = text
        self.tree = tree
        self.nodes = nodes
        self.layout = Layout(text, _starts(tree))

    def node(self, place: Place | None) -> ast.AST | None:
        """Return the node that a place stands for; None if it is not one of this text."""
        found = None if place is None else self.nodes.get(place)
        # An event may come from a helper in another file, whose positions mean nothing here.
        return found if found is self.tree or found in self._parents else None

    def statement_at(self, place: Place | None) -> ast.stmt | None:
        """Return the statement that a place stands in."""
        found = self.node(place)
        return None if found is None else self.statement(found)

    def call_at(self, place: Place | None) -> ast.Call | None:
        """Return the call at a place; the one that is the whole of a statement counts, too."""
        found = self.node(place)
        if isinstance(found, ast.Expr):
            found = found.value
        if isinstance(found, ast.Await):
            found = found.value
        return found if isinstance(found, ast.Call) else None

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return the node that a node is a part of."""
        return self._parents.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Go up from a node, which is not given itself, to the module."""
        above = self._parents.get(node)
        while above is not None:
            yield above
            above = self._parents.get(above)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Go up as far as the function or class that a node stands in, which ends it."""
        for above in self.ancestors(node):
            yield above
            if isinstance(above, _SCOPES):
                return

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """Return the innermost statement around a node, or the node."""
        if isinstance(node, ast.stmt):
            return node
        return next((above for above in self.ancestors(node) if isinstance(above, ast.stmt)), None)

    def block(self, statement: ast.stmt) -> Block | None:
        """Return the statements that a statement stands among."""
        owner = self.parent(statement)
        for name in _BLOCKS:
            statements = getattr(owner, name, None)
            if owner is not None and isinstance(statements, list) and statement in statements:
                return Block(owner, statements, statements.index(statement))
        return None

    def scope(self, node: ast.AST) -> ast.AST:
        """Return the function, class or module that a node stands in."""
        return next((above for above in self.ancestors(node) if isinstance(above, _SCOPES)), node)

    def function(self, node: ast.AST) -> Function | None:
        """Return the function that a node stands in."""
        scope = self.scope(node)
        return scope if isinstance(scope, Function) else None

    def loops(self, node: ast.AST) -> list[Loop]:
        """Return the loops of the same function whose bodies a node stands in, innermost first."""
        return [above for above in self.around(node) if is_loop(above) and self._runs(above, node)]

    def conditions(self, node: ast.AST) -> list[ast.If]:
        """Return the `if`s of the same function that a node stands in, innermost first."""
        return [above for above in self.around(node) if isinstance(above, ast.If)]

    def child_of(self, ancestor: ast.AST, node: ast.AST) -> ast.AST:
        """Return the part of an ancestor that a node stands in: the node itself, if it is one."""
        below = node
        for above in self.ancestors(node):
            if above is ancestor:
                return below
            below = above
        return node

    def code(self, node: ast.AST) -> str:
        """Return a node as it is written."""
        return self.layout.between(start_of(node), end_of(node))

    def indent(self, statement: ast.stmt) -> str:
        """Return the indent of the line that a statement begins on."""
        return self.layout.indent(start_of(statement).line)

    def stands_alone(self, statement: ast.stmt) -> bool:
        """Whether a statement shares its lines with comments only: no `a; b`, no `if x: a`."""
        start, end = start_of(statement), end_of(statement)
        line = self.layout.lines[start.line - 1]
        if line[: start.column].strip() or self._is_continued(start.line):
            return False
        rest = self.layout.lines[end.line - 1][end.column :]
        return _NOTHING_ELSE.match(rest.decode("utf-8", "surrogatepass")) is not None

    def _is_continued(self, line: int) -> bool:
        """Whether a statement that begins on a line is joined to the one before: by a backslash, as
        none begins inside of brackets.
        """
        joined = line > 1 and self.layout.lines[line - 2].rstrip(b"\r").endswith(b"\\")
        return joined and line in self.layout.marks(line).continued

    def is_bracketed(self, node: ast.AST) -> bool:
        """Whether a node that no call takes has parentheses of its own around it."""
        start, end = start_of(node), end_of(node)
        before = self.layout.lines[start.line - 1][: start.column].rstrip()
        after = self.layout.lines[end.line - 1][end.column :].lstrip()
        return before.endswith(b"(") and after.startswith(b")")

    def is_elif(self, node: ast.AST) -> bool:
        """Whether an `if` is written as `elif`: nothing can stand before it."""
        if not isinstance(node, ast.If):
            return False
        start = start_of(node)
        return self.layout.lines[start.line - 1][start.column :].startswith(b"elif")

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        return parents(self.tree)

    def _runs(self, loop: Loop, node: ast.AST) -> bool:
        return self.child_of(loop, node) in loop.body


def _starts(tree: ast.Module) -> Iterator[int]:
    """Give the lines that statements of a module begin on, if nothing stands before them there."""
    last = 0
    for statement in tree.body:
        # Of a decorator only what follows the `@` is known, and that may be on another line.
        if statement.lineno > last and not getattr(statement, "decorator_list", None):
            yield statement.lineno
        last = end_of(statement).line


def is_loop(node: object) -> TypeGuard[Loop]:
    """Whether a node is a loop."""
    return isinstance(node, _LOOPS)


def start_of(node: ast.AST) -> Spot:
    """Return where a node begins, with the decorators of a function or class."""
    decorators = getattr(node, "decorator_list", None)
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    return Spot(decorators[0].lineno if decorators else line, column)


def end_of(node: ast.AST) -> Spot:
    """Return where a node ends."""
    return Spot(getattr(node, "end_lineno", 1), getattr(node, "end_col_offset", 0))
