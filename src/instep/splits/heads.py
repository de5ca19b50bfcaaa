"""Heads: how many classes a model's outputs have, seen when the loss function calls it on a tile.

Where the probe has run it has told so. Independent patches need no probe, and images that are not
cut at all get none; which labels are classes is not known then until the model has answered once.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from instep.splits.tree import tensors
from instep.splits.trial import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from torch import Tensor, nn


class _Answered(BaseException):
    """Leaves the loss function once the model has answered: all else in it is none of our business.

    Not an Exception, so that nothing in the loss function handles it.
    """


def channels_seen(
    models: Sequence[nn.Module],
    call: Callable[[], Any],
    labels: Mapping[int, torch.Size],
) -> dict[int, int]:
    """Return the channels of the output that each label map belongs to, as far as that is seen.

    labels: the image sizes of each of them, on the tile that `call` runs on.

    An output of the labels' size is theirs; else any, because the loss function may resize it.
    """
    if any(_talks(model) for model in models):
        return {}
    found: dict[int, int] = {}
    others: list[int] = []

    def look(_module: nn.Module, _args: Any, result: Any) -> None:
        for made in tensors(result):
            _match(made, labels, found, others)
        # The first of several models may be one whose features the next one reads.
        if len(models) == 1 and len(found) == len(labels):
            raise _Answered

    with contextlib.ExitStack() as stack:
        for model in models:
            stack.enter_context(undisturbed(model))
            stack.callback(model.register_forward_hook(look).remove)
        # What fails here fails again when the tile is run, where it is the user's to see; what
        # fails only here (a gradient inside the loss, without a graph) is no fault of theirs.
        with contextlib.suppress(_Answered, Exception):
            call()
    return {**(dict.fromkeys(labels, others[-1]) if others else {}), **found}


def _talks(model: nn.Module) -> bool:
    """Whether a call of it waits for other ranks, which need not look at the same time."""
    names = {kind.__name__ for kind in type(model).__mro__}
    return bool(names & {"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"})


def _match(
    made: Tensor, labels: Mapping[int, torch.Size], found: dict[int, int], others: list[int]
) -> None:
    dims = len(next(iter(labels.values())))
    if made.dim() != dims + 2 or not made.is_floating_point():
        return
    others.append(made.shape[1])
    for number, sizes in labels.items():
        if made.shape[-dims:] == sizes:
            found[number] = made.shape[1]
