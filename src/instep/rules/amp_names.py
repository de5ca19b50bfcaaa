"""From `torch.cuda.amp` to `torch.amp`: the names, the device that they are given, the imports."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.rules.edits import replace
from instep.rules.finding import Edit
from instep.rules.source import end_of, start_of
from instep.trace.trees import walk

if TYPE_CHECKING:
    from instep.rules.edits import Edits
    from instep.rules.source import Source

OLD = "torch.cuda.amp"
NAMES = frozenset({"autocast", "GradScaler", "custom_fwd", "custom_bwd"})
# What the old autocast took by position; the new one takes the type first.
_POSITIONAL = ("enabled", "dtype", "cache_enabled")


def renamed(source: Source, node: ast.AST) -> Edits | None:
    """Return the edits that rename a use of torch.cuda.amp.

    A name that was imported is renamed in the whole file, since there is one import for all uses.
    """
    used = node.func if isinstance(node, ast.Call) else node
    if isinstance(used, ast.Attribute) and used.attr in NAMES and _dotted(used.value) == OLD:
        given = _given(source, used, used.attr)
        return None if given is None else (*replace(used.value, "torch.amp"), *given)
    root = used.value if isinstance(used, ast.Attribute) else used
    return _imported(source, root.id) if isinstance(root, ast.Name) else None


def _imported(source: Source, name: str) -> Edits | None:
    """Change the import that brings a name, and every use of what it brings."""
    for statement in walk(source.tree):
        match statement:
            case ast.ImportFrom(module=module, names=aliases, level=0) if module == OLD:
                bound = {alias.asname or alias.name: alias.name for alias in aliases}
                if name in bound:
                    uses = _uses(source, bound, as_module=False)
                    return _with_import(source, statement, OLD, "torch.amp", uses)
            case ast.ImportFrom(
                module="torch.cuda", names=[ast.alias(name="amp", asname=bound_as)]
            ):
                if name == (bound_as or "amp"):
                    uses = _uses(source, {name: "amp"}, as_module=True)
                    return _with_import(source, statement, "torch.cuda", "torch", uses)
            case ast.Import(names=[ast.alias(name=module, asname=str(bound_as))]) if module == OLD:
                if name == bound_as:
                    uses = _uses(source, {name: "amp"}, as_module=True)
                    return _with_import(source, statement, OLD, "torch.amp", uses)
    return None


def _with_import(
    source: Source, statement: ast.stmt, old: str, new: str, uses: Edits | None
) -> Edits | None:
    start = start_of(statement)
    line = source.layout.lines[start.line - 1]
    column = line.find(old.encode(), start.column)
    if uses is None or column < 0:
        return None
    return (Edit(start.line, column, start.line, column + len(old), new), *uses)


def _uses(source: Source, bound: dict[str, str], *, as_module: bool) -> Edits | None:
    edits: list[Edit] = []
    for node in walk(source.tree):
        if not isinstance(node, ast.Name) or node.id not in bound:
            continue
        used: ast.AST | None = node
        name = bound[node.id]
        if as_module:
            used = source.parent(node)
            name = used.attr if isinstance(used, ast.Attribute) else ""
        given = _given(source, used, name) if used is not None and name in NAMES else None
        if given is None:
            return None
        edits += given
    return tuple(edits)


def _given(source: Source, used: ast.AST, name: str) -> Edits | None:
    """Give a use of a name its device; None where it is not called."""
    quote = "'" if source.text.count("'") > source.text.count('"') else '"'
    device = f"{quote}cuda{quote}"
    if name.startswith("custom"):
        device = f"device_type={device}"
    parent = source.parent(used)
    if not isinstance(parent, ast.Call) or parent.func is not used:
        end = end_of(used)
        is_decorator = used in getattr(parent, "decorator_list", [])
        if not is_decorator or not name.startswith("custom"):
            return None
        return (Edit(end.line, end.column, end.line, end.column, f"({device})"),)
    return _called(parent, name, device)


def _called(call: ast.Call, name: str, device: str) -> Edits | None:
    if any(isinstance(arg, ast.Starred) for arg in call.args):
        return None
    given = sorted(map(start_of, [*call.args, *call.keywords]))
    if given:
        spot, text = given[0], f"{device}, "
    else:
        end = end_of(call)
        spot, text = end._replace(column=end.column - 1), device
    first = Edit(*spot, *spot, text)
    words = _POSITIONAL if name == "autocast" else ()
    named = []
    for arg, word in zip(call.args, words, strict=False):
        start = start_of(arg)
        named.append(Edit(start.line, start.column, start.line, start.column, f"{word}="))
    return (first, *named)


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{_dotted(value)}.{attr}"
    return ""
