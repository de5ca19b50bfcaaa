"""A rank that hangs, over NCCL: `python -m tests.gpu.hanging RANK STORE`; rank 1 never comes.

The error is left to end the process, as it would in a training script.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta

import torch
from torch import distributed

import instep
from instep.engine.ranks import rollcall
from tests.engine.kit import batches, mean_loss, mlp
from tests.gpu.on_device import pretend_machines

TIMEOUT = 16.0


def main() -> None:
    rank, store = int(sys.argv[1]), sys.argv[2]
    pretend_machines(rank)
    rollcall.ROLL_CALL = 2.0
    torch.cuda.set_device(0)
    distributed.init_process_group(
        "nccl",
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=TIMEOUT),
    )
    model = torch.nn.parallel.DistributedDataParallel(mlp().cuda())
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for round_ in range(2):
        if rank == 1 and round_ == 1:
            print("hangs", flush=True)
            time.sleep(120)
        with stepper.window() as window:
            x, y = batches([3])[0]
            window.backward(mean_loss(model, x.cuda(), y.cuda()), items=3)
        print("closed", flush=True)


if __name__ == "__main__":
    main()
