"""Clipping: by norm and by value, under whichever name it was imported."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import clip_grad

from instep.watching.later import at_hand

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.watching.seam import Seam

_CALLS = {"clip_grad_norm_": ("norm", "max_norm"), "clip_grad_value_": ("value", "clip_value")}


def install(seam: Seam) -> None:
    """Watch the functions of `torch.nn.utils` that clip gradients."""
    for name, (by, limit) in _CALLS.items():
        around = _around(seam, by, limit)
        original = getattr(clip_grad, name)
        for owner in _importers(name, original):
            seam.patches.replace(owner, name, around)


def _importers(name: str, original: object) -> list[Any]:
    """Return the modules that have the function under its own name: torch's, and the user's."""
    found = [torch.nn.utils, clip_grad]
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if names.get(name) is original and module not in found:
            found.append(module)
    return found


def _around(seam: Seam, by: str, limit: str) -> Callable[..., Any]:
    def clip(original: Callable[..., Any], parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(parameters, torch.Tensor):
            kept = list(parameters)
            # Given on as what it was: an empty generator is warned about.
            is_empty = _is_generator(parameters) and not kept
            parameters = (each for each in kept) if is_empty else kept
        else:
            kept = [parameters]
        with seam.safely():
            seam.recorder.noticed()
        norm = original(parameters, *args, **kwargs)
        with seam.safely():
            most: Any = args[0] if args else kwargs.get(limit)
            seam.recorder.clipped(kept, by, at_hand(most), norm)
        return norm

    return clip


def _is_generator(value: object) -> bool:
    return hasattr(value, "send")
