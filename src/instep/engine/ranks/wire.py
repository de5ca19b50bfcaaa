"""The collective by which ranks hear each other: what all have sent, in one tensor.

An all-gather into a list of tensors would do the same, and with NCCL take memory of its own for
them: a rank that has none left could not say so.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

SPUN = 0.002
"""Seconds for which a device is asked again and again; after that, with pauses."""
PAUSE = 50e-6
LOOK = 0.25
"""Seconds after which it is asked whether there is anything left to wait for."""
MARGIN, SHARE = 12.0, 0.25
"""Before its timeout NCCL's watchdog lets nobody speak any more: so many seconds of it, or such a
part of it, whichever is less, are left to find out who is missing and to say so."""


class LateError(RuntimeError):
    """A collective is not over, and will not be."""


def begin_all_gather(whole: Tensor, mine: Tensor, group: Any) -> Any:
    """Begin to send, and return what is waited for; all ranks send equally much."""
    import torch.distributed as dist  # noqa: PLC0415 -- in use already

    # Before torch 2.13 it had another name.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather(whole, mine, group=group, async_op=True)


def all_gather(whole: Tensor, mine: Tensor, group: Any) -> None:
    """Send, and wait for all ranks."""
    begin_all_gather(whole, mine, group).wait()


def on_host(whole: Tensor, here: Tensor, work: Any, until: Callable[[], None]) -> Tensor:
    """Wait for what all have sent, and return it on the host, in `here`.

    With gloo the wait itself ends, with the group's timeout or when somebody is gone. With NCCL it
    is only the device that waits: who asks it for the numbers hangs until torch's watchdog ends
    this process, without a word. `until` is called while nothing has come, and may raise.
    """
    work.wait()
    if whole.device.type != "cuda":
        return whole
    here.copy_(whole, non_blocking=True)
    settle(whole.device, until)
    return here


def settle(device: torch.device | None, until: Callable[[], None]) -> None:
    """Wait for what a device has been given to do, collectives among it, as `on_host` does."""
    if device is not None and device.type == "cuda":
        wait_for(torch.cuda.current_stream(device).record_event().query, until)


def host_of(whole: Tensor) -> Tensor:
    """Return where a tensor goes that is read on the host: itself, if it is there."""
    if whole.device.type != "cuda":
        return whole
    return torch.empty(whole.shape, dtype=whole.dtype, pin_memory=True)


def wait_for(is_done: Callable[[], bool], until: Callable[[], None]) -> None:
    """Wait until something is done, and ask every `LOOK` seconds whether it still can be."""
    since = time.monotonic()
    looked = 0.0
    while not is_done():
        waited = time.monotonic() - since
        if waited > looked + LOOK:
            looked = waited
            until()
        time.sleep(0 if waited < SPUN else PAUSE)


def patience(timeout: float) -> float:
    """Return how long to wait for others where NCCL ends the process after so many seconds.

    >>> patience(600.0), patience(8.0)
    (588.0, 6.0)
    """
    return timeout - min(MARGIN, SHARE * timeout)


def timeout_of(group: Any, device: torch.device | None) -> float:
    """Return the seconds after which a group's collectives have failed."""
    options = group._get_backend(device).options  # noqa: SLF001 -- there is no public way
    return float(options._timeout.total_seconds())  # noqa: SLF001
