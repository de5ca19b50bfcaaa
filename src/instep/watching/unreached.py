"""Parameters of an optimizer that no gradient reaches, and whether they are used at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.nn import Module, Parameter

    from instep.trace import Place
    from instep.watching.book import Book
    from instep.watching.gauges import Gauges

_SURE = 10
"""Updates after which a parameter that never had a gradient is told."""
_SEARCHED = frozenset({3, 15})
"""Updates without any gradient after which models are looked for once more: the losses come from
one that was made, or copied, after the optimizer.
"""
_COMPARED = frozenset({_SURE, 2 * _SURE, 3 * _SURE})
"""Updates without any gradient after which it is looked for where the gradients are."""
_MOST_NAMES = 5


class Unreached:
    """Looks for parameters that never had a gradient."""

    def __init__(self, book: Book, gauges: Gauges) -> None:
        self._book = book
        self._gauges = gauges
        self._filled: dict[str, set[int]] = {}  # parameters that have had a gradient
        self._missing: dict[str, list[Parameter]] = {}
        self._reached: set[str] = set()  # optimizers that nothing is shown of
        self._followed: set[int] = set()  # parameters whose modules are hooked, or were
        self._called: set[int] = set()  # of those: parameters of modules that were called
        self._twins: list[tuple[str, str]] = []  # optimizers, and models that have their gradients
        self._handles: list[Any] = []

    def forget(self, name: str) -> None:
        """Drop what is known of an optimizer that has died."""
        self._filled.pop(name, None)
        self._missing.pop(name, None)
        self._reached.discard(name)

    def before_step(self, name: str, every: list[Any], filled: list[Any], updates: int) -> None:
        """Look at the parameters of an optimizer; `filled` are those with a gradient."""
        seen = self._filled.setdefault(name, set())
        seen.update(map(id, filled))
        missing: list[Any] = []
        if len(filled) < len(every):
            missing = [p for p in every if p.requires_grad and id(p) not in seen]
        # Where there is none at all, the step is the mistake, and another rule's.
        told = missing if updates >= _SURE and len(missing) < len(every) else []
        self._missing[name] = told
        if not seen and (updates in _SEARCHED or updates in _COMPARED):
            self._look_elsewhere(name, every, updates)
        elif seen and self._twins:
            for owner, model in self._twins:
                if owner == name:
                    self._gauges.hide("twin-gradients", owner, model)
            self._twins = [twin for twin in self._twins if twin[0] != name]
        if told and any(id(parameter) not in self._followed for parameter in told):
            self._follow(told)

    def after_step(self, name: str, place: Place | None) -> None:
        """Tell what was found."""
        missing = self._missing.pop(name, None)
        if missing is None:
            return  # it was not looked for
        if not missing and name in self._reached:
            return  # as it was
        if missing:
            self._reached.discard(name)
        else:
            self._reached.add(name)
        called = [p for p in missing if id(p) in self._called]
        for quantity, found in (("gradients-missing", missing), ("gradients-cut-off", called)):
            if not found:
                self._gauges.hide(quantity, name)
                continue
            held = (self._book.parameters.get(id(parameter)) for parameter in found)
            self._gauges.show(
                quantity,
                name,
                float(len(found)),
                unit="parameters",
                subject=listed(one.label for one in held if one is not None),
                place=place,
            )

    def close(self) -> None:
        """Take back the hooks."""
        while self._handles:
            self._handles.pop().remove()

    def _look_elsewhere(self, name: str, every: list[Any], updates: int) -> None:
        """See whether a model like that of an optimizer without gradients has them instead."""
        if updates in _SEARCHED:
            self._book.find_models()
            return
        mine = _shapes(every)
        for id_, weak in list(self._book.models.items()):
            model = weak()
            others = [] if model is None else list(model.parameters())
            if mine and _shapes(others) == mine and all(map(self._is_strayed, others)):
                count = float(len(others))
                self._twins.append((name, id_))
                self._gauges.show(
                    "twin-gradients", name, count, unit="parameters", subject=id_, model=id_
                )

    def _is_strayed(self, parameter: Parameter) -> bool:
        """Say whether a parameter has a gradient that is no optimizer's, if it wants one."""
        held = self._book.parameters.get(id(parameter))
        if held is None or any(True for _ in self._book.owners(held)):
            return False
        return parameter.grad is not None or not parameter.requires_grad

    def _follow(self, parameters: list[Parameter]) -> None:
        """Begin to follow the modules that hold these parameters."""
        wanted = {id(parameter) for parameter in parameters} - self._followed
        self._followed |= wanted
        for weak in list(self._book.models.values()):
            model = weak()
            if model is None or _is_compiled(model):
                continue
            for module in model.modules():
                own = {id(p) for p in module._parameters.values()} & wanted  # noqa: SLF001
                if own:
                    self._hook(module, own)

    def _hook(self, module: Module, own: set[int]) -> None:
        def before(module: Module, args: Any) -> None:
            del args
            # In eval mode it is looked at, or left as it is on purpose.
            if module.training and not torch.compiler.is_compiling():
                self._called.update(own)
                handle.remove()

        handle = module.register_forward_pre_hook(before)
        self._handles.append(handle)


def listed(names: Iterable[str]) -> str:
    """Return a few of many names.

    >>> listed("abcdefg")
    'a, b, c, d, e and 2 more'
    """
    names = list(names)
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _shapes(parameters: Iterable[Parameter]) -> list[tuple[int, ...]]:
    """Return the shapes of what is trained, in an order that does not depend on groups."""
    return sorted(tuple(parameter.shape) for parameter in parameters if parameter.requires_grad)


def _is_compiled(model: Module) -> bool:
    """Say whether a hook would have it compiled again."""
    return any(
        "_orig_mod" in part._modules or part._compiled_call_impl is not None  # noqa: SLF001
        for part in model.modules()
    )
