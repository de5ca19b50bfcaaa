"""What an encoder returned for each piece, put together as if it had been given the whole."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Number
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from instep.errors import SplitError
from instep.splits.tree import objects, rebuild, tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from instep.splits.plan import Plan


class Joint:
    """The representations of all pieces, of one encoder: a tree of tensors."""

    def __init__(self, plan: Plan, *, summed: bool) -> None:
        self._plan = plan
        self.is_summed = summed
        self._tree: Any = None
        self._parts: list[list[Tensor]] = []
        self._sums: list[Tensor] = []
        self.carries: list[bool] = []
        """Which tensors carry a gradient, in at least one piece."""

    def __len__(self) -> int:
        return len(self.carries)

    def add(self, tree: Any) -> None:
        """Take what the encoder returned for the next piece, without its graph."""
        leaves = list(tensors(tree))
        if self._tree is None:
            _require_some(tree, leaves)
            if self.is_summed:
                _refuse_numbers(tree)
            # Only the structure: the tensors themselves would be held twice.
            self._tree = rebuild(tree, _bare)
            self._parts = [[] for _ in leaves]
            self.carries = [False] * len(leaves)
        elif not _alike(tree, self._tree):
            _refuse_structure(tree)
        for index, leaf in enumerate(leaves):
            self.carries[index] |= leaf.requires_grad
            if not self.is_summed:
                self._parts[index].append(_alone(leaf))
            elif len(self._sums) <= index:
                self._sums.append(wide(leaf.detach()).clone())
            else:
                self._add_to_sum(index, leaf)

    def _add_to_sum(self, index: int, leaf: Tensor) -> None:
        total = self._sums[index]
        if total.shape != leaf.shape:
            raise SplitError(
                f"encode returned {tuple(total.shape)} for one piece and {tuple(leaf.shape)} for "
                "another.",
                why='combine="sum" adds up what it returns, so that it has one shape.',
                fix="let encode return a sum over its piece, without its samples or pixels.",
                more="two-pass",
            )
        total.add_(leaf.detach())

    def joined(self) -> list[Tensor]:
        """Return the tensors of the whole, in the order of the tree; parts are let go."""
        if self.is_summed:
            types = [leaf.dtype for leaf in tensors(self._tree)]
            return [total.to(dtype) for total, dtype in zip(self._sums, types, strict=True)]
        whole = []
        for parts in self._parts:
            whole.append(self._join(parts))
            parts.clear()
        return whole

    def _join(self, parts: Sequence[Tensor]) -> Tensor:
        shapes = [tuple(part.shape) for part in parts]
        try:
            whole = self._plan.join(parts)
        except (RuntimeError, IndexError) as error:
            raise SplitError(
                f"the representations of the pieces do not fit together: {_short(shapes)}.",
                why=f"{error}.",
                fix="return one row per sample, all of the same shape (pad to a fixed length); "
                'what has no rows belongs in loss_fn, or is added up with combine="sum".',
                more="two-pass",
            ) from error
        for index, shape in enumerate(shapes):
            back = tuple(self._plan.part(whole, index).shape)
            if back != shape:
                raise SplitError(
                    f"encode returned {shape} for piece {index}, where {back} belongs to it.",
                    why="the gradient of each piece is cut out of the gradient of all: one row for "
                    "each of its samples, in their order.",
                    fix="return one row per sample (several views: [samples, views, ...]), and "
                    'select inside loss_fn; add up with combine="sum" what is pooled.',
                    more="two-pass",
                )
        return whole

    def tree(self, leaves: Iterator[Tensor]) -> Any:
        """Return the structure with these tensors in it."""
        return rebuild(self._tree, lambda v: next(leaves) if isinstance(v, Tensor) else v)

    def part(self, whole: Tensor, index: int) -> Tensor:
        """Return what belongs to piece `index`."""
        return whole if self.is_summed else self._plan.part(whole, index)


def wide(tensor: Tensor) -> Tensor:
    """Return a tensor in a type to sum in."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _alone(leaf: Tensor) -> Tensor:
    """Return a tensor without graph that holds no more memory than it shows."""
    bare = leaf.detach()
    if bare.layout != torch.strided:
        raise SplitError(
            f"encode returned a tensor of layout {bare.layout}.",
            why="only dense tensors are put together along their samples.",
            fix="return dense tensors: representation.to_dense().",
            more="two-pass",
        )
    if bare.untyped_storage().nbytes() > bare.numel() * bare.itemsize:
        return bare.clone()
    return bare


def _bare(value: Any) -> Any:
    return torch.empty(0, dtype=value.dtype, device="meta") if isinstance(value, Tensor) else value


def _require_some(tree: Any, leaves: Sequence[Tensor]) -> None:
    if not leaves:
        raise SplitError(
            f"encode returned a {type(tree).__name__} without a tensor.",
            why="what it returns for each piece is put together and given to the loss.",
            fix="return the representations: a tensor, or tensors in a tuple, list, dict or "
            "dataclass.",
            more="two-pass",
        )


def _refuse_numbers(tree: Any) -> None:
    for value in objects(tree):
        if not isinstance(value, bool) and isinstance(value, Number):
            raise SplitError(
                f"encode returned a number, {value!r}, beside what is summed.",
                why='combine="sum" adds up tensors; a number would stay that of one piece.',
                fix="return torch.tensor(number) for what is to be added up, such as a count; what "
                "is the same for all pieces belongs in loss_fn.",
                more="two-pass",
            )


def _alike(one: Any, other: Any) -> bool:
    """Whether two trees have the same structure, and the same values where it holds no tensor."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and one.dtype == other.dtype
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    fields = getattr(one, "__dataclass_fields__", None)
    if fields is not None:
        return all(_alike(getattr(one, name), getattr(other, name)) for name in fields)
    return one is other or bool(one == other)


def _refuse_structure(tree: Any) -> None:
    raise SplitError(
        "encode returned something of another structure, type or value for another piece.",
        why=f"its {type(tree).__name__} is put together tensor by tensor; what is no tensor must "
        "be the same for all pieces.",
        fix="return the same names and types for every piece; what depends on the piece, such as "
        "its length, as a tensor with one row per sample.",
        more="two-pass",
    )


def _short(shapes: Sequence[tuple[int, ...]]) -> str:
    shown = ", ".join(map(str, dict.fromkeys(shapes)))
    return shown if len(shown) < 80 else f"{shown[:80]}…"
