"""Watch on two processes: DDP, and FSDP2. Needs no peer, but a while."""

from __future__ import annotations

import gc
import os
import socket
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import distributed, multiprocessing, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.peers.kit import loader, loss_of, net, watched


def train(kind: str, wrong: str) -> nn.Module:
    plain = net()
    if kind == "fsdp":
        model = fully_shard(plain, mesh=init_device_mesh("cpu", (2,)))
    else:
        model = DistributedDataParallel(plain)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(3):
        for index, (x, y) in enumerate(loader()):
            is_last = (index + 1) % 4 == 0
            quiet = kind == "ddp" and wrong != "synced" and not is_last
            with model.no_sync() if quiet else nullcontext():
                loss = loss_of(model, x, y)
                if wrong != "undivided":
                    loss = loss / 4
                loss.backward()
            if is_last:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if wrong != "uncleared":
                    optimizer.zero_grad()
    return plain


def work(rank: int, port: int, kind: str, wrong: str, folder: Path) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    found = watched(lambda: train(kind, wrong))
    (folder / str(rank)).write_text("\n".join(": ".join(one) for one in found))
    gc.collect()  # a model that outlives its group may hang or abort when it is freed
    distributed.barrier()  # rank 0 has the store that the others still ask
    os._exit(0)


@pytest.mark.parametrize(
    ("kind", "wrong", "expected"),
    [
        ("ddp", "", ""),
        ("ddp", "uncleared", "INS101: loss.backward()"),
        ("ddp", "undivided", "INS201: loss.backward()"),
        ("ddp", "synced", "INS603: return F.cross_entropy(model(x), y)"),
        ("fsdp", "", ""),
        ("fsdp", "uncleared", "INS101: loss.backward()"),
    ],
)
def test_both_ranks_say_the_same(tmp_path, kind, wrong, expected):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(work, (port, kind, wrong, tmp_path), nprocs=2)
    assert [(tmp_path / str(rank)).read_text() for rank in (0, 1)] == [expected, expected]
