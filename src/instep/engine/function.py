"""Function style: the engine owns the split, and calls the user's loss function on each piece."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from torch import Tensor

from instep.engine.ranks.world import SHARDED, wrapper_of
from instep.errors import ItemsError, LossError, SetupError, SplitError
from instep.splits.micro import Micro
from instep.splits.patches import Patches
from instep.splits.plan import Uncut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import nn

    from instep.engine.window import Window
    from instep.splits.plan import Piece, Plan

    Split = int | Micro | Patches | None


def run_pieces(
    window: Window,
    plan: Iterable[Piece],
    loss_fn: Callable[[Any], Any],
    *,
    optimizer: str | None,
) -> None:
    """Run every piece of a batch through an open window."""
    means = window.lanes[0].means
    for piece in plan:
        with piece.around():
            result = loss_fn(piece.value)
        loss, items = read_result(result, piece.items, piece.refused)
        looked = nullcontext() if means is None else means.returned(is_told=loss is not result)
        with looked:
            window.backward(loss, items=items, optimizer=optimizer)


def plan_of(batch: Any, split: Split, models: Sequence[nn.Module]) -> Plan:
    """Cut a batch as asked."""
    if split is None:
        return Uncut(batch, *count_in(batch, split))
    if isinstance(split, str) and split == "auto":
        raise SplitError(
            "split is 'auto'.",
            why="a number is how many samples each piece has; other ways to cut are objects.",
            fix='pass split=instep.Micro("auto") to stepper.step, for as many as fit.',
            more="split",
        )
    cut = split if isinstance(split, Micro | Patches) else Micro(split)
    if isinstance(cut, Patches) and cut.halo != 0:
        _require_copyable(models if cut.model is None else [cut.model])
    return cut.plan(batch, models)


def samples_in(batch: Any, split: Any) -> int | None:
    """Return how many samples a batch has; None if that cannot be told.

    It is asked of batches that are not cut, too, whose tensors may be of any sizes.
    """
    return count_in(batch, split)[0]


def count_in(batch: Any, split: Any) -> tuple[int | None, SplitError | None]:
    """Return how many samples a batch has, and what was refused if that cannot be told."""
    dim = split.dim if isinstance(split, Micro) else 0
    try:
        return Micro.samples(batch, dim), None
    except SplitError as error:
        # Its frames would keep the batch.
        return None, error.with_traceback(None)


def _require_copyable(models: Sequence[nn.Module]) -> None:
    """Refuse to look into a model of which this process has a part."""
    if any(wrapper_of(module) == SHARDED for model in models for module in model.modules()):
        raise SetupError(
            "split=instep.Patches(...) with a model that fully_shard has cut.",
            why="how far a model looks is measured and proven on a copy of it, and FSDP's modules "
            "cannot be copied.",
            fix="wrap the model in DistributedDataParallel; or cut images into patches that are "
            "independent of each other, with halo=0: the sum of these, not the whole images.",
            more="ranks",
        )


def read_result(
    result: Any, samples: int | None, refused: SplitError | None = None
) -> tuple[Any, Any]:
    """Return loss and items, or terms of them, from whatever form the loss function returned.

    refused: why samples could not be counted, where they could not.
    """
    if isinstance(result, Tensor):
        if samples is None and refused is not None:
            raise LossError(
                "the loss function returned a loss without its items.",
                why=f"its samples cannot be counted: {refused.what} {_sentence(refused.why)}",
                fix=f"return (loss, items), with what this loss divides by; or {refused.fix}",
                more="items",
            ) from refused
        if samples is None:
            raise LossError(
                "the loss function returned a loss without its items.",
                why="nothing else tells what its mean is over: the batch holds no tensor whose "
                "length could be counted, or has targets with different numbers of pixels that "
                "count, or labels (255, or below 0) that may be ignored, and no output tells the "
                "classes.",
                fix="return (loss, items), with what this loss divides by. For patches, ignore=255 "
                "tells which label does not count, and ignore=None that all do.",
                more="items",
            )
        return result, samples
    if isinstance(result, tuple) and len(result) == 2:
        return result
    if isinstance(result, Mapping):
        bare = [n for n, term in result.items() if not isinstance(term, tuple) or len(term) != 2]
        if not bare:
            losses = {name: term[0] for name, term in result.items()}
            return losses, {name: term[1] for name, term in result.items()}
        raise ItemsError(
            f"the loss function returned term {bare[0]!r} without its items.",
            why="each named term is a mean over items of its own, and nothing else tells them.",
            fix=f"return {{{bare[0]!r}: (loss, items), ...}}, or a loss of one term alone.",
            more="terms",
        )
    raise LossError(
        f"the loss function returned a {type(result).__name__}.",
        why="it returns loss, (loss, items), or a mapping of terms to (loss, items).",
        fix="return (loss, items), where the loss is the mean over its items.",
        more="loss",
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
