"""What a micro-step can change besides gradients: tensors that its loss function can reach.

Micro-steps that run side by side must not write to the same tensor: the running statistics of a
BatchNorm layer, a sum of losses in a closure. One micro-step that is looked at before and after
tells. A write counts up the tensor's version, but not every operator's does (`batch_norm` and its
statistics), so values are compared as well.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

DEEPEST = 4
"""How many objects, functions and containers are followed into each other; a model is one."""
LARGEST = 1000
"""Elements of a container that is looked into: a data set is not."""
ROOM = 2**26
"""Bytes of values that are kept for comparison; of what is beyond, only versions are."""

TORCHS_OWN = frozenset(vars(nn.Module()))
"""What every module holds: parameters, buffers and modules are found by asking for them."""


class Seen(NamedTuple):
    """A tensor as it was."""

    name: str
    tensor: Tensor
    version: int
    values: Tensor | None

    @property
    def is_changed(self) -> bool:
        """Whether it was written to since; NaN is NaN."""
        if self.tensor._version != self.version:  # noqa: SLF001 -- torch's own counter
            return True
        if self.values is None:
            return False
        now, before = self.tensor.detach(), self.values
        return not bool(((now == before) | ((now != now) & (before != before))).all())  # noqa: PLR0124


class Surroundings:
    """All tensors in reach, as they were."""

    def __init__(self, models: Sequence[nn.Module], function: Callable[[Any], Any]) -> None:
        self._known: dict[int, Seen] = {}
        self._room = ROOM
        self._seen: set[int] = set()
        for model in models:
            self._note(type(model).__name__, model, DEEPEST)
        self._note(getattr(function, "__name__", "loss_fn"), function, DEEPEST)

    def changed(self) -> list[str]:
        """Return the names of the tensors that were written to since."""
        return [seen.name for seen in self._known.values() if seen.is_changed]

    def _note(self, name: str, value: Any, depth: int) -> None:
        if isinstance(value, Tensor):
            is_parameter = value.is_leaf and value.requires_grad
            if not is_parameter and not value.is_inference() and id(value) not in self._known:
                self._known[id(value)] = self._as_it_is(name, value)
            return
        if depth and id(value) not in self._seen:
            self._seen.add(id(value))
            for inner, found in _inside(value):
                self._note(f"{name}.{inner}", found, depth - 1)

    def _as_it_is(self, name: str, tensor: Tensor) -> Seen:
        is_plain = tensor.layout is torch.strided and tensor.device.type != "meta"
        values = None
        if is_plain and tensor.nbytes <= self._room:
            self._room -= tensor.nbytes
            values = tensor.detach().clone()
        return Seen(name, tensor, tensor._version, values)  # noqa: SLF001


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Return what an object leads to, by name."""
    if isinstance(value, nn.Module):
        yield from _inside_model(value)
    elif isinstance(value, types.MethodType):
        yield "self", value.__self__
        yield value.__name__, value.__func__
    elif isinstance(value, types.FunctionType):
        yield from _inside_function(value)
    elif isinstance(value, Mapping | list | tuple | set | frozenset):
        if len(value) <= LARGEST:
            pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
            yield from ((str(key), one) for key, one in list(pairs))
    elif not isinstance(value, type | types.ModuleType):
        yield from list(getattr(value, "__dict__", {}).items())


def _inside_model(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Return the buffers of all its modules, and whatever else they hold."""
    yield from model.named_buffers()
    for place, module in model.named_modules():
        for name, value in list(vars(module).items()):
            if name not in TORCHS_OWN:
                yield f"{place}.{name}".lstrip("."), value


def _inside_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # a cell that is not filled yet holds nothing
            continue
    yield from (function.__kwdefaults__ or {}).items()
    yield from ((str(index), one) for index, one in enumerate(function.__defaults__ or ()))
    for name in code.co_names:
        if name in function.__globals__:
            yield name, function.__globals__[name]
