"""Peak memory of one update as the image grows, each in a process of its own.

`python -m benchmarks.splits.memory NETWORK WAY SIDE PATCH` prints the MiB that the process needed
at most for one update, beyond what it held when it began.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import instep
from benchmarks.splits.networks import UNet, super_resolution

WAYS = ("whole", "checkpointed", "patches")
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "super-resolution": lambda: super_resolution(2, channels=16),
    "U-Net": lambda: UNet(width=8),
}
STATUS = Path("/proc/self/status")
ROOT = Path(__file__).parents[2]


def measured(network: str, way: str, side: int, patch: int) -> float:
    """MiB at the peak, from a new process."""
    command = [sys.executable, "-m", "benchmarks.splits.memory", network, way]
    # Freed blocks go back to the system at once, so that what a process holds is what it uses.
    settings = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    done = subprocess.run(
        [*command, str(side), str(patch)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, **settings, "OMP_NUM_THREADS": "1"},
    )
    return float(done.stdout)


def main(network: str, way: str, side: int, patch: int) -> float:
    """Make one small update first, so that libraries have set themselves up, then measure one."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = NETWORKS[network]()
    update = _update(model, way, patch)
    update(_batch(model, 64))
    batch = _batch(model, side)
    # Writing 5 resets the peak that the kernel keeps for this process.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _mebibytes("VmRSS")
    update(batch)
    return _mebibytes("VmHWM") - before


def _batch(model: nn.Module, side: int) -> tuple[Tensor, Tensor]:
    image = torch.rand(1, 3, side, side)
    channels, scale = (2, 1) if isinstance(model, UNet) else (3, 2)
    return image, torch.rand(1, channels, scale * side, scale * side)


def _update(model: nn.Module, way: str, patch: int) -> Callable[[tuple[Tensor, Tensor]], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    stepper = instep.Stepper(model, optimizer)
    forward: Callable[[Tensor], Tensor] = checkpointed(model) if way == "checkpointed" else model
    split = instep.Patches(patch) if way == "patches" else None

    def loss_fn(piece: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(forward(piece[0]), piece[1])

    def update(batch: tuple[Tensor, Tensor]) -> None:
        stepper.step(batch, loss_fn, split=split)

    return update


def checkpointed(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The same model, whose activations inside of blocks are computed again in backward."""
    if isinstance(model, nn.Sequential):
        # Of 1, 2, 3 and 6 segments, two take the least memory for this network.
        return partial(checkpoint_sequential, model, 2, use_reentrant=False)
    for blocks in (model.get_submodule("down"), model.get_submodule("up")):
        for block in blocks.children():
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    return model


def _mebibytes(field: str) -> float:
    lines = STATUS.read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
