"""Out of memory on demand: at the k-th operation, in forward, backward or an optimizer."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Faults(TorchDispatchMode):
    """Counts operations, and lets some of them fail before they have done anything.

    at: the first operation to fail, from 0; None: none of them.
    times: how many fail, from there on. More than one hits only operations that allocate: what is
        in place never runs out of memory, and putting things back is in place.
    """

    def __init__(self, at: int | None, times: int = 1) -> None:
        super().__init__()
        self.seen = 0
        self.raised = 0
        self._at, self._times = at, times

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace != "aten":
            # The marks of the profiler are operations, too, and allocate nothing.
            return func(*args, **(kwargs or {}))
        index = self.seen
        self.seen += 1
        if self._at is not None and index >= self._at and self.raised < self._times:
            in_place = func.overloadpacket.__name__.endswith("_")
            if self._times == 1 or not in_place:
                self.raised += 1
                raise torch.OutOfMemoryError(f"injected at operation {index}")
        return func(*args, **(kwargs or {}))


def assert_same_state(left: torch.optim.Optimizer, right: torch.optim.Optimizer) -> None:
    """Every entry of every parameter's state, bit for bit."""
    one, other = left.state_dict()["state"], right.state_dict()["state"]
    assert one.keys() == other.keys()
    for key, state in one.items():
        assert state.keys() == other[key].keys()
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, other[key][name]), (key, name)
                assert value.device == other[key][name].device
                assert value.dtype == other[key][name].dtype
            else:
                assert value == other[key][name], (key, name)
