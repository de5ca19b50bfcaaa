"""Models: called, set to train or eval, cleared, and changed after an optimizer was made."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from torch.jit import _recursive
from torch.nn import Module, Parameter

from instep.watching.onlookers import dispatching, is_traced, overriding
from instep.watching.patches import compiler, compiling, flags, uncompiled
from instep.watching.wrappers import path_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.watching.seam import Seam

_HOOKS = ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs")
_MARK = "is_of_instep"


def install(seam: Seam) -> None:
    """Watch what is done to models as a whole."""
    recorder = seam.recorder
    depth = 0

    def train(original: Callable[..., Any], self: Module, mode: bool = True) -> Any:  # noqa: FBT001, FBT002
        nonlocal depth
        if depth == 0:
            with seam.safely():
                recorder.models.mode(self, training=bool(mode))
        depth += 1  # its parts are set as well
        try:
            return original(self, mode)
        finally:
            depth -= 1

    def zero(original: Callable[..., Any], self: Module, *args: Any, **kwargs: Any) -> Any:
        with seam.safely():
            recorder.noticed()
        done = original(self, *args, **kwargs)
        with seam.safely():
            set_to_none = args[0] if args else kwargs.get("set_to_none", True)
            recorder.clearing.by_model(self, set_to_none=bool(set_to_none))
        return done

    def assign(original: Callable[..., Any], self: Module, name: str, value: Any) -> None:
        old = None
        if isinstance(value, Module | Parameter):
            with seam.safely():
                old = self._modules.get(name) or self._parameters.get(name)
        original(self, name, value)
        if old is not None and old is not value:
            with seam.safely():
                _replaced(seam, self, name, old, value)

    seam.patches.replace(Module, "train", train)
    seam.patches.replace(Module, "zero_grad", zero)
    seam.patches.replace(Module, "__setattr__", assign)
    seam.patches.replace(Module, "__getstate__", _saved)
    seam.patches.replace(_recursive, "create_script_module", _scripted)


def _saved(original: Callable[..., Any], self: Module) -> Any:
    """Return what a model is pickled or copied as: without our hook, which is nobody else's."""
    state = original(self)
    ours = _ours(self)
    if ours and isinstance(state, dict):
        state = dict(state)
        for name in _HOOKS:
            kept = {key: hook for key, hook in state[name].items() if key not in ours}
            state[name] = type(state[name])(kept)
    return state


def _scripted(original: Callable[..., Any], model: Module, *args: Any, **kwargs: Any) -> Any:
    """Let go of a model that is scripted: its hooks would be compiled, and ours cannot be."""
    for module in model.modules():
        for key in _ours(module):
            for name in _HOOKS:
                getattr(module, name).pop(key, None)
    return original(model, *args, **kwargs)


def _ours(model: Module) -> set[int]:
    hooks = vars(model).get(_HOOKS[0], {})
    return {key for key, hook in hooks.items() if hasattr(hook, _MARK)}


def _replaced(seam: Seam, owner: Module, name: str, old: Any, new: Any) -> None:
    """Tell of a layer that was replaced while an optimizer holds the parameters of the old one."""
    book = seam.recorder.book
    before = [old] if isinstance(old, Parameter) else list(old.parameters())
    held = [book.parameters.get(id(parameter)) for parameter in before]
    if not any(one is not None and one.optimizers for one in held):
        return
    after = [new] if isinstance(new, Parameter) else list(new.parameters())
    kept = {id(parameter) for parameter in before}
    if all(id(parameter) in kept or not parameter.requires_grad for parameter in after):
        return  # nothing of it is new and meant to be trained
    for one in held:
        for weak in () if one is None else book.owners(one):
            seam.recorder.optimizer(weak())  # it was there first
    was = next((one.model for one in held if one is not None and one.model is not None), None)
    weak = book.models.get(was) if was is not None else None
    model = None if weak is None else weak()
    whole = [was] if was is not None else [type(owner).__name__.lower()]
    inside = "" if model is None else path_in(model, owner)
    spelled = book.model_of(owner) or ".".join([*whole, *([inside] if inside else [])])
    seam.recorder.models.rebound(f"{spelled}.{name}", was, f"{spelled}.{name}")
    if model is not None:
        book.take_model(model)


def hook_forward(seam: Seam, model: Module) -> None:
    """Watch the calls of a model."""
    patches, models = seam.patches, seam.recorder.models
    threads, forward = patches.threads, models.forward

    @uncompiled
    def before(module: Module, args: Any, kwargs: Any) -> None:
        if compiling() or compiler() is not None or flags._is_compiling_flag or not patches.is_open:  # noqa: SLF001
            return
        if get_ident() != threads.home and not threads.hears():
            return
        if dispatching() or overriding():
            if not is_traced():
                with seam.safely():
                    forward(module, args, kwargs)
            return
        try:
            forward(module, args, kwargs)
        except Exception as error:  # noqa: BLE001
            seam.fault(error)

    setattr(before, _MARK, True)
    seam.recorder.book.keep(model.register_forward_pre_hook(before, with_kwargs=True))
