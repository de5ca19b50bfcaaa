"""An optimizer's state as it was saved, where torch's own loading would change it.

`Optimizer.load_state_dict` casts every tensor of a state to the type of its parameter, but for one
called "step", and takes strings apart: fp32 master weights of bf16 parameters come back as bf16, a
counter of 2^40 + 1 as 2^40. What was cast is put back here inside of that call, before hooks and
code of the optimizer's own see it, and on the device that torch has chosen. A class with a
`load_state_dict` of its own is left alone if its state is then what was saved.
"""

from __future__ import annotations

import warnings
from collections import Counter, OrderedDict
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from instep.engine import gradients as grads
from instep.engine.ranks.drift import WHOLE
from instep.engine.ranks.sharded import local

if TYPE_CHECKING:
    from collections.abc import Iterator

_DICTS = (dict, OrderedDict, Counter)
_LISTS = (list, tuple, torch.Size)


def put_back(optimizer: Optimizer, saved: dict[str, Any]) -> list[str]:
    """Load a state into an optimizer; return what of it is not as it was saved."""
    if type(optimizer).load_state_dict is Optimizer.load_state_dict and (
        "load_state_dict" not in vars(optimizer)
    ):
        _load_uncast(optimizer, saved)
        return []
    # Some keep another form in memory than they save, and need the cast on the way.
    optimizer.load_state_dict(_containers_of(saved))
    if not changes(saved, optimizer.state_dict()) or not isinstance(optimizer, Optimizer):
        return changes(saved, optimizer.state_dict())
    _load_uncast(optimizer, saved)
    return changes(saved, optimizer.state_dict())


def _load_uncast(optimizer: Optimizer, saved: dict[str, Any]) -> None:
    given: list[dict[str, Any]] = []

    def note(_: Optimizer, state: dict[str, Any]) -> None:
        # Last of the hooks: they may have changed it.
        given.append(_containers_of(state))

    def uncast(loaded: Optimizer) -> None:
        state = given.pop()
        numbers = (number for group in state["param_groups"] for number in group["params"])
        for number, parameter in zip(numbers, grads.parameters_of([loaded]), strict=True):
            if number in state["state"] and parameter in loaded.state:
                held = loaded.state[parameter]
                loaded.state[parameter] = _uncast(held, state["state"][number])

    with ExitStack() as hooks:
        for hook in (
            optimizer.register_load_state_dict_pre_hook(note),
            optimizer.register_load_state_dict_post_hook(uncast, prepend=True),
        ):
            hooks.callback(hook.remove)
        hooks.enter_context(warnings.catch_warnings())
        # It loses nothing: that is put back.
        warnings.filterwarnings("ignore", "Casting complex values to real")
        optimizer.load_state_dict(_containers_of(saved))


def _containers_of(tree: Any) -> Any:
    """Return the same values in containers of their own: some classes change what they load."""
    if type(tree) in (dict, OrderedDict):
        return type(tree)((key, _containers_of(value)) for key, value in tree.items())
    if type(tree) in (list, tuple):
        return type(tree)(_containers_of(value) for value in tree)
    return tree


def _uncast(held: Any, saved: Any) -> Any:
    """Return what was saved instead of what it was cast to; what else became of it stays."""
    if isinstance(saved, Tensor):
        was_cast = isinstance(held, Tensor) and held.dtype != saved.dtype
        return saved.to(held.device) if was_cast and _is_cast(held, saved) else held
    if type(saved) in _DICTS and isinstance(held, dict):
        held.update({key: _uncast(held[key], saved[key]) for key in saved if key in held})
        return held if type(held) is type(saved) else type(saved)(held)
    if type(saved) in _LISTS and type(held) is type(saved) and len(held) == len(saved):
        return type(saved)(_uncast(*pair) for pair in zip(held, saved, strict=True))
    # A string is taken for a sequence of letters.
    return saved if isinstance(saved, str | set) else held


def _is_cast(held: Tensor, saved: Tensor) -> bool:
    """Whether somebody else has not changed it since."""
    return held.shape == saved.shape and _is_same(held, saved.to(held.device, held.dtype))


def _is_same(one: Tensor, other: Tensor) -> bool:
    one, other = local(one.detach()), local(other.detach()).to(one.device)
    if one.layout is not other.layout:
        return False
    if one.is_sparse:
        one, other = one.coalesce(), other.coalesce()
        pairs = (one.indices(), other.indices()), (one.values(), other.values())
        return all(_is_same(*pair) for pair in pairs)
    return one.shape == other.shape and torch.equal(_bits(one), _bits(other))


def _bits(tensor: Tensor) -> Tensor:
    """Return numbers that are the same for NaN, too."""
    whole = tensor.contiguous()
    if whole.is_complex():
        whole = torch.view_as_real(whole)
    return whole.view(WHOLE[whole.itemsize])


def changes(saved: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the states that were saved and are not there now, or are something else.

    >>> here = {"state": {0: {"mean": torch.ones(2), "mode": "warmup"}}}
    >>> there = {"state": {0: {"mean": torch.ones(2).bfloat16(), "mode": "warmup"}}}
    >>> changes(here, there)
    ["'mean' of parameter 0 was torch.float32 and is torch.bfloat16"]
    """
    return [
        f"{key!r} of parameter {number} {what}"
        for number, state in saved["state"].items()
        if isinstance(state, dict)
        for key, value in state.items()
        for what in _changed(value, now["state"].get(number, {}).get(key))
    ]


def _changed(saved: Any, now: Any) -> Iterator[str]:
    """Yield what has become of a value, if anything has."""
    if isinstance(saved, Tensor) and isinstance(now, Tensor):
        if saved.dtype != now.dtype:
            yield f"was {saved.dtype} and is {now.dtype}"
        elif not _is_same(now, saved):
            yield "has other values"
    elif isinstance(saved, dict) and isinstance(now, dict):
        found = (what for key in saved for what in _changed(saved[key], now.get(key)))
        yield from list(found)[:1]
    elif isinstance(saved, list | tuple) and isinstance(now, list | tuple):
        pairs = zip(saved, now, strict=False)
        found = (what for pair in pairs for what in _changed(*pair))
        yield from ["has another length"] if len(saved) != len(now) else list(found)[:1]
    elif isinstance(saved, Tensor) or isinstance(now, Tensor):
        # Newer versions of torch's own classes make a tensor of a counter that was a number.
        numbers = [_number(value) for value in (saved, now)]
        if not all(isinstance(n, int | float) for n in numbers) or numbers[0] != numbers[1]:
            yield f"was a {type(saved).__name__} and is a {type(now).__name__}"
    elif type(saved) is not type(now) or not (saved == now or saved != saved):  # noqa: PLR0124
        yield f"was {saved!r} and is {now!r}"


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
