"""What a loss is, read from its graph before backward frees it.

From the root down: multipliers, then the operation that made one number out of many. Nothing is
computed, and nothing is fetched from a device.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from instep.trace.saved import saved

if TYPE_CHECKING:
    from torch import Tensor

_Term: TypeAlias = "tuple[Any, tuple[float, ...]]"

_DEEPEST = 32
_SAME = frozenset(
    {"ToCopyBackward0", "NegBackward0", "ViewBackward0", "SqueezeBackward0", "SqueezeBackward1",
     "ReshapeAliasBackward0", "CloneBackward0", "AliasBackward0", "UnsqueezeBackward0",
     "SelectBackward0", "UnsafeViewBackward0", "RsubBackward1"}
)  # fmt: skip
"""Operations that neither multiply nor reduce."""
_SUMS = frozenset({"AddBackward0", "SubBackward0"})
_FACTORS = frozenset({"MulBackward0", "DivBackward0"})
_ABOVE = _SAME | _SUMS | _FACTORS
"""Operations below which the one that reduces is still to come."""
_MOST_TERMS = 8
_PRODUCTS = frozenset({"MmBackward0"})
_TURNS = frozenset({"TBackward0", "TransposeBackward0", "PermuteBackward0", "NumpyTBackward0"})
_BEFORE = frozenset({"LogSoftmaxBackward0", "DivBackward0", "MulBackward0"})
"""What stands between logits and their loss, and the temperature."""
_MEAN, _SUM = 1, 2  # torch's numbers for the reductions of its losses
_ALONE: dict[str, dict[int, Reading]] = {}
"""By name and reduction: losses of torch's own without a factor, as they are at a glance."""


class Reading(NamedTuple):
    """What is known about a loss; None where it is not."""

    parts: tuple[float, ...] | None = ()
    """Multipliers, from the outermost inwards, without the loss scale."""
    reduction: str | None = None
    items: Any = None
    """A number, or a tensor that need not be on the host: what the mean is over."""
    kind: str | None = None
    """The operation at the bottom, as autograd calls it."""
    masked: bool = False
    """It is a sum over a count of some of its elements, which need not all be its own."""
    coupled: bool = False
    """Samples are compared with one another: the logits are products of two outputs."""

    @property
    def factor(self) -> float | None:
        """The product of the multipliers."""
        if self.parts is None:
            return None
        product = 1.0
        for part in self.parts:
            product *= part
        return product


def read(loss: Tensor, *, scaled: bool = False) -> Reading:
    """Read a loss; `scaled` says that the outermost multiplication is a scaler's.

    >>> import torch
    >>> x = torch.ones(8, requires_grad=True)
    >>> read(x.mean() / 4 + 0.1 * x.square().mean())[:3]
    ((0.25,), 'mean', 8)
    """
    return read_from(loss.grad_fn, scaled=scaled)


def read_from(node: Any, *, scaled: bool = False, closely: bool = True) -> Reading:
    """Read a loss from the operation that made it.

    `closely` asks for the items as well, and whether they are compared. Every tensor and operation
    that is looked at costs a Python object, which is much where a step takes 0.2 ms.
    """
    name = None if node is None else node.name()
    if name is not None and name not in _ABOVE:  # most losses are one function
        alone = None if closely else _ALONE.get(name)
        known = None if alone is None else alone.get(node._saved_reduction)  # noqa: SLF001
        return known or _alone(node, name, closely=closely)
    terms: list[Reading] = []
    waiting: list[_Term] = [(node, ())]
    while waiting and len(terms) < _MOST_TERMS:
        first = scaled and not terms
        terms.append(_term(*waiting.pop(), waiting, scaled=first, closely=closely))
    return terms[0] if len(terms) == 1 else max(terms, key=_weight)


def _alone(node: Any, name: str, *, closely: bool) -> Reading:
    """Read a loss that is one function; at a glance, the same one is read once."""
    reading = _bottom(node, name, [], None, closely=closely)
    reduction = None if closely else _known(node, "_saved_reduction")
    if reduction in {_MEAN, _SUM} and name[-1].isdigit():  # nobody else's has such a name
        _ALONE.setdefault(name, {})[reduction] = reading
    return reading


def _weight(term: Reading) -> tuple[int, float]:
    """Order the terms of a sum: the largest one that is surely a mean speaks for all."""
    known = {"mean": 2, "sum": 1}.get(term.reduction or "", 0)
    return known, abs(term.factor or 0.0)


def _term(
    node: Any, before: tuple[float, ...], waiting: list[_Term], *, scaled: bool, closely: bool
) -> Reading:
    """Read one term, from multipliers `before` it; the second one of a sum is left to wait."""
    parts = list(before)
    divisor: Any = None  # what the innermost multiplier divides by
    for _ in range(_DEEPEST):
        if node is None:
            break
        name = node.name()
        if name in _FACTORS:
            if scaled:
                scaled = False
            else:
                other = saved(node, "other")
                number = _number(other)
                if number is None or not number:
                    return Reading(None, kind=name)
                divisor = other if name[0] == "D" else None
                parts.append(1 / number if name[0] == "D" else number)
        elif name in _SUMS:
            second = node.next_functions[1][0]
            if second is not None:
                waiting.append((second, tuple(parts)))
        elif name not in _SAME:
            return _bottom(node, name, parts, divisor, closely=closely)
        node = node.next_functions[0][0] if node.next_functions else None
    return Reading(tuple(parts))


def _bottom(node: Any, name: str, parts: list[float], divisor: Any, *, closely: bool) -> Reading:
    """Read the operation that reduces."""
    if name.startswith("MeanBackward"):
        return Reading(tuple(parts), "mean", _known(node, "_saved_self_sym_numel"), name)
    if name.startswith("SumBackward"):
        if divisor is None:
            return Reading(tuple(parts), "sum", None, name)
        return _divided(node, name, parts, round(1 / parts[-1], 6))
    reduction = _known(node, "_saved_reduction")
    if reduction in {_MEAN, _SUM}:
        said = "mean" if reduction == _MEAN else "sum"
        items = _items(node) if closely else None
        return Reading(tuple(parts), said, items, name, coupled=closely and _is_coupled(node))
    if not name[-1].isdigit():  # somebody's own function, or a compiled one: it may divide inside
        return Reading(None, kind=name)
    return Reading(tuple(parts), kind=name)


def _items(node: Any) -> Any:
    """Return what a loss of torch's own is a mean of: a count of it, or all there is."""
    if hasattr(node, "_raw_saved_total_weight"):
        return saved(node, "total_weight")
    whole = saved(node, "self")
    return None if whole is None else whole.numel()


def _divided(node: Any, name: str, parts: list[float], count: float) -> Reading:
    """Read a sum over a count: a mean written out, or a share of something larger."""
    sizes = tuple(_known(node, "_saved_self_sym_sizes") or ())
    if count in accumulate(sizes, mul):
        return Reading(tuple(parts[:-1]), "mean", count, name)
    if count > prod(sizes):
        return Reading(tuple(parts), "sum", None, name)
    return Reading(tuple(parts[:-1]), "mean", count, name, masked=True)


def _is_coupled(node: Any) -> bool:
    """Say whether the logits of a loss are products of two outputs, neither of them a weight."""
    for _ in range(_DEEPEST):
        node = node.next_functions[0][0] if node.next_functions else None
        if node is None:
            return False
        name = node.name()
        if name in _PRODUCTS:
            return all(_is_output(part) for part, _ in node.next_functions)
        if name not in _SAME and name not in _BEFORE:
            return False
    return False


def _is_output(node: Any) -> bool:
    """Say whether something was computed, and is no parameter as it stands or turned around."""
    for _ in range(_DEEPEST):
        if node is None or node.name() == "torch::autograd::AccumulateGrad":
            return False
        if node.name() not in _TURNS and node.name() not in _SAME:
            return True
        node = node.next_functions[0][0] if node.next_functions else None
    return False


def _known(node: Any, name: str) -> Any:
    """Return a number, or several, that an operation has kept; for tensors there is `saved`."""
    try:
        return getattr(node, name, None)
    except RuntimeError:  # freed already: a second backward through the same graph
        return None


def _number(value: Any) -> float | None:
    """Return a multiplier as a number, if that needs no device."""
    if value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    # As `at_hand` says it: this is asked for at every backward.
    if value.numel() != 1 or value.device.type != "cpu" or value.requires_grad:
        return None
    return float(value)
