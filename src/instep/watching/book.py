"""Who is who in a job: optimizers, models and what holds which parameter."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from contextlib import nullcontext
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy

from instep.watching.entries import NOTHING, Covered, Held, Maker, Touched
from instep.watching.scope import Scope
from instep.watching.spelling import spelled
from instep.watching.wrappers import core_model, core_optimizer, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from torch.nn import Module, Parameter
    from torch.optim import Optimizer

    from instep.trace import Place

_MOST_GROWN = 2**18
"""Parameters that wait for somebody to ask: a backward that is not seen must not add up."""
_MOST_ALIKE = 8
"""Things of one name after which the dead among them give theirs away."""
_MOST_SETS = 1024
"""Sets of parameters that are looked up once; a job that draws them at random has many."""
_FREE = 16
"""Searches for models that are made whatever they cost: no clock decides what a job is told."""
_SECONDS, _SHARE = 2.0, 0.02  # of looking for models, and a share of the time, for all others


class Book:
    """Names of everything that events speak of. Objects are held weakly."""

    def __init__(self, skip: tuple[str, ...], scope: Scope | None = None) -> None:
        self.skip = skip
        self.scope = scope or Scope()
        self.parameters: dict[int, Held] = {}
        self.models: dict[str, Any] = {}
        self.optimizers: dict[int, Maker] = {}
        self.grown: deque[Parameter] = deque(maxlen=_MOST_GROWN)
        """Parameters whose gradient was added to, in order: autograd appends to it directly."""
        self.grew: Callable[[Parameter], None] = self.grown.append
        self.alone: Callable[[], AbstractContextManager[bool]] = _by_oneself
        """Whether no thread that is not watched goes backward, nor begins to."""
        self._names: dict[int, tuple[Any, str]] = {}
        self._alike: dict[str, list[str]] = {}  # by name: ids that were made of it, oldest first
        self._owners: dict[str, Any] = {}  # by id: who has it
        self.passed_on: Callable[[str], None] = lambda _: None
        """Called with an id whose owner has died before it is given to something else."""
        self._cores: dict[int, tuple[Any, Any]] = {}
        self._touched: dict[tuple[int, ...], Touched] = {}
        self.latest = NOTHING  # what the latest backward went into: nearly always the same again
        self._covered: dict[tuple[int, ...], Covered] = {}
        self.changes = 0
        """How often what was looked up was dropped."""
        self._handles: list[Any] = []
        self.fresh: deque[Any] = deque()
        """Models that were taken and that nobody has hooked yet."""
        self._enough = 1024  # entries after which the dead are looked for
        self._began, self._searches, self._searched = perf_counter(), 0, 0.0

    def name(
        self, thing: object, fallback: str, *, frames: bool = True, numbered: bool = False
    ) -> str:
        """Return the id of a thing, the same for as long as it lives.

        Of several things of one name, only the first has it for an id; messages leave out what is
        added to it, because source has one word for all of them. Where that is `numbered`, they
        have no name in source, and only a number tells them apart.
        """
        known = self._names.get(id(thing))
        if known is not None and known[0]() is thing:
            return known[1]
        said = spelled(thing, self.skip) if frames else None
        mark = "#" if said is not None or not numbered else " "
        return self.rename(thing, self._new_id(said or fallback, mark))

    def _new_id(self, said: str, mark: str) -> str:
        alike = self._alike.setdefault(said, [])
        if len(alike) >= _MOST_ALIKE:
            for at, id_ in enumerate(alike):
                if self._owners[id_]() is None:
                    alike.append(alike.pop(at))
                    self.passed_on(id_)
                    return id_
        id_, number = said, len(alike) + 1
        while id_ in self._owners:  # somebody may call his own a thing that looks like ours
            id_, number = f"{said}{mark}{max(number, 2)}", number + 1
        alike.append(id_)
        return id_

    def _forget(self) -> None:
        """Drop what has died, now and then: a long job makes many things."""
        if len(self._names) + len(self.parameters) + len(self.optimizers) < self._enough:
            return
        gone = {key for key, made in self.optimizers.items() if made.weak() is None}
        self.optimizers = {k: made for k, made in self.optimizers.items() if k not in gone}
        self.parameters = {k: h for k, h in self.parameters.items() if h.weak() is not None}
        for held in self.parameters.values():
            held.optimizers = [key for key in held.optimizers if key not in gone]
        for made in self.optimizers.values():
            made.held = [held for held in made.held if held.weak() is not None]
        self._names = {k: known for k, known in self._names.items() if known[0]() is not None}
        self.models = {k: weak for k, weak in self.models.items() if weak() is not None}
        self._handles = [h for h in self._handles if h.hooks_dict_ref() is not None]
        self._changed()
        alive = len(self._names) + len(self.parameters) + len(self.optimizers)
        self._enough = 1024 + 2 * alive

    def met(self, thing: object) -> str | None:
        """Return the id of a thing that has been met."""
        known = self._names.get(id(thing))
        return known[1] if known is not None and known[0]() is thing else None

    def rename(self, thing: object, id_: str) -> str:
        """Give a thing an id: a new one, or that of one whose place it has come in."""
        weak = weakref.ref(thing)
        self._names[id(thing)] = (weak, id_)
        self._owners[id_] = weak
        self._forget()
        return id_

    def find_models(self) -> None:
        """Look for models that are alive: those that are no part of another one."""
        started = thread_time()
        allowed = max(_SECONDS, _SHARE * (perf_counter() - self._began))
        if self._searches >= _FREE and self._searched > allowed:
            return  # whoever makes models all the time does without their names
        with self.alone() as is_alone:
            if is_alone:  # what another thread's backward reads is not to be changed meanwhile
                self._take_models()
        self._searched += thread_time() - started

    def _take_models(self) -> None:
        self._searches += 1
        modules = [thing for thing in gc.get_objects() if _is_module(thing)]
        inside = {
            id(part) for module in modules for part in vars(module).get("_modules", {}).values()
        }
        # A scripted copy shares the parameters of the model it was made of: that one names them.
        for module in sorted(modules, key=_is_scripted):
            if id(module) not in inside:
                self.take_model(module)

    def take_model(self, model: Module, name: str | None = None) -> str | None:
        """Take a model and its parameters into the book; None if it has none."""
        # Those of a lazy layer take no hooks yet: they are met with the optimizer that gets them.
        held = [each for each in _parameters_of(model) if not is_lazy(each[1])]
        if not held:
            return None
        id_ = self.name(core_model(model), name or type(core_model(model)).__name__.lower())
        weak = self.models.get(id_)
        if weak is None or weak() is None:
            self.models[id_] = weakref.ref(model)
            if not _is_scripted(model):  # it takes no hooks
                self.fresh.append(self.models[id_])
        for path, parameter in held:
            known = self.parameters.get(id(parameter))
            if known is None or known.parameter is not parameter:
                known = self._take(parameter, id_, plain(path))
            elif known.model is None:
                known.model, known.name = id_, plain(path)
        self._changed()
        return id_

    def model_of(self, module: object) -> str | None:
        """Return the id of a model that is in the book."""
        met = self.met(module)
        if met is None and isinstance(module, torch.nn.Module):
            met = self.met(core_model(module))
        return met

    def take_group(
        self, optimizer: Optimizer, parameters: Iterable[Parameter], place: Place | None
    ) -> None:
        """Take the parameters of an optimizer into the book."""
        if self._take_group(optimizer, parameters, place):
            self.find_models()
        self._changed()

    def take_alive(self, optimizers: Iterable[Optimizer]) -> None:
        """Take optimizers that were there before; their models are looked for once."""
        unknown = 0
        for optimizer in optimizers:
            held = [p for group in optimizer.param_groups for p in group["params"]]
            unknown += self._take_group(optimizer, held, None) and self.scope.holds(optimizer)
        if unknown:
            self.find_models()
        self._changed()

    def _take_group(
        self, optimizer: Optimizer, parameters: Iterable[Parameter], place: Place | None
    ) -> bool:
        """Take parameters of an optimizer; say whether any of them was unknown."""
        key = id(optimizer)
        made = self.optimizers.get(key)
        if made is None or made.weak() is not optimizer:
            if made is not None:  # one that has died was in the same place
                for held in self.parameters.values():
                    held.optimizers = [other for other in held.optimizers if other != key]
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
                # Of a model that gets a new optimizer again and again, the dead would add up.
                known.optimizers = [k for k in known.optimizers if self._lives(k)] + [key]
                made.held.append(known)
        return unknown

    def disinherit(self) -> None:
        """Take note that gradients were cleared by hand, whosever they were."""
        for made in self.optimizers.values():
            made.inherits = None

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
        return self.name(optimizer, type(optimizer).__name__.lower(), numbered=True)

    def knows(self, optimizer: Optimizer) -> bool:
        """Say whether an optimizer is in the book."""
        made = self.optimizers.get(id(optimizer))
        return made is not None and made.weak() is optimizer

    def _lives(self, key: int) -> bool:
        made = self.optimizers.get(key)
        return made is not None and made.weak() is not None

    def _take(self, parameter: Parameter, model: str | None, name: str) -> Held:
        is_counted = not is_lazy(parameter) and not parameter.is_inference()
        version = parameter._version if is_counted else None  # noqa: SLF001
        known = Held(model, name, weak=weakref.ref(parameter), version=version)
        self.parameters[id(parameter)] = known
        if parameter.is_leaf and parameter.requires_grad:
            self.keep(parameter.register_post_accumulate_grad_hook(self.grew))
        self._forget()
        return known

    def keep(self, handle: Any) -> None:
        """Keep the handle of a hook until the end, or until what it hangs on dies."""
        self._handles.append(handle)

    def holders(self, parameters: Sequence[Parameter]) -> tuple[str, ...]:
        """Return the optimizers that hold any of these parameters."""
        return self.touched(tuple(map(id, parameters)), parameters).optimizers

    def touched(self, keys: tuple[int, ...], parameters: Sequence[Parameter]) -> Touched:
        """Say what a set of parameters belongs to; looked up once for each set."""
        found = self._touched.get(keys)
        if found is None:
            if len(self._touched) >= _MOST_SETS:
                self._touched.clear()
            found = self._touched[keys] = self._sort(keys, parameters)
        return found

    def _sort(self, keys: tuple[int, ...], parameters: Sequence[Parameter]) -> Touched:
        optimizers: dict[str, Any] = {}
        models: dict[str, None] = {}
        foreign: list[str] = []
        for parameter in parameters:
            held = self.parameters.get(id(parameter))
            if held is None or self.is_others(held):
                continue
            if held.model is not None:
                models[held.model] = None
            alive = [weak() for weak in self.owners(held)]
            for optimizer in filter(self.scope.holds, alive):
                optimizers.setdefault(self.optimizer_name(optimizer), held.weak)
            if not alive:
                foreign.append(held.label)
        return Touched(
            tuple(optimizers),
            tuple(models),
            tuple(foreign),
            tuple(optimizers.items()),
            keys,
            is_hooked=any(parameter._backward_hooks for parameter in parameters),  # noqa: SLF001
        )

    def owners(self, held: Held) -> Iterator[Any]:
        """Give the optimizers that hold a parameter and are alive, as weak references."""
        weak = (self.optimizers[key].weak for key in held.optimizers)
        return (one for one in weak if one() is not None)

    def is_others(self, held: Held) -> bool:
        """Say whether a parameter is trained, but by no optimizer that is watched."""
        alive = [weak() for weak in self.owners(held)]
        return bool(alive) and not any(map(self.scope.holds, alive))

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
                if optimizer is not None and inside and self.scope.holds(optimizer):
                    names = whole if inside == len(held) else partly
                    names.append(self.optimizer_name(optimizer))
            found = self._covered[key] = Covered(tuple(whole), tuple(partly))
        return found

    def alive(self) -> list[str]:
        """Return the optimizers that are alive and have a name."""
        alive = (made.weak() for made in self.optimizers.values())
        return [self.optimizer_name(each) for each in alive if self.met(each) is not None]

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

    def is_blank(self, name: str) -> bool:
        """Say whether all gradients of an optimizer are zeros, if it is still there."""
        alive = (made.weak() for made in self.optimizers.values())
        optimizer = next((one for one in alive if one is not None and self.met(one) == name), None)
        held = [] if optimizer is None else self.of_optimizer(optimizer)
        grads = [each.parameter.grad for each in held if each.parameter is not None]
        filled = [grad for grad in grads if grad is not None]
        if any(grad.is_sparse for grad in filled):
            return False
        found: dict[torch.device, list[torch.Tensor]] = {}
        for grad in filled:
            found.setdefault(grad.device, []).append(grad.any())
        return not any(torch.stack(each).any() for each in found.values())  # one wait for each

    def _changed(self) -> None:
        """Drop what was looked up: there is something new."""
        self.changes += 1
        self.latest = NOTHING
        self._touched.clear()
        self._covered.clear()

    def of_optimizer(self, optimizer: Optimizer) -> list[Held]:
        """Return the parameters of an optimizer that are alive."""
        made = self.optimizers.get(id(optimizer))
        if made is None or made.weak() is not optimizer:
            return []
        return [held for held in made.held if held.parameter is not None]

    def close(self) -> None:
        """Take back the hooks."""
        while self._handles:
            self._handles.pop().remove()


def _by_oneself() -> AbstractContextManager[bool]:
    return nullcontext(enter_result=True)


def _parameters_of(model: Module) -> list[tuple[str, Parameter]]:
    try:
        return list(model.named_parameters())
    except Exception:  # noqa: BLE001  # one that is not made to its end, or refuses, is no model
        return []


def _is_module(thing: object) -> bool:
    # `isinstance` would ask proxies for their class, and wake up what is loaded on first use.
    return issubclass(type(thing), torch.nn.Module)


def _is_scripted(model: Module) -> bool:
    """Say whether a model was compiled by `torch.jit`, or loaded as such."""
    return isinstance(model, torch.jit.ScriptModule)
