"""What one look at a module tells before anything is executed: where events can happen, and how
each name is used.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from typing import NamedTuple

from instep.check.execute.lengths import MOST_EVERY
from instep.trace.trees import walk

EVENTS = frozenset(
    {
        "backward", "manual_backward", "zero_grad", "step", "optimizer_step", "grad", "unscale_",
        "clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_gradients", "no_sync",
        "accumulate", "scale_loss", "GradScaler", "no_backward_sync", "add_param_group", "<each>",
    }
)  # fmt: skip
"""Names whose call or use can be an event, or decides about one."""

_WHEN = ("after_", "before_", "on_", "post_", "pre_")

Definition = ast.FunctionDef | ast.AsyncFunctionDef

_LEAVES = frozenset({ast.Name, ast.Constant, ast.Pass, ast.Break, ast.Continue, ast.alias, ast.arg})
_DEFINITIONS = frozenset({ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda})
_YIELDS = (ast.Yield, ast.YieldFrom)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_GIVES = (ast.keyword, ast.Dict, ast.Assign, ast.AnnAssign)
_SEEN = frozenset({ast.Call, ast.Attribute, ast.Import, ast.ImportFrom, *_GIVES, *_LOOPS, *_YIELDS})
_PLAIN = frozenset(
    {"arg", "asname", "attr", "conversion", "ctx", "id", "is_async", "kind", "level", "module",
     "name", "op", "ops", "simple", "type_comment", "type_ignores", "type_params"}
)  # fmt: skip
"""Fields in which there is no call."""
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}
# Callers find a function by its name; names as common as these would heat everything.
_TOO_COMMON = frozenset({"__init__", "forward", "__call__", "main", "get", "__len__"})


class Span(NamedTuple):
    """The body of a function: its first and last line and column."""

    start: tuple[int, int]
    end: tuple[int, int]
    name: str
    """Qualified, as Python says it: "Trainer.fit.<locals>.closure"."""


class Scan:
    """The result: `uses` of every name, the functions, and which statements matter."""

    def __init__(self, tree: ast.Module) -> None:
        self.uses: dict[str, set[str]] = {}
        self.definitions: list[tuple[Definition, ast.ClassDef | None]] = []
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.hot_names: set[str] = set(EVENTS)
        self.defaults: dict[str, int] = {}  # numbers that options of the command line have
        self.generators: set[ast.AST] = set()
        self.looping: set[ast.AST] = set()
        """Functions with a loop inside."""
        self.spans: list[Span] = []
        self.undropped = False
        """A rate of dropout is set to 0: by an argument, an attribute or an entry."""
        self._hot: dict[ast.AST, bool] = {}
        self._blocks: dict[ast.AST, bool] = {}  # by their first statement
        # The names that a statement calls, as a part of one list per function.
        self._called: dict[ast.AST, tuple[list[str], int, int]] = {}
        self._names: list[str] = []
        self._prefix = ""
        self._visit(tree, None, None)
        # A default or a decorator is looked at inside of its function, and stands before its body.
        self.spans.sort(key=lambda span: span.start)
        self._starts = [span.start for span in self.spans]
        self.imports.sort(key=lambda node: node.col_offset > 0)  # those of the module come first
        self.defined = {code.name for code, _ in self.definitions}
        self._spread()

    def names(self, node: ast.AST) -> list[str]:
        """Return the names that a statement calls; a definition: what its body calls."""
        found = self._called.get(node)
        if found is None:
            return _called(node)
        names, first, end = found
        return names[first:end]

    def hot(self, node: ast.AST) -> bool:
        """Say whether executing a statement can cause an event."""
        found = self._hot.get(node)
        if found is None:
            found = self._hot[node] = not self.hot_names.isdisjoint(self.names(node))
        return found

    def any_hot(self, block: list[ast.stmt]) -> bool:
        """Say whether one of the statements of a block can cause an event."""
        if not block:
            return False
        found = self._blocks.get(block[0])
        if found is None:
            found = self._blocks[block[0]] = any(self.hot(node) for node in block)
        return found

    def learn(self, names: set[str]) -> None:
        """Take note of names of other modules in which events happen."""
        if not names <= self.hot_names:
            self.hot_names |= names
            self._hot.clear()
            self._blocks.clear()
            self._spread()

    def parameter(self, name: str) -> int:
        """Return the number that a parameter of this name has if nobody gives it, in the first
        function that says one; 0 if none does.

        >>> Scan(ast.parse("def train(data, update_steps=1): pass")).parameter("update_steps")
        1
        """
        for code, _ in self.definitions:
            spec = code.args
            named = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
            given = dict(zip(reversed(named), reversed(spec.defaults), strict=False))
            more = zip((arg.arg for arg in spec.kwonlyargs), spec.kw_defaults, strict=True)
            default = {**given, **dict(more)}.get(name)
            number = default.value if isinstance(default, ast.Constant) else None
            if type(number) is int and 1 <= number <= MOST_EVERY:
                return number
        return 0

    def function_at(self, line: int, column: int) -> str:
        """Return the qualified name of the innermost function around a position.

        >>> Scan(ast.parse("def f(): g()")).function_at(1, 9)
        'f'
        """
        at = line, column
        # The last one that begins before it and ends behind it is the innermost.
        for index in range(bisect_right(self._starts, at) - 1, -1, -1):
            span = self.spans[index]
            if at < span.end:
                return span.name
        return "<module>"

    def _spread(self) -> None:
        """Find the functions that call one in which events happen: they are one themselves."""
        waiting = {code.name: self.names(code) for code, _ in self.definitions}
        changed = True
        while changed:
            changed = False
            for name, names in list(waiting.items()):
                if not self.hot_names.isdisjoint(names):
                    if name not in _TOO_COMMON:
                        self.hot_names.add(name)
                    del waiting[name]
                    changed = True
        for code, owner in self.definitions:
            is_maker = owner is not None and code.name in {"__init__", "__call__"}
            if owner is not None and is_maker and not EVENTS.isdisjoint(self.names(code)):
                self.hot_names.add(owner.name)

    def _visit(self, node: ast.AST, owner: ast.ClassDef | None, code: ast.AST | None) -> None:
        kind = type(node)
        first = len(self._names)
        if kind in _SEEN:
            self._see(node, code)
        fields = _FIELDS.get(kind)
        if fields is None:
            fields = _FIELDS[kind] = tuple(f for f in node._fields if f not in _PLAIN)
        for field in fields:
            value = getattr(node, field)
            if value is None:
                continue
            for child in value if type(value) is list else (value,):
                inner = type(child)
                if inner in _DEFINITIONS:
                    self._define(child, owner, code)
                elif inner not in _LEAVES and isinstance(child, ast.AST):
                    self._visit(child, owner, code)
        if isinstance(node, ast.stmt):
            self._called[node] = (self._names, first, len(self._names))

    def _define(self, node: ast.AST, owner: ast.ClassDef | None, code: ast.AST | None) -> None:
        """Look into a class, function or lambda."""
        prefix = self._prefix
        if isinstance(node, ast.ClassDef):
            self._prefix = f"{prefix}{node.name}."
            self._visit(node, node, code)
        elif isinstance(node, ast.Lambda):
            self._enter(node, node.body, "<lambda>")
            self._visit(node, owner, code)
        elif isinstance(node, Definition):
            self._enter(node, node.body[0], node.name)
            self.definitions.append((node, owner))
            # Defining a function causes nothing, so its names are no names of what is around it.
            names, self._names = self._names, []
            self._visit(node, None, node)
            self._names = names
            if node in self.looping and code is not None:
                self.looping.add(code)
        self._prefix = prefix

    def _enter(self, node: ast.expr | ast.stmt, body: ast.expr | ast.stmt, name: str) -> None:
        name = f"{self._prefix}{name}"
        end = (node.end_lineno or 0, node.end_col_offset or 0)
        self.spans.append(Span((body.lineno, body.col_offset), end, name))
        self._prefix = f"{name}.<locals>."

    def _see(self, node: ast.AST, code: ast.AST | None) -> None:
        if isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, ast.Attribute):
            if node.attr == "grad":
                self._names.append("grad")
        elif isinstance(node, _GIVES):
            self._given(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self.imports.append(node)
        elif code is not None:
            if isinstance(node, ast.For) and calls_each(node):
                self._names.append("<each>")
            (self.generators if isinstance(node, _YIELDS) else self.looping).add(code)

    def _call(self, node: ast.Call) -> None:
        func = node.func
        if len(node.args) == 1:
            self._set(func, node.args[0])
        if isinstance(func, ast.Attribute):
            if func.attr == "add_argument":
                self._take_default(node)
            self._names.append(func.attr)
            receiver = func.value
            if isinstance(receiver, ast.Call):
                receiver = receiver.func
            if isinstance(receiver, ast.Name):
                self._use(receiver.id, func.attr)
            elif isinstance(receiver, ast.Attribute):
                self._use(receiver.attr, func.attr)
        elif isinstance(func, ast.Name):
            self._names.append(func.id)
            self._use(func.id, "()")

    def _take_default(self, node: ast.Call) -> None:
        """Take note of the number that an option of argparse has if nobody gives it."""
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        default, flag = named.get("default"), node.args[-1] if node.args else None
        if isinstance(default, ast.Constant) and isinstance(flag, ast.Constant):
            name = str(flag.value).lstrip("-").replace("-", "_")
            number = default.value if type(default.value) is int else 0
            if 1 <= number <= MOST_EVERY:
                self.defaults[name] = number

    def _use(self, name: str, how: str) -> None:
        known = self.uses.get(name)
        if known is None:
            known = self.uses[name] = set()
        known.add(how)

    def _given(self, node: ast.AST) -> None:
        """Look at what is given to a name: `x.dropout = 0`, `Dropout(0)`, `{"dropout": 0}`."""
        if isinstance(node, ast.keyword):
            if type(node.value) is ast.Constant and _is_nothing(node.value):
                self.undropped = self.undropped or "drop" in (node.arg or "").lower()
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if type(value) is ast.Constant and type(key) is ast.Constant and _is_nothing(value):
                    self.undropped = self.undropped or "drop" in str(key.value).lower()
        elif isinstance(node, ast.AnnAssign):
            self._set(node.target, node.value)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._set(node.targets[0], node.value)

    def _set(self, target: ast.expr, value: ast.expr | None) -> None:
        if type(value) is ast.Constant and _is_nothing(value):
            name = getattr(target, "attr", None) or getattr(target, "id", "")
            self.undropped = self.undropped or "drop" in str(name).lower()


def is_hook(name: str) -> bool:
    """Say whether a method is called like one that others are to fill in.

    >>> is_hook("_before_step"), is_hook("on_batch_end"), is_hook("run_hooks"), is_hook("forward")
    (True, True, True, False)
    """
    return name.lstrip("_").startswith(_WHEN) or "hook" in name or "callback" in name


def calls_each(node: ast.For) -> bool:
    """Say whether a loop does nothing but call what it goes through, as one over callbacks does.

    >>> calls_each(ast.parse("for f in self.hooks: f(self)").body[0])
    True
    """
    name = node.target.id if isinstance(node.target, ast.Name) else None
    first = node.body[0]
    if name is None or len(node.body) > 1 or not isinstance(first, ast.Expr):
        return False
    func = getattr(first.value, "func", None)
    of = func
    if isinstance(func, ast.Attribute):
        of = func.value if is_hook(func.attr) else None
    return isinstance(of, ast.Name) and of.id == name


def _is_nothing(node: ast.Constant) -> bool:
    return type(node.value) in {int, float} and not node.value


def _called(node: ast.AST) -> list[str]:
    names: list[str] = []
    for inner in walk(node):
        if isinstance(inner, ast.Call):
            func = inner.func
            if isinstance(func, ast.Attribute):
                names.append(func.attr)
            elif isinstance(func, ast.Name):
                names.append(func.id)
        elif isinstance(inner, ast.Attribute) and inner.attr == "grad":
            names.append("grad")
    return names
