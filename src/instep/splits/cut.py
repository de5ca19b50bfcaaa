"""A batch along its samples: how many there are, and what a slice of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from instep.errors import SplitError
from instep.splits import tree
from instep.splits.listed import is_listed, shapes_listed
from instep.splits.ragged import cut_jagged, cut_packed, jagged_lengths, packed_lengths

if TYPE_CHECKING:
    from collections.abc import Callable

    Shape = tuple[str, tuple[int, ...]]


def samples_of(batch: Any, dim: int | None = 0) -> int | None:
    """Return how many samples a batch has; None if it holds no tensor that could tell."""
    if is_listed(batch, dim) or dim is None:
        return len(batch)
    counts = []
    found = []
    for _, leaf in tree.leaves(batch):
        if isinstance(leaf, PackedSequence):
            counts.append(int(leaf.batch_sizes[0]))
        elif leaf.dim():
            along = _along(leaf, dim)
            counts.append(leaf.shape[along])
            found.append(leaf)
    if len(set(counts)) > 1:
        raise SplitError(
            f"the tensors of the batch have {sorted(set(counts))} samples.",
            why=f"they are cut together along their {_ordinal(dim)} dimension, so it must be the "
            "same.",
            fix=_hint(batch, found, dim),
            more="split",
        )
    return counts[0] if counts else None


def _along(tensor: Tensor, dim: int) -> int:
    """Return the dimension of a tensor's samples, or say that it has none that can be cut."""
    if tensor.is_nested and tensor.layout == torch.jagged:
        return 0
    if tensor.is_nested or tensor.layout != torch.strided:
        kind = "nested tensor" if tensor.is_nested else "tensor"
        raise SplitError(
            f"the batch holds a {kind} of layout {tensor.layout}.",
            why="only dense tensors, packed sequences and jagged nested tensors have samples to "
            "cut.",
            fix="build it with layout=torch.jagged."
            if tensor.is_nested
            else "cut the batch yourself, and run the pieces in a window by hand.",
            more="split",
        )
    # One dimension is one entry per sample, wherever the other tensors have theirs.
    return _dense_along(tensor, dim)


def _dense_along(tensor: Tensor, dim: int) -> int:
    if tensor.dim() == 1:
        return 0
    if tensor.dim() <= dim:
        raise SplitError(
            f"a tensor of shape {tuple(tensor.shape)} has no dimension {dim}.",
            why=f"dim={dim} says that samples are along it in every tensor of more than one "
            "dimension.",
            fix="put the samples along the same dimension in every tensor.",
            more="split",
        )
    return dim


def _ordinal(dim: int) -> str:
    return ("first", "second", "third")[dim] if dim < 3 else f"{dim + 1}th"


def _hint(batch: Any, found: list[Tensor], dim: int) -> str:
    """Say what to do, and which dimension the tensors do agree on if it is just one."""
    dense = [tensor for tensor in found if not tensor.is_nested]
    shared = []
    for other in range(max((tensor.dim() for tensor in dense), default=0)):
        reach = [t.shape[0] if t.dim() == 1 else t.shape[other] for t in dense if _has(t, other)]
        if other != dim and len(reach) == len(found) and len(set(reach)) == 1:
            shared.append(other)
    if len(shared) == 1:
        return (
            f"all of them agree on dimension {shared[0]}: if the samples are along it, pass "
            f"split=instep.Micro(8, dim={shared[0]}), for example."
        )
    listed = "for a list of samples pass split=instep.Micro(8, dim=None); for columns, "
    # Parts of different types are no samples.
    is_like = isinstance(batch, list) and len(set(map(type, batch))) == 1
    return (listed if is_like and not dim else "") + (
        "put the samples along the same dimension in every tensor, or return (loss, items) and "
        "pass no split."
    )


def _has(tensor: Tensor, dim: int) -> bool:
    return tensor.dim() == 1 or tensor.dim() > dim


class Cutter:
    """Makes pieces of one batch."""

    def __init__(self, batch: Any, samples: int, dim: int) -> None:
        self.batch, self._samples, self._dim = batch, samples, dim
        self._has_jagged = any(
            isinstance(leaf, Tensor) and leaf.is_nested for _, leaf in tree.leaves(batch)
        )
        self.is_plain = not dim and not self._has_jagged
        """Whether samples are along the first axis of every tensor."""
        self._is_tensor = self.is_plain and _is_dense(batch)
        self._are_tensors = (
            self.is_plain and type(batch) in (tuple, list) and all(map(_is_dense, batch))
        )
        for held in tree.objects(batch):
            _refuse_opaque(held, samples, dim)

    def __call__(self, part: slice) -> Any:
        """Return these samples of the batch, in its own structure."""
        # The shortest ways first: this is asked once per micro-batch.
        if self._is_tensor:
            rows: Tensor = self.batch.narrow(0, part.start, part.stop - part.start)
            return rows
        if self._are_tensors:
            start, count = part.start, part.stop - part.start
            return type(self.batch)([tensor.narrow(0, start, count) for tensor in self.batch])
        # Jagged tensors that share their offsets can be added to each other; so must their pieces.
        offsets: dict[int, Tensor] = {}

        def change(value: Any) -> Any:
            if isinstance(value, Tensor):
                if self.is_plain and value.dim():
                    return value[part]
                return self._cut(value, part, offsets)
            if isinstance(value, PackedSequence):
                return cut_packed(value, part)
            if (isinstance(value, list) or type(value) is tuple) and len(value) == self._samples:
                return value[part]
            return value

        return tree.rebuild(self.batch, change, self._is_column)

    def _is_column(self, value: list[Any] | tuple[Any, ...]) -> bool:
        """Whether a list holds one number per sample, each as a tensor."""
        return (
            len(value) == self._samples
            and not hasattr(value, "_fields")
            and all(isinstance(one, Tensor) and not one.dim() for one in value)
        )

    def _cut(self, tensor: Tensor, part: slice, offsets: dict[int, Tensor]) -> Tensor:
        if not tensor.dim():
            return tensor
        if self._has_jagged and tensor.is_nested:
            return cut_jagged(tensor, part, offsets)
        if self._dim and tensor.dim() > 1:
            return tensor.narrow(self._dim, part.start, part.stop - part.start)
        return tensor[part]


def _is_dense(value: object) -> bool:
    return type(value) is Tensor and value.dim() > 0


def _refuse_opaque(held: Any, samples: int, dim: int) -> None:
    """Raise for an object that hides tensors with one entry per sample: they would stay whole."""
    if isinstance(held, torch.nn.Module) or not hasattr(held, "__dict__"):
        return
    for name, value in vars(held).items():
        hidden = isinstance(value, Tensor) and value.layout == torch.strided and value.dim()
        if hidden and value.shape[0 if value.dim() <= dim else dim] == samples:
            raise SplitError(
                f"the batch holds a {type(held).__name__}, whose {name!r} cannot be cut.",
                why="it has one entry per sample, inside an object that is no mapping, sequence or "
                "dataclass; every piece would get all of it.",
                fix="put the tensor into a dict, a tuple or a dataclass.",
                more="split",
            )


def cutter_of(batch: Any, samples: int, dim: int | None) -> Callable[[slice], Any]:
    """Return what makes pieces of a batch: of its tensors, or of a list of samples."""
    if is_listed(batch, dim) or dim is None:
        return lambda part: batch[part]
    return Cutter(batch, samples, dim)


def shapes_of(batch: Any, dim: int | None) -> tuple[Shape, ...]:
    """Return type and shape of one sample in each tensor: batches that agree need as much memory.

    >>> shapes_of({"x": torch.ones(8, 3, 5), "y": torch.ones(8)}, 0)
    (('float32', (3, 5)), ('float32', ()))
    """
    if is_listed(batch, dim) or dim is None:
        return tuple(shapes_listed(batch))
    found = []
    for _, leaf in tree.leaves(batch):
        if isinstance(leaf, PackedSequence):
            shape = (len(leaf.batch_sizes), *leaf.data.shape[1:])
        elif leaf.is_nested:
            shape = (max(jagged_lengths(leaf), default=0), *leaf.shape[2:])
        elif leaf.dim():
            along = _dense_along(leaf, dim)
            shape = (*leaf.shape[:along], *leaf.shape[along + 1 :])
        else:
            continue
        dtype = leaf.dtype if isinstance(leaf, Tensor) else leaf.data.dtype
        found.append((str(dtype).removeprefix("torch."), tuple(map(int, shape))))
    return tuple(found)


def lengths_of(leaf: Tensor | PackedSequence) -> list[int] | None:
    """Return the length of each sample of something ragged; None of anything else."""
    if isinstance(leaf, PackedSequence):
        return packed_lengths(leaf)
    return jagged_lengths(leaf) if leaf.is_nested else None
