"""`Micro`: a batch cut along its samples, whatever structure its tensors come in."""

from __future__ import annotations

import operator
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal

from instep.errors import SplitError
from instep.splits.costs import costs_of, cut_by_cost, evenly
from instep.splits.cut import cutter_of, samples_of
from instep.splits.plan import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

    from instep.splits.costs import Cost


@dataclass(frozen=True, slots=True)
class Micro:
    """Cut a batch into micro-batches of `size` samples; the last one may be smaller.

    size: samples per piece; "auto" for as many as fit into memory, which `stepper.step` finds out.
    tokens: instead of a size, the most that a piece may cost; a sample costs its real tokens.
    dim: the dimension of the samples; 1 for data whose first one is time; None for a list that has
        one entry per sample.
    cost: with tokens, a function of the batch that returns one cost per sample.
    budget: with "auto", the bytes that forward and backward may use.

    Tensors are cut inside tuples, lists, dicts and dataclasses too, packed sequences and jagged
    nested tensors by their sequences. Lists without tensors are cut if they have one entry per
    sample; everything else goes to each piece.

    >>> import torch
    >>> [piece["x"].shape[0] for piece in Micro(2).pieces({"x": torch.ones(5, 3), "name": "train"})]
    [2, 2, 1]
    >>> mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]])
    >>> [len(piece["attention_mask"]) for piece in Micro(tokens=4).pieces({"attention_mask": mask})]
    [1, 2]
    """

    size: int | Literal["auto"] | None = None
    _: KW_ONLY
    tokens: float | None = None
    dim: int | None = 0
    cost: Cost | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        _require_size(self.size, self.tokens)
        if self.cost is not None and self.tokens is None:
            raise _wrong("cost", self.cost, "cost= belongs to tokens=: it is compared with it.")
        if self.tokens is not None and not _is_positive(self.tokens):
            raise _wrong("tokens", self.tokens, "tokens= is the most a piece may cost: above 0.")
        if self.budget is not None and not _is_positive(self.budget):
            raise SplitError(
                f"budget={self.budget!r} does not fit this split.",
                why="it is how many bytes forward and backward may use: a number above 0.",
                fix='pass the number of bytes: Micro("auto", budget=2 * 2**30) for 2 GiB.',
                more="split",
            )
        if self.budget is not None and not self.is_auto:
            raise _wrong("budget", self.budget, 'budget= belongs to Micro("auto").')
        if self.dim is not None and (whole_number(self.dim) is None or self.dim < 0):
            raise _wrong("dim", self.dim, "dim= is the dimension of the samples, from 0, or None.")

    @property
    def is_auto(self) -> bool:
        """Whether the size is found by measuring."""
        return self.size == "auto"

    def plan(self, batch: Any, models: Sequence[nn.Module] = ()) -> Rows:  # noqa: ARG002
        """Decide where to cut; an empty batch has no pieces."""
        samples, cutter = self.cutter(batch)
        if self.tokens is not None:
            costs = costs_of(batch, samples, self.dim, self.cost)
            return Rows(cut_by_cost(costs, float(self.tokens)), cutter, self.dim or 0)
        if self.size is None or self.size == "auto":
            raise SplitError(
                'Micro("auto") has no pieces of its own.',
                why="how much fits is measured while a window runs, by stepper.step.",
                fix='pass it to stepper.step(batch, loss_fn, split=instep.Micro("auto")); '
                "elsewhere, pass a number.",
                more="split",
            )
        return Rows(evenly(samples, operator.index(self.size)), cutter, self.dim or 0)

    def cutter(self, batch: Any) -> tuple[int, Callable[[slice], Any]]:
        """Return how many samples there are, and what makes pieces of them."""
        samples = samples_of(batch, self.dim)
        if samples is None:
            raise SplitError(
                "the batch has no tensor to cut.",
                why=f"it is a {type(batch).__name__} without tensors of one dimension or more.",
                fix="put the samples into tensors, along their first dimension; for a list with "
                "one entry per sample, pass split=instep.Micro(8, dim=None).",
                more="split",
            )
        return samples, cutter_of(batch, samples, self.dim)

    def pieces(self, batch: Any) -> Iterator[Any]:
        """Yield the pieces in order."""
        return (piece.value for piece in self.plan(batch))

    @staticmethod
    def samples(batch: Any, dim: int | None = 0) -> int | None:
        """Return how many samples a batch has; None if it holds no tensor that could tell."""
        return samples_of(batch, dim)


def whole_number(value: Any) -> int | None:
    """Return a whole number of whatever integer type as an int, and None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _require_size(size: Any, tokens: Any) -> None:
    if tokens is not None:
        if size is not None:
            raise _wrong("tokens", tokens, "a piece is bounded by its samples or by its tokens.")
    elif not (isinstance(size, str) and size == "auto") and (whole_number(size) or 0) < 1:
        raise SplitError(
            f"split is {size!r}.",
            why="it is how many samples each piece has.",
            fix='pass split=32, for example, or split=instep.Micro("auto").',
            more="split",
        )


def _is_positive(bound: Any) -> bool:
    is_number = isinstance(bound, float) or whole_number(bound) is not None
    return is_number and 0 < bound < float("inf")


def _wrong(name: str, value: Any, why: str) -> SplitError:
    return SplitError(
        f"{name}={value!r} does not fit this split.",
        why=why,
        fix='Micro(8), Micro(tokens=4096, cost=...), Micro("auto", budget=...), each with dim=.',
        more="split",
    )
