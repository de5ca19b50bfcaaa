"""What the tests on several ranks share: models spread over ranks, ragged data, the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.engine.kit import Batch, batches, mlp

EXACT = 1e-12


def spread(model: nn.Module, kind: str) -> nn.Module:
    """Wrap a model for the ranks of a case."""
    if kind.startswith("ddp"):
        options = {
            "ddp unused": "find_unused_parameters",
            "ddp static": "static_graph",
            "ddp views": "gradient_as_bucket_view",
        }
        name = options.get(kind)
        return DistributedDataParallel(model, **({name: True} if name else {}))
    if kind in ("fsdp", "hsdp"):
        options = {}
        if kind == "hsdp":
            # Two replicas, each cut over half of the ranks.
            shape = (2, distributed.get_world_size() // 2)
            device = next(model.parameters()).device.type
            names = ("copies", "shards")
            options["mesh"] = init_device_mesh(device, shape, mesh_dim_names=names)
        for layer in model:
            if list(layer.parameters(recurse=False)):
                fully_shard(layer, **options)
        return fully_shard(model, **options)
    return model


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor that ranks may have parts of."""
    if not hasattr(tensor, "full_tensor"):
        return tensor
    if not tensor.is_cuda:
        return tensor.full_tensor()
    # By the host: what `full_tensor` asks of gloo on a GPU ends in a segmentation fault (2.11).
    # Of a mesh of replicas, those along which it is cut.
    group = tensor.device_mesh.get_group(tensor.device_mesh.ndim - 1)
    parts: list[Any] = [None] * group.size()
    distributed.all_gather_object(parts, tensor.to_local().cpu(), group)
    return torch.cat(parts)


def values(model: nn.Module) -> list[list[float]]:
    """Every parameter as numbers, which travel between processes bit for bit."""
    return [whole(p.detach()).flatten().tolist() for p in model.parameters()]


def told(updates: Sequence[Any]) -> list[tuple]:
    """What updates were, comparable between ranks."""
    return [(u.optimizer, u.loss, u.items, u.grad_norm, u.skipped) for u in updates]


def dealt(sizes: Sequence[Sequence[int]], *, seed: int = 1, **options: Any) -> list[list[Batch]]:
    """Micro-batches of these sizes for each rank."""
    return [batches(s, seed=seed + rank, **options) for rank, s in enumerate(sizes)]


def error(found: Sequence[Sequence[float]], expected: nn.Module, start: nn.Module | None = None):
    """Relative error of the update from `start` (the usual model) to `found`."""
    start = start or mlp()
    top = bottom = 0.0
    for numbers, p, s in zip(found, expected.parameters(), start.parameters(), strict=True):
        got = torch.tensor(numbers, dtype=p.dtype).reshape(p.shape)
        top += float((got - p).detach().square().sum())
        bottom += float((p - s).detach().square().sum())
    assert bottom > 0
    return (top / bottom) ** 0.5
