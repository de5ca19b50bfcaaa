"""Cases that were written for the CPU, on a device: over NCCL, though all ranks share one GPU.

NCCL refuses two ranks on one device of one machine. With names of machines of their own
(`NCCL_HOSTID`) it takes each rank for another machine, and talks over sockets: slowly, but it is
NCCL itself that is called, with its rules, its streams and its watchdog.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed
from torch.overrides import TorchFunctionMode

from tests.distributed.crew import Crew

DEVICE = "cuda:0"
SHORTEST = 12.0
"""Seconds that a collective has at least."""

MAKERS = {
    getattr(torch, name)
    for name in (
        "arange", "as_tensor", "empty", "eye", "full", "linspace", "ones", "rand", "randint",
        "randn", "randperm", "tensor", "zeros",
    )
}  # fmt: skip
DRAWS = {torch.Tensor.normal_, torch.Tensor.random_, torch.Tensor.uniform_}


class Moved(TorchFunctionMode):
    """What a test makes lies on the device, and has the numbers that it has on the CPU.

    What instep makes for itself stays where it is made.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in MAKERS and kwargs.get("device") is None and _is_of_a_test():
            is_leaf = kwargs.pop("requires_grad", False)
            return func(*args, **kwargs).to(self.device).requires_grad_(is_leaf)
        if func in DRAWS or getattr(func, "__module__", None) == "torch.nn.init":
            # Functions of `init` give their tensor by its name.
            rest = dict(kwargs)
            into = args[0] if args else rest.pop("tensor", None)
            if isinstance(into, torch.Tensor) and into.device.type != "cpu":
                drawn = torch.empty_like(into, device="cpu")
                func(drawn, *args[1:], **rest)
                with torch.no_grad():
                    return into.copy_(drawn)
        return func(*args, **kwargs)


def _is_of_a_test() -> bool:
    """Whether the first frame that is not of torch is one of a test."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name != __name__ and name.partition(".")[0] != "torch":
            return bool(name.startswith("tests."))
        frame = frame.f_back
    return False


class OnDevice:
    """A case, with everything that it makes on the device."""

    def __init__(self, case: Callable[..., Any], device: str) -> None:
        self.case, self.device = case, device
        self.__name__ = case.__name__

    def __call__(self, rank: int, *args: Any) -> Any:
        if torch.device(self.device).type == "cuda":
            torch.cuda.set_device(self.device)
        with Moved(self.device):
            return self.case(rank, *args)


def pretend_machines(rank: int) -> None:
    """Let NCCL take this process for the only one of its machine."""
    os.environ.update(
        NCCL_HOSTID=f"rank-{rank}",
        NCCL_SOCKET_IFNAME="lo",
        NCCL_IB_DISABLE="1",
        NCCL_NET="Socket",
        NCCL_MAX_NCHANNELS="1",
    )


def leave_group() -> bool:
    """Destroy the group, which waits for what was begun; not where that will never end.

    A process whose device waits for others that are gone is of no use any more.
    """
    until = time.monotonic() + 1.0
    while not (is_idle := torch.cuda.current_stream().query()) and time.monotonic() < until:
        time.sleep(0.01)
    if is_idle:
        distributed.destroy_process_group()
    return is_idle


class NCCLCrew(Crew):
    """Processes that share a GPU and a group of NCCL's."""

    backend = "nccl"
    prepare = staticmethod(pretend_machines)
    finish = staticmethod(leave_group)
    patience = 180.0

    def run(self, case: Callable[..., Any], *args: Any, timeout: float = 40.0) -> list[Any]:
        # To connect takes seconds, and its watchdog would end the processes while they look who
        # is missing.
        return super().run(OnDevice(case, DEVICE), *args, timeout=max(timeout, SHORTEST))
