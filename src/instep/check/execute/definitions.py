"""What the project defines: its functions, its classes and their objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute.levels import goes_down
from instep.check.execute.values import Ref, Thing

if TYPE_CHECKING:
    import ast

    from instep.check.execute.program import Scope
    from instep.check.execute.values import Value

_MOST_BASES = 30


class Function(Thing):
    """A function, method or lambda of the project."""

    def __init__(
        self,
        code: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        scope: Scope,
        *,
        bound: Value = None,
        owner: Class | None = None,
    ) -> None:
        super().__init__(getattr(code, "name", "<lambda>"))
        self.code = code
        self.scope = scope
        self.bound = bound
        self.owner = owner
        self.wraps_no_grad = False


class Class(Thing):
    """A class of the project."""

    def __init__(self, code: ast.ClassDef, scope: Scope, bases: list[Value]) -> None:
        super().__init__(code.name)
        self.code = code
        self.scope = scope
        self.bases = bases
        self.members: dict[str, Value] = {}
        self._line: list[Class] | None = None
        self.settings = False  # a dataclass or the like: its values are defaults, not facts

    def mro(self) -> list[Class]:
        """Return it and its known bases, nearest first."""
        if self._line is None:
            self._line = _line_of(self)
        return self._line

    def outside(self) -> list[str]:
        """Return the full names of the bases that are not the project's."""
        return [
            base.path if isinstance(base, Ref) else str(base.known_as)
            for cls in self.mro()
            for base in cls.bases
            if not isinstance(base, Class) and isinstance(base, Thing)
        ]


@goes_down
def _line_of(cls: Class) -> list[Class]:
    line = [cls]
    for base in cls.bases:
        if isinstance(base, Class) and len(line) < _MOST_BASES:
            line.extend(other for other in base.mro() if other not in line)
    return line


class Instance(Thing):
    """An object of a class of the project."""

    def __init__(self, cls: Class, name: str | None = None) -> None:
        super().__init__(name)
        self.cls = cls


class Super(Thing):
    """What `super()` gives."""

    def __init__(self, of: Value, after: Class) -> None:
        super().__init__()
        self.of = of
        self.after = after
