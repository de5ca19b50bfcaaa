"""Clipping: by norm and by value, under whichever name it was imported."""

from __future__ import annotations

import sys
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import clip_grad

from instep.watching.later import at_hand
from instep.watching.onlookers import dispatching, is_traced, overriding
from instep.watching.patches import compiler, compiling, flags
from instep.watching.warned import passed_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.watching.seam import Seam

_CALLS = {"clip_grad_norm_": ("norm", "max_norm"), "clip_grad_value_": ("value", "clip_value")}


def install(seam: Seam) -> None:
    """Watch the functions of `torch.nn.utils` that clip gradients."""
    for name, (by, limit) in _CALLS.items():
        original = getattr(clip_grad, name)
        for owner in _importers(name, original):
            seam.patches.put(owner, name, partial(_around, seam, by, limit))


def _importers(name: str, original: object) -> list[Any]:
    """Return the modules that have the function under its own name: torch's, and the user's."""
    found = [torch.nn.utils, clip_grad]
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if names.get(name) is original and module not in found:
            found.append(module)
    return found


def _around(seam: Seam, by: str, limit: str, original: Callable[..., Any]) -> Callable[..., Any]:
    recorder, patches, threads = seam.recorder, seam.patches, seam.patches.threads

    @passed_over
    def among(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        """Do the same where modes are on, which are not to see it."""
        if is_traced():
            return original(parameters, *args, **kwargs)
        parameters, kept = _kept(parameters)
        with seam.safely():
            recorder.noticed()
        norm = original(parameters, *args, **kwargs)
        with seam.safely():
            most: Any = args[0] if args else kwargs.get(limit)
            recorder.clipped(kept, by, at_hand(most), norm)
        return norm

    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if (
            compiling()
            or compiler() is not None
            or flags._is_compiling_flag  # noqa: SLF001
            or not patches.is_open
            or not (get_ident() == threads.home or threads.hears())
        ):
            return original(parameters, *args, **kwargs)
        if dispatching() or overriding():
            return among(parameters, *args, **kwargs)
        parameters, kept = _kept(parameters)
        try:  # as `seam.safely` does it, in less time: this is done at every update
            recorder.noticed()
        except Exception as error:  # noqa: BLE001
            seam.fault(error)
        norm = original(parameters, *args, **kwargs)
        try:
            most: Any = args[0] if args else kwargs.get(limit)
            recorder.clipped(kept, by, most if type(most) is float else at_hand(most), norm)
        except Exception as error:  # noqa: BLE001
            seam.fault(error)
        return norm

    return clip


def _kept(parameters: Any) -> tuple[Any, list[Any]]:
    """Return what is given on, and all of it."""
    if isinstance(parameters, torch.Tensor):
        return parameters, [parameters]
    kept = list(parameters)
    # Given on as what it was: an empty generator is warned about.
    is_empty = not kept and _is_generator(parameters)
    return (each for each in kept) if is_empty else kept, kept


def _is_generator(value: object) -> bool:
    return hasattr(value, "send")
