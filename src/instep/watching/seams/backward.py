"""Backward: every way into it goes through one function of PyTorch."""

from __future__ import annotations

from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch

from instep.watching.byhand import ByHand
from instep.watching.losses import root_of
from instep.watching.onlookers import dispatching, is_traced, overriding
from instep.watching.patches import compiler, compiling, flags
from instep.watching.warned import passed_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.watching.seam import Seam


def install(seam: Seam) -> None:
    """Watch `torch.autograd.backward`, which `Tensor.backward` calls."""
    seam.patches.put(torch.autograd, "backward", lambda original: _around(seam, original))


def _around(seam: Seam, original: Callable[..., Any]) -> Callable[..., Any]:
    recorder, patches = seam.recorder, seam.patches
    backwards, updates = recorder.backwards, recorder.series.updates
    threads, by_hand = patches.threads, ByHand(recorder.book, recorder.sampler.gauges)
    among = _among(seam, original, by_hand)

    def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not patches.is_open or compiling() or compiler() is not None or flags._is_compiling_flag:  # noqa: SLF001
            return original(tensors, grad_tensors, *args, **kwargs)
        # A reentrant checkpoint goes backward inside of a backward.
        if recorder.is_going_back or not (get_ident() == threads.home or threads.claims()):
            return threads.unseen(partial(original, tensors, grad_tensors, *args, **kwargs))
        if dispatching() or overriding():
            return among(tensors, grad_tensors, *args, **kwargs)
        root = before = None
        try:  # as `seam.safely` does it, in less time: this is done at every backward
            root = tensors if type(tensors) is torch.Tensor else root_of(tensors)
            # What begins with a gradient of the user's own is no loss that could be read.
            before = backwards.before(root if grad_tensors is None else None)
            if not updates:
                by_hand.before_backward(root)
        except Exception as error:  # noqa: BLE001
            seam.fault(error)
        recorder.is_going_back = True
        try:
            done = original(tensors, grad_tensors, *args, **kwargs)
        except Exception:
            recorder.sampler.ranks.fell()
            raise
        finally:
            recorder.is_going_back = False
        try:
            backwards.after(root, before)
            if not updates:
                by_hand.after_backward(recorder.place())
        except Exception as error:  # noqa: BLE001
            seam.fault(error)
        return done

    return backward


def _among(seam: Seam, original: Callable[..., Any], by_hand: ByHand) -> Callable[..., Any]:
    """Return what does the same where modes are on, which are not to see it."""
    recorder = seam.recorder
    backwards, updates = recorder.backwards, recorder.series.updates

    def backward(tensors: Any, grad_tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if is_traced():
            return original(tensors, grad_tensors, *args, **kwargs)
        root = before = None
        with seam.safely():
            root = root_of(tensors)
            before = backwards.before(root if grad_tensors is None else None)
            if not updates:
                by_hand.before_backward(root)
            recorder.sampler.lowprecision.close()  # its hook would be called among them
        recorder.is_going_back = True
        try:
            done = original(tensors, grad_tensors, *args, **kwargs)
        except Exception:
            recorder.sampler.ranks.fell()
            raise
        finally:
            recorder.is_going_back = False
        with seam.safely():
            backwards.after(root, before)
            if not updates:
                by_hand.after_backward(recorder.place())
        return done

    return passed_over(backward)
