"""Backward: every way into it goes through one function of PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from instep.watching.losses import root_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.watching.seam import Seam


def install(seam: Seam) -> None:
    """Watch `torch.autograd.backward`, which `Tensor.backward` calls."""
    recorder = seam.recorder
    depth = 0

    def backward(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        if depth:  # a reentrant checkpoint goes backward inside of a backward
            return original(*args, **kwargs)
        root = root_of(args[0] if args else kwargs.get("tensors"))
        before = None
        with seam.safely():
            given = args[1] if len(args) > 1 else kwargs.get("grad_tensors")
            # What begins with a gradient of the user's own is no loss that could be read.
            before = recorder.before_backward(root if given is None else None)
        depth += 1
        try:
            done = original(*args, **kwargs)
        finally:
            depth -= 1
            recorder.going_backward = False
        with seam.safely():
            recorder.after_backward(root, before)
        return done

    seam.patches.replace(torch.autograd, "backward", backward)
