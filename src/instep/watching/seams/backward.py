"""Backward: every way into it goes through one function of PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from instep.watching.byhand import ByHand
from instep.watching.losses import root_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.watching.seam import Seam


def install(seam: Seam) -> None:
    """Watch `torch.autograd.backward`, which `Tensor.backward` calls."""
    recorder = seam.recorder
    by_hand = ByHand(recorder.book, recorder.sampler.gauges)

    def backward(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if recorder.is_going_back:  # a reentrant checkpoint goes backward inside of a backward
            return original(*args, **kwargs)
        root = root_of(args[0] if args else kwargs.get("tensors"))
        before = None
        try:  # as `seam.safely` does it, in less time: this is done at every backward
            given = args[1] if len(args) > 1 else kwargs.get("grad_tensors")
            # What begins with a gradient of the user's own is no loss that could be read.
            before = recorder.backwards.before(root if given is None else None)
            if not recorder.series.updates:
                by_hand.before_backward(root)
        except Exception as error:  # noqa: BLE001
            seam.fault(error)
        recorder.is_going_back = True
        try:
            done = original(*args, **kwargs)
        except Exception:
            recorder.sampler.ranks.fell()
            raise
        finally:
            recorder.is_going_back = False
        try:
            recorder.backwards.after(root, before)
            if not recorder.series.updates:
                by_hand.after_backward(recorder.place())
        except Exception as error:  # noqa: BLE001
            seam.fault(error)
        return done

    seam.patches.replace(torch.autograd, "backward", backward)
