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
MARGIN, SHARE = 12.0, 0.25
"""Before its timeout NCCL's watchdog lets nobody speak any more: so many seconds of it, or such a
part of it, whichever is less, are left to find out who is missing and to say so."""


class LateError(RuntimeError):
    """A collective was not over in time."""


def begin_all_gather(whole: Tensor, mine: Tensor, group: Any) -> Any:
    """Begin to send, and return what is waited for; all ranks send equally much."""
    import torch.distributed as dist  # noqa: PLC0415 -- in use already

    # Before torch 2.13 it had another name.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather(whole, mine, group=group, async_op=True)


def all_gather(whole: Tensor, mine: Tensor, group: Any) -> None:
    """Send, and wait for all ranks."""
    begin_all_gather(whole, mine, group).wait()


def on_host(whole: Tensor, work: Any, group: Any) -> Tensor:
    """Wait for what all have sent, and return it on the host.

    With gloo the wait itself ends with the group's timeout. With NCCL it is only the device that
    waits: who asks for the numbers hangs until the watchdog ends this process, without a word.
    """
    work.wait()
    if whole.device.type != "cuda":
        return whole
    here = torch.empty(whole.shape, dtype=whole.dtype, pin_memory=True)
    here.copy_(whole, non_blocking=True)
    copied = torch.cuda.current_stream(whole.device).record_event()
    wait_until(copied.query, patience(timeout_of(group, whole.device)))
    return here


def wait_until(is_done: Callable[[], bool], seconds: float) -> None:
    """Wait, and raise if it takes longer than that."""
    since = time.monotonic()
    while not is_done():
        waited = time.monotonic() - since
        if waited > seconds:
            raise LateError(f"nothing came within {waited:.1f} s")
        time.sleep(0 if waited < SPUN else PAUSE)


def patience(timeout: float) -> float:
    """Return how long to wait for others where NCCL ends the process after so many seconds.

    >>> patience(600.0), patience(8.0)
    (588.0, 6.0)
    """
    return timeout - min(MARGIN, SHARE * timeout)


def timeout_of(group: Any, device: torch.device) -> float:
    """Return the seconds after which a group's collectives have failed."""
    options = group._get_backend(device).options  # noqa: SLF001 -- there is no public way
    return float(options._timeout.total_seconds())  # noqa: SLF001
