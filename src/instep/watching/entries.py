"""What stands in the book of a job: parameters, optimizers, and what was looked up about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch.nn import Parameter

    from instep.trace import Place


@dataclass
class Held:
    """A parameter, with its name and everybody who has it."""

    model: str | None
    name: str
    optimizers: list[int] = field(default_factory=list)
    """Keys of optimizers: they get their names when they are first used, and not before."""
    weak: Any = None
    version: int | None = None
    """How often it had been changed in place when it was met, where torch counts that."""
    is_trained: bool = False  # an optimizer that was used has it, or had it

    @property
    def parameter(self) -> Parameter | None:
        """The parameter itself, while it lives."""
        found: Parameter | None = self.weak()
        return found

    @property
    def label(self) -> str:
        """Its name with that of its model."""
        return self.name if self.model is None else f"{self.model}.{self.name}"


@dataclass
class Maker:
    """An optimizer, and where it was made."""

    weak: Any
    place: Place | None
    count: int = 0
    """Of its parameters."""
    filled: bool = False
    """Gradients were in them when it was made, or when the watcher came: nobody has told whose."""
    inherits: Any = None
    """A gradient that the step of an optimizer before it has used."""
    held: list[Held] = field(default_factory=list)
    """Its parameters, in order."""
    thread: int = field(default_factory=get_ident)
    """In which it was made."""


@dataclass(frozen=True, slots=True)
class Touched:
    """What the gradients of one backward went into."""

    optimizers: tuple[str, ...]
    models: tuple[str, ...]
    foreign: tuple[str, ...]
    """Names of parameters that no optimizer holds."""
    witnesses: tuple[tuple[str, Any], ...]
    """One parameter of each optimizer, as weak references."""
    keys: tuple[int, ...]
    is_hooked: bool
    """Hooks of the user's own change the gradients on their way."""


NOTHING = Touched((), (), (), (), (), is_hooked=False)


class Covered(NamedTuple):
    """Optimizers that hold any of some parameters."""

    whole: tuple[str, ...]
    """Those that hold no others."""
    partly: tuple[str, ...]
