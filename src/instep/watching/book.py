"""Who is who in a job: optimizers, models and what holds which parameter."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from instep.watching.spelling import spelled
from instep.watching.wrappers import core_model, core_optimizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch.nn import Module, Parameter
    from torch.optim import Optimizer

    from instep.trace import Place

_MOST_GROWN = 2**18
"""Parameters that wait for somebody to ask: a backward that is not seen must not add up."""
_WRAPPERS = ("module.", "_orig_mod.")


@dataclass
class Held:
    """A parameter, with its name and everybody who has it."""

    model: str | None
    name: str
    optimizers: list[int] = field(default_factory=list)
    """Keys of optimizers: they get their names when they are first used, and not before."""
    weak: Any = None

    @property
    def parameter(self) -> Parameter | None:
        """The parameter itself, while it lives."""
        found: Parameter | None = self.weak()
        return found


@dataclass
class Maker:
    """An optimizer, and where it was made."""

    weak: Any
    place: Place | None
    count: int = 0
    """Of its parameters."""


@dataclass(frozen=True)
class Touched:
    """What the gradients of one backward went into."""

    optimizers: tuple[str, ...]
    models: tuple[str, ...]
    foreign: tuple[str, ...]
    """Names of parameters that no optimizer holds."""
    witnesses: tuple[Any, ...]
    """One parameter of each optimizer, as weak references."""
    keys: tuple[int, ...]


class Book:
    """Names of everything that events speak of. Objects are held weakly."""

    def __init__(self, skip: tuple[str, ...]) -> None:
        self.skip = skip
        self.parameters: dict[int, Held] = {}
        self.models: dict[str, Any] = {}
        self.optimizers: dict[int, Maker] = {}
        self.grown: deque[Parameter] = deque(maxlen=_MOST_GROWN)
        """Parameters whose gradient was added to, in order: autograd appends to it directly."""
        self._names: dict[int, tuple[Any, str]] = {}
        self._cores: dict[int, tuple[Any, Any]] = {}
        self._taken: set[str] = set()
        self._touched: dict[tuple[int, ...], Touched] = {}
        self._handles: list[Any] = []

    # Names

    def name(self, thing: object, fallback: str, *, frames: bool = True) -> str:
        """Return the id of a thing, the same for as long as it lives."""
        known = self._names.get(id(thing))
        if known is not None and known[0]() is thing:
            return known[1]
        said = (spelled(thing, self.skip) if frames else None) or fallback
        id_, number = said, 2
        while id_ in self._taken:
            id_, number = f"{said}#{number}", number + 1
        self._taken.add(id_)
        self._names[id(thing)] = (weakref.ref(thing), id_)
        return id_

    def rename(self, thing: object, id_: str) -> str:
        """Give a thing the id of one that is gone and that it has come in place of."""
        self._names[id(thing)] = (weakref.ref(thing), id_)
        return id_

    def is_named(self, thing: object) -> bool:
        """Say whether a thing has been met."""
        known = self._names.get(id(thing))
        return known is not None and known[0]() is thing

    # Models

    def find_models(self) -> None:
        """Look for models that are alive: those that are no part of another one."""
        modules = [thing for thing in gc.get_objects() if _is_module(thing)]
        inside = {id(part) for module in modules for part in module._modules.values()}  # noqa: SLF001
        for module in modules:
            if id(module) not in inside:
                self.take_model(module)

    def take_model(self, model: Module, name: str | None = None) -> str | None:
        """Take a model and its parameters into the book; None if it has none."""
        held = list(model.named_parameters())
        if not held:
            return None
        id_ = self.name(core_model(model), name or type(core_model(model)).__name__.lower())
        if id_ not in self.models:
            self.models[id_] = weakref.ref(model)
        for path, parameter in held:
            known = self.parameters.get(id(parameter))
            if known is None or known.parameter is not parameter:
                known = self._take(parameter, id_, _plain(path))
            elif known.model is None:
                known.model, known.name = id_, _plain(path)
        self._touched.clear()
        return id_

    def model_of(self, module: object) -> str | None:
        """Return the id of a model that is in the book."""
        if not isinstance(module, torch.nn.Module):
            return None
        core = core_model(module)
        return self.name(core, "model") if self.is_named(core) else None

    # Optimizers

    def take_group(
        self, optimizer: Optimizer, parameters: Iterable[Parameter], place: Place | None
    ) -> None:
        """Take the parameters of an optimizer into the book."""
        key = id(optimizer)
        made = self.optimizers.get(key)
        if made is None or made.weak() is not optimizer:
            made = self.optimizers[key] = Maker(weakref.ref(optimizer), place)
        unknown = False
        for parameter in parameters:
            known = self.parameters.get(id(parameter))
            if known is None or known.parameter is not parameter:
                known = self._take(parameter, None, f"parameter {made.count}")
                unknown = True
            made.count += 1
            if key not in known.optimizers:
                known.optimizers.append(key)
        if unknown:
            self.find_models()
        self._touched.clear()

    def core(self, optimizer: Optimizer) -> Optimizer:
        """Return what an optimizer stands for: itself, unless it wraps another one."""
        known = self._cores.get(id(optimizer))
        if known is None or known[0]() is not optimizer:
            inner = weakref.ref(core_optimizer(optimizer))
            known = self._cores[id(optimizer)] = (weakref.ref(optimizer), inner)
        return known[1]() or optimizer

    def optimizer_name(self, optimizer: Optimizer) -> str:
        """Return the id of an optimizer."""
        optimizer = self.core(optimizer)
        return self.name(optimizer, type(optimizer).__name__.lower())

    def knows(self, optimizer: Optimizer) -> bool:
        """Say whether an optimizer is in the book."""
        made = self.optimizers.get(id(optimizer))
        return made is not None and made.weak() is optimizer

    def _take(self, parameter: Parameter, model: str | None, name: str) -> Held:
        known = Held(model, name, weak=weakref.ref(parameter))
        self.parameters[id(parameter)] = known
        if parameter.is_leaf and parameter.requires_grad:
            hook = parameter.register_post_accumulate_grad_hook(self.grown.append)
            self._handles.append(hook)
        return known

    def holders(self, parameters: Sequence[Parameter]) -> tuple[str, ...]:
        """Return the optimizers that hold any of these parameters."""
        return self.touched(tuple(map(id, parameters)), parameters).optimizers

    def touched(self, keys: tuple[int, ...], parameters: Iterable[Parameter]) -> Touched:
        """Say what a set of parameters belongs to; looked up once for each set."""
        found = self._touched.get(keys)
        if found is None:
            found = self._touched[keys] = self._sort(keys, parameters)
        return found

    def _sort(self, keys: tuple[int, ...], parameters: Iterable[Parameter]) -> Touched:
        optimizers: dict[str, Any] = {}
        models: dict[str, None] = {}
        foreign: list[str] = []
        for parameter in parameters:
            held = self.parameters.get(id(parameter))
            if held is None:
                continue
            if held.model is not None:
                models[held.model] = None
            alive = [
                optimizer
                for optimizer in (self.optimizers[key].weak() for key in held.optimizers)
                if optimizer is not None
            ]
            for optimizer in alive:
                optimizers.setdefault(self.optimizer_name(optimizer), held.weak)
            if not alive:
                foreign.append(held.name if held.model is None else f"{held.model}.{held.name}")
        return Touched(
            tuple(optimizers), tuple(models), tuple(foreign), tuple(optimizers.values()), keys
        )

    def of_optimizer(self, optimizer: Optimizer) -> list[Held]:
        """Return the parameters of an optimizer that are alive."""
        return [
            held
            for held in self.parameters.values()
            if id(optimizer) in held.optimizers and held.parameter is not None
        ]

    def close(self) -> None:
        """Take back the hooks."""
        while self._handles:
            self._handles.pop().remove()


def _is_module(thing: object) -> bool:
    # `isinstance` would ask proxies for their class, and wake up what is loaded on first use.
    return issubclass(type(thing), torch.nn.Module)


def _plain(path: str) -> str:
    for prefix in _WRAPPERS:
        path = path.replace(prefix, "")
    return path
