"""Who is who in a job: optimizers, models and what holds which parameter."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from instep.watching.spelling import spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch.nn import Module, Parameter
    from torch.optim import Optimizer

    from instep.trace import Place

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
    is_hooked: bool
    """Hooks of the user's own change the gradients on their way."""


class Covered(NamedTuple):
    """Optimizers that hold any of some parameters."""

    whole: tuple[str, ...]
    """Those that hold no others."""
    partly: tuple[str, ...]


class Book:
    """Names of everything that events speak of. Objects are held weakly."""

    def __init__(self, skip: tuple[str, ...]) -> None:
        self.skip = skip
        self.parameters: dict[int, Held] = {}
        self.models: dict[str, Any] = {}
        self.optimizers: dict[int, Maker] = {}
        self.grown: deque[Parameter] = deque()
        """Parameters whose gradient was added to, in order: autograd appends to it directly."""
        self._names: dict[int, tuple[Any, str]] = {}
        self._taken: set[str] = set()
        self._touched: dict[tuple[int, ...], Touched] = {}
        self._covered: dict[tuple[int, ...], Covered] = {}
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
        id_ = self.name(_core(model), name or type(_core(model)).__name__.lower())
        if id_ not in self.models:
            self.models[id_] = weakref.ref(model)
        for path, parameter in held:
            known = self.parameters.get(id(parameter))
            if known is None or known.parameter is not parameter:
                known = self._take(parameter, id_, _plain(path))
            elif known.model is None:
                known.model, known.name = id_, _plain(path)
        self._forget()
        return id_

    def model_of(self, module: object) -> str | None:
        """Return the id of a model that is in the book."""
        if not isinstance(module, torch.nn.Module):
            return None
        core = _core(module)
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
            made.filled = made.filled or parameter.grad is not None
            if key not in known.optimizers:
                known.optimizers.append(key)
        if unknown:
            self.find_models()
        self._forget()

    def optimizer_name(self, optimizer: Optimizer) -> str:
        """Return the id of an optimizer."""
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

    def touched(self, keys: tuple[int, ...], parameters: Sequence[Parameter]) -> Touched:
        """Say what a set of parameters belongs to; looked up once for each set."""
        found = self._touched.get(keys)
        if found is None:
            found = self._touched[keys] = self._sort(keys, parameters)
        return found

    def _sort(self, keys: tuple[int, ...], parameters: Sequence[Parameter]) -> Touched:
        optimizers: dict[str, Any] = {}
        models: dict[str, None] = {}
        foreign: list[str] = []
        for parameter in parameters:
            held = self.parameters.get(id(parameter))
            if held is None:
                continue
            if held.model is not None:
                models[held.model] = None
            alive = [weak() for weak in self.owners(held)]
            for optimizer in alive:
                optimizers.setdefault(self.optimizer_name(optimizer), held.weak)
            if not alive:
                foreign.append(held.label)
        return Touched(
            tuple(optimizers),
            tuple(models),
            tuple(foreign),
            tuple(optimizers.values()),
            keys,
            is_hooked=any(parameter._backward_hooks for parameter in parameters),  # noqa: SLF001
        )

    def owners(self, held: Held) -> Iterator[Any]:
        """Give the optimizers that hold a parameter and are alive, as weak references."""
        weak = (self.optimizers[key].weak for key in held.optimizers)
        return (one for one in weak if one() is not None)

    def covered(
        self, key: tuple[int, ...], parameters: Callable[[], Iterable[Parameter]]
    ) -> Covered:
        """Say whose parameters these are; looked up once for each key."""
        found = self._covered.get(key)
        if found is None:
            mine = set(map(id, parameters()))
            whole: list[str] = []
            partly: list[str] = []
            for made in self.optimizers.values():
                optimizer = made.weak()
                held = [] if optimizer is None else self.of_optimizer(optimizer)
                inside = sum(id(each.parameter) in mine for each in held)
                if optimizer is not None and inside:
                    names = whole if inside == len(held) else partly
                    names.append(self.optimizer_name(optimizer))
            found = self._covered[key] = Covered(tuple(whole), tuple(partly))
        return found

    def alive(self) -> list[str]:
        """Return the optimizers that are alive and have a name."""
        alive = (made.weak() for made in self.optimizers.values())
        return [self.optimizer_name(each) for each in alive if self.is_named(each)]

    def empty(self) -> tuple[str, ...]:
        """Return the optimizers none of whose parameters has a gradient."""
        return tuple(
            self.optimizer_name(optimizer)
            for optimizer in (made.weak() for made in self.optimizers.values())
            if optimizer is not None
            and all(
                getattr(h.parameter, "grad", None) is None for h in self.of_optimizer(optimizer)
            )
        )

    def _forget(self) -> None:
        """Drop what was looked up: there is something new."""
        self._touched.clear()
        self._covered.clear()

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


def _core(model: Module) -> Module:
    """Return what is inside wrappers: DDP's, and that of `torch.compile`."""
    while True:
        if isinstance(model, DistributedDataParallel):
            model = model.module
        elif "_orig_mod" in model._modules:  # noqa: SLF001
            model = model._modules["_orig_mod"]  # type: ignore[assignment]  # noqa: SLF001
        else:
            return model


def _plain(path: str) -> str:
    for prefix in _WRAPPERS:
        path = path.replace(prefix, "")
    return path
