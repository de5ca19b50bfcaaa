"""Windows over NCCL: one rank on a real device, so that streams, events and headers are real."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import distributed
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import instep
from tests.distributed.kit import values
from tests.engine.kit import EXACT, batches, counted, mean_loss, mlp, train_whole, update_error

pytestmark = pytest.mark.gpu

SIZES = [3, 5, 1, 4, 2]


@pytest.fixture
def group(tmp_path):
    torch.cuda.set_device(0)
    distributed.init_process_group("nccl", init_method=f"file://{tmp_path}/s", rank=0, world_size=1)
    yield distributed.group.WORLD
    gc.collect()
    distributed.destroy_process_group()


def data(dtype=torch.float64):
    return [(x.to("cuda", dtype), y.cuda()) for x, y in batches(SIZES, ignore=[1])]


def spread(plain, kind):
    if kind == "ddp":
        return DistributedDataParallel(plain)
    if kind == "fsdp":
        fully_shard(plain[0])
        return fully_shard(plain)
    return plain


@pytest.mark.parametrize("kind", ["plain", "ddp", "fsdp"])
@pytest.mark.parametrize("sync", ["window", "micro-batch"])
@pytest.mark.parametrize("on_device", [False, True])
def test_the_update_is_that_of_the_whole(group, kind, sync, on_device):
    plain = mlp().cuda()
    model = spread(plain, kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    stepper = instep.Stepper(model, optimizer, clip_norm=0.1, group=group, sync=sync)
    for window in stepper.windows(data(), size=2):
        for x, y in window:
            items = (y != -100).sum() if on_device else counted(y)
            window.backward(mean_loss(model, x, y), items=items)
    found = mlp()
    with torch.no_grad():
        for p, numbers in zip(found.parameters(), values(plain), strict=True):
            p.copy_(torch.tensor(numbers, dtype=p.dtype).reshape(p.shape))
    everything = batches(SIZES, ignore=[1])
    windows = [everything[:2], everything[2:4], everything[4:]]
    expected = train_whole(mlp(), windows, torch.optim.AdamW, clip_norm=0.1)
    assert update_error(mlp(), found, expected) < 100 * EXACT
    del model, optimizer, stepper


def test_mixed_precision_of_fsdp(group):
    plain = mlp(dtype=torch.float32).cuda()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(plain[0], mp_policy=policy)
    model = fully_shard(plain, mp_policy=policy)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for window in stepper.windows(data(torch.float32), size=2):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=counted(y))
        assert window.skipped is None
    del model, stepper
