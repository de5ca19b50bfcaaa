"""What operations have kept is read where nobody has packed it, and nothing is unpacked."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch.autograd.graph import saved_tensors_hooks

from instep.trace.saved import saved


def quarter(x):
    return (x.mean() / torch.tensor(4.0)).grad_fn


def test_what_nobody_has_packed_is_there_until_it_is_freed():
    loss = torch.ones(3, requires_grad=True).mean() / torch.tensor(4.0)
    assert saved(loss.grad_fn, "other") == 4
    assert saved(loss.grad_fn, "something") is None
    loss.backward()
    assert saved(loss.grad_fn, "other") is None


def test_what_was_packed_stays_packed():
    def never(packed):
        raise AssertionError

    x = torch.ones(3, requires_grad=True)
    for pack in (lambda tensor: (tensor,), lambda tensor: tensor.clone()):
        with saved_tensors_hooks(pack, never):
            node = quarter(x)
        assert saved(node, "other") is None


def test_where_torch_does_not_say_nothing_is_known():
    class Raw:
        data = torch.ones(())

    class Native(Raw):
        @property
        def unpack_hook(self):
            raise RuntimeError("only supports python saved tensor hooks")

    for raw in (Raw(), Native()):
        assert saved(SimpleNamespace(_raw_saved_other=raw), "other") is None
