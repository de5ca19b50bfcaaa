"""Losses that are made whole again: divided for their backward, multiplied by the same for a log.

`running += loss.item() * n` is right as long as the loss is divided by `n`. A mend that divides it
by something else has to multiply by that, or to say where somebody has to look.
"""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from instep.rules.counting import divisions
from instep.rules.source import end_of, start_of
from instep.rules.spelling import called, receiver, same
from instep.trace.plain import dataclass
from instep.trace.trees import walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from instep.rules.layout import Spot
    from instep.rules.source import Loop, Source

_ROUNDS = 4  # assignments between a division and what is shown
_CASTS = {"float", "int", "max", "min", "len", "round", "ceil", "floor"}
_SHOWS = {"print", "format"}
_SCALES = (ast.Mult, ast.Div, ast.FloorDiv)
_LONGEST = 60

_Stored: TypeAlias = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr


@dataclass(frozen=True, slots=True)
class Restored:
    """Where divided losses of a loop are multiplied by what they were divided by."""

    factors: tuple[ast.expr, ...]
    """In the same round: what is divided by has to stand here as well."""
    unsure: str | None
    """Code that reckons with the divisor elsewhere, or under another name."""


def restored(
    source: Source, loop: Loop, number: ast.expr, divisors: Sequence[ast.expr]
) -> Restored:
    """Find what a loop, and what follows it, makes of losses that it divides by a number."""
    reader = _Reader(source, loop, number, divisors)
    factors, unsure = list[ast.expr](), list[ast.AST]()
    for node in reader.numbers():
        whole = reader.whole_of(node)
        if reader.is_factor_of_this_round(node, whole):
            factors.append(node)
        elif reader.is_felt(node, whole):
            unsure.append(reader.call_around(node) or whole)
    shown = next(iter(sorted(unsure, key=start_of)), None)
    code = None if shown is None else " ".join(source.code(shown).split())
    if code is not None and len(code) > _LONGEST:
        code = f"{code[:_LONGEST]}..."
    return Restored(tuple(factors), code)


class _Reader:
    """The names that a divided loss goes through, and what is made of them with the number."""

    def __init__(
        self, source: Source, loop: Loop, number: ast.expr, divisors: Sequence[ast.expr]
    ) -> None:
        self.source, self.loop, self.number = source, loop, number
        self.divisors = set(divisors)
        self.scope = source.scope(loop)
        self.start = min(map(start_of, divisors))

    def numbers(self) -> Iterator[ast.expr]:
        """Give the other places where the number, or what goes by its name, stands."""
        for node in walk(self.source.tree):
            if isinstance(node, ast.expr) and node not in self.divisors and self._is_number(node):
                parent = self.source.parent(node)
                if not (isinstance(parent, ast.Attribute) and self._is_number(parent)):
                    yield node

    def whole_of(self, node: ast.expr) -> ast.AST:
        """Return the product or quotient that a number is a part of."""
        whole: ast.AST = node
        for above in self.source.ancestors(node):
            match above:
                case ast.BinOp(op=op) if isinstance(op, _SCALES):
                    pass
                case ast.AugAssign(op=op, value=value) if isinstance(op, _SCALES):
                    return above if value is whole else whole
                case ast.Call() if called(above) in _CASTS and above.func is not whole:
                    pass
                case _:
                    return whole
            whole = above
        return whole

    def is_factor_of_this_round(self, node: ast.expr, whole: ast.AST) -> bool:
        """Say whether the loss of the same round is multiplied by exactly the number here."""
        if not same(node, self.number) or self.source.scope(node) is not self.scope:
            return False
        if self.loop not in self.source.loops(node) or start_of(node) < self.start:
            return False
        if not self._is_where_it_says(node):
            return False
        at, beside = self.source.statement(node), list[ast.AST]()
        below: ast.AST = node
        for above in self.source.ancestors(node):
            match above:
                case ast.BinOp(op=ast.Mult(), left=left, right=right):
                    beside.append(right if left is below else left)
                case ast.BinOp(op=ast.Div() | ast.FloorDiv(), left=left) if left is below:
                    pass
                case ast.AugAssign(op=ast.Mult(), target=target) if above is whole:
                    beside.append(target)
                case _ if below is whole:
                    break
                case _:
                    return False  # a divisor, or inside of a call
            below = above
        found = [name for part in beside for name in self._used(part, self._carrying)]
        return at is not None and bool(found) and all(self._is_fresh(name, at) for name in found)

    def _is_where_it_says(self, node: ast.expr) -> bool:
        """Say whether an edit can be made: before 3.12, the parts of some f-strings have the places
        of something else.
        """
        is_inside = any(isinstance(above, ast.JoinedStr) for above in self.source.ancestors(node))
        return not is_inside or self.source.code(node) == ast.unparse(node)

    def is_felt(self, node: ast.expr, whole: ast.AST) -> bool:
        """Say whether a number stands in something that is made of a divided loss."""
        if self.source.scope(node) is self.scope:
            return self._is_felt_here(node, whole)
        if self._multiplies(node, whole) and not self._divides_itself(node):
            parts = [self.source.code(part) for part in walk(whole) if _is_name(part)]
            last = {code.rpartition(".")[2] for code in parts}
            known = {code.rpartition(".")[2] for code in self._carrying}
            return any("loss" in part.lower() for part in last) or bool(last & known)
        return False

    def _is_felt_here(self, node: ast.expr, whole: ast.AST) -> bool:
        at = self.source.statement(node)
        names = self._used(whole, self._carrying) if whole is not node else []
        call = self.call_around(node)
        if not names and call is not None:  # `meter.update(loss.item(), n)`
            parts = [*call.args, *(word.value for word in call.keywords)]
            names = [name for part in parts for name in self._used(part, self._carrying)]
        return at is not None and any(not self._is_anew(name, at) for name in names)

    def call_around(self, node: ast.expr) -> ast.Call | None:
        """Return the call that is given a number as it is."""
        parent = self.source.parent(node)
        if isinstance(parent, ast.keyword):
            parent = self.source.parent(parent)
        if not isinstance(parent, ast.Call) or parent.func is node:
            return None
        return None if called(parent) in _SHOWS | _CASTS else parent

    def _multiplies(self, node: ast.expr, whole: ast.AST) -> bool:
        above = self.source.parent(node)
        return whole is not node and isinstance(getattr(above, "op", None), ast.Mult)

    def _divides_itself(self, node: ast.expr) -> bool:
        """Say whether a function divides losses of its own by the number."""
        scope = self.source.scope(node)
        return any(set(divisions(scope, n)) - self.divisors for n in (node, self.number))

    @cached_property
    def _aliases(self) -> set[str]:
        """What goes by another name: `n` of `n = args.accum`, and `accum` of the same."""
        found = {_last(self.number)}
        if isinstance(self.number, ast.Constant):
            return set()  # what else is 4 is something else
        for node in walk(self.source.tree):
            if isinstance(node, ast.Assign):
                ends = {_last(node.value), *map(_last, node.targets)} - {""}
                if self._is_same(node.value) or any(map(self._is_same, node.targets)):
                    found |= ends
        return found - {""}

    def _is_number(self, node: ast.expr) -> bool:
        if isinstance(getattr(node, "ctx", None), ast.Store):
            return False
        return self._is_same(node) or _last(node) in self._aliases

    def _is_same(self, node: ast.expr) -> bool:
        # Most nodes of a file are something else, and to compare takes long.
        is_like = type(node) is type(self.number) and _last(node) == _last(self.number)
        return is_like and same(node, self.number)

    @cached_property
    def _carrying(self) -> frozenset[str]:
        """The names, as they are written, of what a divided loss goes into."""
        found: set[str] = set()
        for divisor in self.divisors:
            above = self.source.statement(divisor)
            if isinstance(above, ast.Assign | ast.AugAssign | ast.AnnAssign):
                found |= set(self._targets(above))
        for _ in range(_ROUNDS):
            before = len(found)
            for node in walk(self.scope):
                found |= self._reached(node, frozenset(found))
            if len(found) == before:
                break
        return frozenset(found | self._returned(found))

    def _reached(self, node: ast.AST, carrying: frozenset[str]) -> set[str]:
        if not isinstance(node, ast.expr | ast.stmt) or start_of(node) < self.start:
            return set()
        match node:
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.NamedExpr():
                value = node.value
                if value is None or any(self._is_number(part) for part in _parts(value)):
                    return set()
                return self._targets(node) if self._used(value, carrying) else set()
            case ast.Expr(value=ast.Call() as call):
                on = receiver(call)
                parts = [*call.args, *(word.value for word in call.keywords)]
                if on is not None and _is_name(on) and called(call) != "backward":
                    whole = any(self._is_number(each) for part in parts for each in _parts(part))
                    used = any(self._used(part, carrying) for part in parts)
                    return {self.source.code(on)} if used and not whole else set()
        return set()

    def _returned(self, carrying: set[str]) -> set[str]:
        """Return what the callers of the loop's function call what it gives them."""
        name = getattr(self.scope, "name", None)
        gives = [node.value for node in walk(self.scope) if isinstance(node, ast.Return)]
        if name is None or not any(g and self._used(g, frozenset(carrying)) for g in gives):
            return set()
        found: set[str] = set()
        for node in walk(self.source.tree):
            if isinstance(node, ast.Assign):
                calls = (part for part in walk(node.value) if isinstance(part, ast.Call))
                if any(called(call) == name for call in calls):
                    found |= self._targets(node)
        return found

    def _targets(self, node: _Stored) -> set[str]:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        flat = [each for target in targets for each in getattr(target, "elts", [target])]
        named = (each.value if isinstance(each, ast.Subscript) else each for each in flat)
        return {self.source.code(each) for each in named if _is_name(each)}

    def _used(self, node: ast.AST, names: Iterable[str]) -> list[str]:
        codes = (self.source.code(part) for part in walk(node) if _is_name(part))
        return [code for code in dict.fromkeys(codes) if code in names]

    def _is_fresh(self, name: str, at: ast.stmt) -> bool:
        """Say whether a name holds what this round has given it, and not a sum over rounds."""
        stores = [store for store in self._stores(name) if store is not at]
        inside = [store for store in stores if self.loop in self.source.loops(store)]
        if any(self._adds_up(name, store) for store in self._stores(name)):
            return False
        later = [s for s in inside if self.start < end_of(s) and start_of(s) < start_of(at)]
        is_kept = all(
            self.divisors & set(walk(store)) or self._used(store, self._carrying - {name})
            for store in later
        )
        return is_kept and bool(later) and any(self._is_before(store, at) for store in inside)

    def _adds_up(self, name: str, store: ast.stmt) -> bool:
        match store:
            case ast.AugAssign(op=ast.Div() | ast.Mult()):
                return False
            case ast.AugAssign(target=ast.Subscript()):
                return True
            case ast.AugAssign():
                # `loss += penalty` is a part of this round's loss if that was made in it.
                return not any(
                    isinstance(other, ast.Assign)
                    and self.loop in self.source.loops(other)
                    and start_of(other) < start_of(store)
                    for other in self._stores(name)
                )
        return False

    def _is_anew(self, name: str, at: ast.stmt) -> bool:
        """Say whether a name was given something else before, outside of the loop's round."""
        is_inside = self.loop in self.source.loops(at)
        if is_inside and self.start < start_of(at):
            return False
        bounds = self._begin if is_inside else end_of(self.loop)
        is_after = start_of(at) > end_of(self.loop)
        return any(
            isinstance(store, ast.Assign)
            and self._is_before(store, at)
            and (not is_after or start_of(store) > bounds)
            and (not is_inside or start_of(store) >= bounds)
            for store in self._stores(name)
        )

    @cached_property
    def _begin(self) -> Spot:
        return start_of(self.loop.body[0])

    def _stores(self, name: str) -> list[ast.stmt]:
        return [
            node
            for node in walk(self.scope)
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
            and name in self._targets(node)
        ]

    def _is_before(self, store: ast.stmt, at: ast.stmt) -> bool:
        """Say whether a statement has run whenever another one is reached."""
        if start_of(store) >= start_of(at):
            return False
        above: set[ast.AST] = {at, *self.source.ancestors(at)}
        block = self.source.block(store)
        while block is not None:
            if not above.isdisjoint(block.statements):
                return True
            if not isinstance(block.owner, ast.With | ast.AsyncWith):
                return False
            block = self.source.block(block.owner)
        return False


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    return (part for part in walk(node) if isinstance(part, ast.expr))


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def _last(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return ""
