"""Whether a model notices that it is in train or in eval mode: asked of the model, run by nobody.

Layers of torch's own are known by what they were made with. Any other module is judged by the words
in its compiled code; what has none that could be read is taken to notice.
"""

from __future__ import annotations

from functools import cached_property
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules import batchnorm, dropout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_WORDS = ("training", "dropout", "drop_path", "rrelu", "batch_norm", "instance_norm")
"""What code names, in a name or as a part of one, that looks at the mode or may do so."""
_OURS = "is_of_instep"
_LIBRARIES = ("torch.nn.modules.", "torch.nn.parallel.", "builtins", "typing", "abc")
"""Where classes come from of which none notices but those that are known to."""
_MOST = 256
"""Functions of one class that are read, with those that they call."""
_MEMBERS = (property, classmethod, staticmethod, cached_property)
_UNREADABLE = frozenset({"(code that cannot be read)"})

_KNOWN: dict[type, Callable[[Any], bool]] = {
    dropout._DropoutNd: lambda layer: layer.p > 0,  # noqa: SLF001
    batchnorm._NormBase: lambda layer: (  # noqa: SLF001
        layer.track_running_stats or layer.running_mean is not None
    ),
    nn.SyncBatchNorm: lambda _: True,  # over all ranks in train mode, whatever it keeps
    nn.RNNBase: lambda layer: layer.dropout > 0,
    nn.MultiheadAttention: lambda layer: layer.dropout > 0,
    nn.RReLU: lambda layer: layer.lower != layer.upper,
}


def notices_mode(model: nn.Module) -> bool:
    """Say whether a model may do something else in eval mode than in train mode."""
    read: dict[type, frozenset[str]] = {}
    return any(_notices(module, read) for module in model.modules())


def _notices(module: nn.Module, read: dict[type, frozenset[str]]) -> bool:
    if isinstance(module, torch.jit.ScriptModule) or _is_compiled(module):
        return True
    for cls in type(module).__mro__:
        known = _KNOWN.get(cls)
        if known is not None and known(module):
            return True
        if cls not in read:
            is_known = known is not None or cls.__module__.startswith(_LIBRARIES)
            read[cls] = frozenset() if is_known else _named_by(_functions(cls))
        # A part is asked itself, whatever it is called.
        if not read[cls] <= module._modules.keys():  # noqa: SLF001
            return True
    return not _named_by(_added(module)) <= module._modules.keys()  # noqa: SLF001


def _is_compiled(module: nn.Module) -> bool:
    if getattr(module, "_compiled_call_impl", None) is not None:
        return True
    return type(module).__module__.startswith("torch._dynamo")


def _functions(cls: type) -> Iterable[Any]:
    """Give what a class defines and what may run in a call of its modules."""
    for name, member in vars(cls).items():
        if name != "__init__" and (callable(member) or isinstance(member, _MEMBERS)):
            yield member


def _added(module: nn.Module) -> Iterable[Any]:
    """Give the hooks of a module, and a `forward` that was put there by hand."""
    own = vars(module)
    for name in ("_forward_pre_hooks", "_forward_hooks"):
        yield from (hook for hook in own.get(name, {}).values() if not hasattr(hook, _OURS))
    if "forward" in own:
        yield own["forward"]


def _named_by(functions: Iterable[Any]) -> frozenset[str]:
    """Return the words that functions name, with those that they call by a global name."""
    found: set[str] = set()
    waiting, seen = list(functions), set[CodeType]()
    while waiting:
        function = _plain(waiting.pop())
        code = getattr(function, "__code__", None)
        if function is None or code in seen:
            continue
        if not isinstance(code, CodeType) or len(seen) >= _MOST:
            return _UNREADABLE
        seen.add(code)
        names = set(_names(code))
        found.update(name for name in names if any(word in name for word in _WORDS))
        called = (function.__globals__.get(name) for name in names)
        waiting += [each for each in called if isinstance(each, FunctionType) and not _is_of(each)]
    return frozenset(found)


def _plain(member: Any) -> Any:
    """Return the function behind a member of a class; None if nothing of it runs."""
    if isinstance(member, property | cached_property):
        return member.fget if isinstance(member, property) else member.func
    if isinstance(member, classmethod | staticmethod | MethodType):
        member = member.__func__
    while hasattr(member, "__wrapped__"):
        member = member.__wrapped__
    if isinstance(member, FunctionType):
        return member
    # A class inside of one is no part of its calls; an object that can be called is.
    is_apart = isinstance(member, type | BuiltinFunctionType)
    return None if is_apart else type(member).__call__


def _is_of(function: FunctionType) -> bool:
    """Say whether a function is torch's: it is known by its name."""
    return (function.__module__ or "").partition(".")[0] == "torch"


def _names(code: CodeType) -> Iterable[str]:
    """Give the names in a piece of code: of attributes, globals, and arguments by keyword."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
        parts = constant if isinstance(constant, tuple) else (constant,)
        yield from (part for part in parts if isinstance(part, str) and part.isidentifier())
