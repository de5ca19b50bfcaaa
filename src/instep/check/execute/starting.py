"""Where execution begins: the module itself, and functions that nothing else has called."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import attributes, functions, loops, objects
from instep.check.execute.arguments import REST, Call
from instep.check.execute.defining import function_of
from instep.check.execute.definitions import Class, Function, Instance
from instep.check.execute.iterables import PLAIN
from instep.check.execute.lengths import MOST_EVERY
from instep.check.execute.things import Net, Optimizer
from instep.check.execute.values import Unknown

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module, Scope
    from instep.check.execute.scan import Definition
    from instep.check.execute.values import Value

_SETTINGS = frozenset({"cfg", "config", "conf", "args", "opt", "hparams", "configs"})
_PREPARES = frozenset({"add_param_group", "register_step_post_hook", "register_step_pre_hook"})
_AUTOGRAD = frozenset({"forward", "backward", "setup_context"})


class Entry:
    """A place where execution begins."""

    def __init__(
        self, name: str, code: Definition | None = None, owner: ast.ClassDef | None = None
    ) -> None:
        self.name = name
        self.code = code  # None: the module itself
        self.owner = owner


def entries_of(module: Module) -> list[Entry]:
    """Return the functions in which events can happen, callers first."""
    scan = module.scan
    called = set().union(*(scan.names(code) for code, _ in scan.definitions), *scan.uses.values())
    found = []
    for code, owner in scan.definitions:
        if code.name == "__init__" or not scan.hot(code):
            continue
        if code not in scan.generators and not _is_autograd(owner, code):
            found.append(Entry(code.name, code, owner))
    # What callers call is then covered, with arguments that are known.
    found.sort(
        key=lambda e: (
            e.name in called and e.code not in scan.looping,
            e.name in called,
            e.code not in scan.looping,
        )
    )
    return found


def _is_autograd(owner: ast.ClassDef | None, code: Definition) -> bool:
    """Say whether a method is one of an `autograd.Function`: there backward means another thing."""
    if owner is None or code.name not in _AUTOGRAD:
        return False
    return any("Function" in ast.unparse(base) for base in owner.bases)


def execute(m: Machine, module: Module, entry: Entry) -> None:
    """Execute a module from an entry."""
    scope = m.scope_of(module)
    if entry.code is None:
        m.run(module.tree.body, scope)
        return
    m.run(_setup(module), scope)
    m.notes = [note for note in m.notes if note.kind in {"made", "mode", "opaque"}]
    m.decisions.worth.clear()
    function = _function(m, entry.code, entry.owner, scope)
    if function is None:
        return
    if entry.name == "training_step" and isinstance(function.bound, Net):
        if "automatic_optimization" in module.unit.text:
            _training_steps(m, entry.code, function, scope)
        return
    args = _arguments(function, scope)
    before = len(m.notes)
    rest = _rest(function)
    functions.invoke(m, function, Call(entry.code, scope, entry.name, args, rest))
    makes = any(
        note.kind == "made" and isinstance(note.data["thing"], Optimizer)
        for note in m.notes[before:]
    )
    m.partial = not makes and not any(
        note.data["loop"].kind in {"loader", "unknown"} or note.data["loop"].draws
        for note in m.notes[before:]
        if note.kind == "drawn"
    )
    if entry.code in module.scan.looping and not makes and not m.epochal:
        # One epoch of somebody else's loop over epochs: what it leaves behind meets the next.
        m.single = sum(note.kind == "step" for note in m.notes[before:]) == 1
        m.serial += 1
        functions.invoke(m, function, Call(entry.code, scope, entry.name, args, rest))


def _setup(module: Module) -> list[ast.stmt]:
    """Return the statements of a module that only set up: definitions, imports, assignments."""
    found: list[ast.stmt] = []
    for statement in module.tree.body:
        if isinstance(statement, ast.While | ast.With):
            continue
        if isinstance(statement, ast.Expr | ast.For) and not _prepares(statement, module):
            continue
        if isinstance(statement, ast.If) and "__name__" in module.spelled(statement.test):
            continue
        found.append(statement)
    return found


def _prepares(statement: ast.stmt, module: Module) -> bool:
    """Say whether a statement sets something up: freezes a model, adds a group of parameters."""
    return not module.scan.hot(statement) or not _PREPARES.isdisjoint(module.scan.names(statement))


def _arguments(function: Function, scope: Scope) -> list[Value]:
    """Return unknown values for the parameters of an entry: a default says next to nothing.

    A parameter that is called like the module's own settings is those settings.
    """
    spec = function.code.args
    names = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
    if function.bound is not None:
        names = names[1:]
    names.extend(arg.arg for arg in spec.kwonlyargs)
    made: list[Value] = []
    defaults = dict(
        zip(reversed(names), reversed([*spec.defaults, *spec.kw_defaults]), strict=False)
    )
    for name in names:
        default = defaults.get(name)
        given = _settings(name, scope)
        if given is not None:
            made.append(given)
            continue
        value = Unknown(f"{id(function.code)}:{name}", name)
        number = default.value if isinstance(default, ast.Constant) else None
        if type(number) is int and 1 <= number <= MOST_EVERY:
            value.usual = number  # only if it turns out to count something
        made.append(value)
    return made


def _rest(function: Function) -> dict[str, Value]:
    """Return what an entry may be given by names that it does not list."""
    name = function.code.args.kwarg
    return {} if name is None else {REST: Unknown(f"{id(function.code)}:{name.arg}", name.arg)}


def _settings(name: str, scope: Scope) -> Instance | Class | None:
    """Return the settings that the module itself makes or defines, if a name means them."""
    given = scope.names.get(name)
    if isinstance(given, Class) and given.settings:
        return Instance(given, name)  # of whatever values
    if isinstance(given, Instance | Class):
        return given
    if name.lower() not in _SETTINGS:
        return None
    found = [
        value
        for value in scope.names.values()
        if isinstance(value, Class) and str(value.known_as).lower() in _SETTINGS
    ]
    return found[0] if len(found) == 1 and not found[0].settings else None


def _function(
    m: Machine, code: Definition, owner: ast.ClassDef | None, scope: Scope
) -> Function | None:
    """Return the function of an entry, bound to an object if it is a method."""
    if owner is None:
        found = scope.names.get(code.name)
        if isinstance(found, Function) and found.code is code:
            return found
        return function_of(code, scope, None)
    cls = scope.names.get(owner.name)
    if not isinstance(cls, Class) or cls.code is not owner:
        return None
    cls = _most_derived(scope, cls, code.name)
    made = objects.blank(cls)
    made.known_as = "self"
    if not isinstance(made, Instance | Net):
        return None
    m.assumed = made
    _initialise(m, cls, made, scope)
    found = attributes.find_member(made, code.name)
    if not isinstance(found, Function) or found.code is not code:
        return None
    return functions.bound_to(found, made)


def _most_derived(scope: Scope, cls: Class, name: str) -> Class:
    """Return a subclass in the file that does not replace the method: it completes the base."""
    for value in scope.names.values():
        if isinstance(value, Class) and name not in value.members and cls in value.mro()[1:]:
            return value
    return cls


def _initialise(m: Machine, cls: Class, made: Instance | Net, scope: Scope) -> None:
    initial = attributes.find_member(made, "__init__")
    if isinstance(initial, Function):
        bound = functions.bound_to(initial, made)
        before = len(m.notes)
        args, rest = _arguments(bound, scope), _rest(bound)
        functions.invoke(m, bound, Call(cls.code, scope, "__init__", args, rest))
        m.epochal = False
        kinds = {"made", "mode", "called"}
        m.notes[before:] = [
            note for note in m.notes[before:] if note.kind in kinds or note in m.handed
        ]
        m.covered.discard(initial.code)


def _training_steps(m: Machine, code: Definition, function: Function, scope: Scope) -> None:
    """Lightning calls the step once per batch, with the batch's number."""
    counted = len(code.args.args) > 2  # after `self` and the batch
    loop = loops.enter(m, code, "loader", None)
    loop.text = "trainer"
    for _ in range(loops.EPOCHS):
        index, length = 0, m.lengths.length
        while index < length:
            loop.length = length
            loops.begin(m, code, loop, index, scope)
            args: list[Value] = [Unknown(f"{id(code)}:batch", "batch")]
            if counted:
                args.append(index)
            functions.invoke(m, function, Call(code, scope, code.name, args))
            index += 1
            if index == 1 and not loop.moduli:
                length = PLAIN
        m.note("epoch-end", code, scope, loop=loop, epoch=0, batches=length)
    m.loops.pop()
