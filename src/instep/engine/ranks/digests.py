"""Whether ranks hold the same values, told by a short number of each: no values are sent.

The number depends on every bit and on its place, so that [0, 1] and [1, 0] have different ones. Of
a tensor that is spread over ranks only its type and shape count: each rank has another part.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from instep.engine.ranks.drift import WHOLE, fetched

if TYPE_CHECKING:
    from collections.abc import Mapping

Place = TypeVar("Place")
PART = 2**20
"""Elements that are added up at a time: their bits are first copied into a wider type."""


def is_spread(value: object) -> bool:
    """Whether a tensor knows by itself how it lies on the ranks."""
    return hasattr(value, "device_mesh")


def digests_of(values: Mapping[Place, Any]) -> dict[Place, str]:
    """Return a number for each value, a tree of plain data and tensors (syncs, once).

    >>> found = digests_of({"a": [torch.tensor([0, 1])], "b": [torch.tensor([1, 0])], "c": "text"})
    >>> len(set(found.values())), found == digests_of({"a": [torch.tensor([0, 1])]}) | found
    (3, True)
    """
    sums: list[Tensor] = []
    said = {place: _described(value, sums) for place, value in values.items()}
    numbers = [int(number) for number in fetched(sums)]
    return {place: _digest(each, numbers) for place, each in said.items()}


def digest_of(found: object) -> str:
    """Return a number for plain values, by what they look like."""
    return hashlib.sha256(repr(found).encode(errors="surrogatepass")).hexdigest()[:16]


class _Sums(tuple[int, int]):
    """Stands for a tensor: its sums from here to there."""

    __slots__ = ()


def _digest(described: Any, numbers: list[int]) -> str:
    return digest_of(_filled(described, numbers))


def _filled(described: Any, numbers: list[int]) -> Any:
    if isinstance(described, _Sums):
        return numbers[described[0] : described[1]]
    return [_filled(v, numbers) for v in described] if isinstance(described, list) else described


def _described(tree: Any, sums: list[Tensor]) -> Any:
    if isinstance(tree, Tensor):
        kind = [str(tree.dtype), str(tuple(tree.shape)), str(tree.layout), is_spread(tree)]
        if is_spread(tree):
            return kind
        if tree.layout is not torch.strided:
            same = tree.detach().to_sparse_coo().coalesce()
            return [*kind, *(_described(part, sums) for part in (same.indices(), same.values()))]
        begin = len(sums)
        sums.extend(_sums_of(tree.detach()))
        return [*kind, _Sums((begin, len(sums)))]
    if isinstance(tree, dict):
        return [type(tree).__name__] + [
            part for key, value in tree.items() for part in (repr(key), _described(value, sums))
        ]
    if isinstance(tree, list | tuple):
        return [type(tree).__name__, *(_described(value, sums) for value in tree)]
    return repr(sorted(map(repr, tree))) if isinstance(tree, set) else repr(tree)


def _sums_of(tensor: Tensor) -> list[Tensor]:
    """Return sums of a tensor's bits, each bit counted by its place; of whole numbers, so exact."""
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    bits = tensor.contiguous().flatten()
    if bits.is_complex():
        bits = torch.view_as_real(bits).flatten()
    bits = bits.view(WHOLE[bits.itemsize])
    weights = _weights(min(len(bits), PART), bits.device)
    return [
        part.to(torch.int64, copy=True).mul_(weights[: len(part)]).sum()
        for part in (bits.split(PART) if len(bits) else ())
    ]


def _weights(count: int, device: torch.device) -> Tensor:
    """Return odd numbers without a pattern, so that no change of place cancels another."""
    x = torch.arange(1, count + 1, dtype=torch.int64, device=device)
    x = x * -7046029254386353131
    x ^= x >> 29
    x *= -4658895280553007687
    x ^= x >> 32
    return x | 1
