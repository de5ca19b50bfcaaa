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

    _Said: TypeAlias = "tuple[Reading, Any]"
    """What is the same every time, and the items."""
    _Term: TypeAlias = "tuple[Any, tuple[float, ...]]"

GLANCE, COUNT, COMPARE = range(3)
"""How closely a loss is read."""
_DEEPEST = 32
_SAME = frozenset(
    {"ToCopyBackward0", "NegBackward0", "ViewBackward0", "SqueezeBackward0", "SqueezeBackward1",
     "ReshapeAliasBackward0", "CloneBackward0", "AliasBackward0", "UnsqueezeBackward0",
     "SelectBackward0", "UnsafeViewBackward0", "RsubBackward1"}
)  # fmt: skip
"""Operations that neither multiply nor reduce. An operation is known by the name of its type, which
is what autograd calls it where it is torch's own, and takes no call."""
_SUMS = frozenset({"AddBackward0", "SubBackward0"})
_DIVISION = "DivBackward0"
_FACTORS = frozenset({"MulBackward0", _DIVISION})
_MOST_TERMS = 8
_LEAF = "AccumulateGrad"
_PRODUCTS = frozenset({"MmBackward0"})
_TURNS = frozenset({"TBackward0", "TransposeBackward0", "PermuteBackward0", "NumpyTBackward0"})
_BEFORE = frozenset({"LogSoftmaxBackward0", "DivBackward0", "MulBackward0"}) | _SAME
"""What stands between logits and their loss, and the temperature."""
_AROUND = _TURNS | _SAME
_MEAN, _SUM = 1, 2  # torch's numbers for the reductions of its losses
_SAYS = {_MEAN: "mean", _SUM: "sum"}
_ALONE: dict[type, dict[int, Reading]] = {}
"""By operation and reduction: losses of torch's own without a factor, as they are at a glance."""
_MOST_READ = 1024
_READ: dict[tuple[Any, ...], Reading] = {}
"""Readings without items: the same one is one object."""


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
    """Read a loss from the operation that made it, as closely as may be or at a glance."""
    reading, items = look(node, scaled, COMPARE if closely else GLANCE)
    return reading._replace(items=items)


def look(node: Any, scaled: bool, depth: int) -> _Said:  # noqa: FBT001  # at every backward
    """Read a loss: what is the same every time, as one object, and its items beside it.

    depth: COUNT asks for the items as well, and COMPARE whether they are compared. Every tensor and
        operation that is looked at costs a Python object, which is much where a step takes 0.2 ms.
    """
    if depth == GLANCE and type(node) in _ALONE:  # most losses are one function
        known = _ALONE[type(node)].get(node._saved_reduction)  # noqa: SLF001
        if known is not None:
            return known, None
    waiting: list[_Term] = []
    first = _term(node, (), waiting, scaled, depth)
    if not waiting:
        return first
    terms = [first]
    while waiting and len(terms) < _MOST_TERMS:
        below, parts = waiting.pop()
        terms.append(_term(below, parts, waiting, False, depth))  # noqa: FBT003
    return max(terms, key=_weight)


def _weight(term: _Said) -> tuple[int, float]:
    """Order the terms of a sum: the largest one that is surely a mean speaks for all."""
    reading, _ = term
    known = {"mean": 2, "sum": 1}.get(reading.reduction or "", 0)
    return known, abs(reading.factor or 0.0)


def _term(
    node: Any,
    parts: tuple[float, ...],
    waiting: list[_Term],
    scaled: bool,  # noqa: FBT001
    depth: int,
) -> _Said:
    """Read one term, from multipliers `parts` before it; the second one of a sum has to wait."""
    divides = False  # the innermost multiplier does
    for _ in range(_DEEPEST):
        if node is None:
            break
        name = type(node).__name__
        if name in _FACTORS:
            if scaled:
                scaled = False
            else:
                number = _multiplier(node)
                if not number:
                    return _same(None, None, name), None
                divides = name == _DIVISION
                parts = (*parts, 1 / number if divides else number)
        elif name in _SUMS:
            second = node.next_functions[1][0]
            if second is not None:
                waiting.append((second, parts))
        elif name not in _SAME:
            return _bottom(node, name, parts, divides, depth)
        below = node.next_functions
        node = below[0][0] if below else None
    return _same(parts), None


def _bottom(
    node: Any,
    name: str,
    parts: tuple[float, ...],
    divides: bool,  # noqa: FBT001
    depth: int,
) -> _Said:
    """Read the operation that reduces."""
    if name[:12] == "MeanBackward":
        return _same(parts, "mean", name), _known(node, "_saved_self_sym_numel")
    if name[:11] == "SumBackward":
        if divides:
            return _divided(node, name, parts, round(1 / parts[-1], 6))
        return _same(parts, "sum", name), None
    try:
        reduction = node._saved_reduction  # noqa: SLF001
    except (AttributeError, RuntimeError):  # it has none, or none any more
        reduction = None
    if reduction in _SAYS:
        coupled = depth == COMPARE and _is_coupled(node)
        reading = _same(parts, _SAYS[reduction], name, coupled=coupled)
        if depth == GLANCE and not parts and name[-1].isdigit():  # nobody else's has such a name
            _ALONE.setdefault(type(node), {})[reduction] = reading
        return reading, _items(node) if depth else None
    if not name[-1].isdigit():  # somebody's own function, or a compiled one: it may divide inside
        return _same(None, None, node.name()), None
    return _same(parts, None, name), None


def _same(
    parts: tuple[float, ...] | None,
    reduction: str | None = None,
    kind: str | None = None,
    *,
    masked: bool = False,
    coupled: bool = False,
) -> Reading:
    """Return the reading of this, which is made the first time."""
    key = (parts, reduction, kind, masked, coupled)
    if key in _READ:
        return _READ[key]
    if len(_READ) >= _MOST_READ:  # a factor that is another one all the time
        _READ.clear()
    reading = Reading(parts, reduction, kind=kind, masked=masked, coupled=coupled)
    _READ[key] = reading
    return reading


def _items(node: Any) -> Any:
    """Return what a loss of torch's own is a mean of: a count of it, or all there is."""
    try:  # as `saved` does it
        raw = node._raw_saved_total_weight  # noqa: SLF001
        items = raw.data if raw.unpack_hook is None else None
    except AttributeError:
        whole = saved(node, "self")
        items = None if whole is None else whole.numel()
    except RuntimeError:
        items = None
    return items


def _divided(node: Any, name: str, parts: tuple[float, ...], count: float) -> _Said:
    """Read a sum over a count: a mean written out, or a share of something larger."""
    sizes = tuple(_known(node, "_saved_self_sym_sizes") or ())
    if count in accumulate(sizes, mul):
        return _same(parts[:-1], "mean", name), count
    if count > prod(sizes):
        return _same(parts, "sum", name), None
    return _same(parts[:-1], "mean", name, masked=True), count


def _is_coupled(node: Any) -> bool:
    """Say whether the logits of a loss are products of two outputs, neither of them a weight."""
    for _ in range(_DEEPEST):
        below = node.next_functions
        node = below[0][0] if below else None
        if node is None:
            return False
        name = type(node).__name__
        if name in _PRODUCTS:
            return all(_is_output(part) for part, _ in node.next_functions)
        if name not in _BEFORE:
            return False
    return False


def _is_output(node: Any) -> bool:
    """Say whether something was computed, and is no parameter as it stands or turned around."""
    for _ in range(_DEEPEST):
        name = type(node).__name__
        if node is None or name == _LEAF:
            return False
        if name not in _AROUND:
            return True
        below = node.next_functions
        node = below[0][0] if below else None
    return False


def _known(node: Any, name: str) -> Any:
    """Return a number, or several, that an operation has kept; for tensors there is `saved`."""
    try:
        return getattr(node, name, None)
    except RuntimeError:  # freed already: a second backward through the same graph
        return None


def _multiplier(node: Any) -> float | None:
    """Return what an operation multiplies or divides by, if it is a number and needs no device."""
    try:  # as `saved` does it
        raw = node._raw_saved_other  # noqa: SLF001
        value = raw.data if raw.unpack_hook is None else None
    except (AttributeError, RuntimeError):
        return None
    # As `at_hand` says it: this is asked for at every backward.
    if value is None or not value.is_cpu or value.requires_grad:
        return None
    return None if value.ndim and value.numel() != 1 else float(value)
