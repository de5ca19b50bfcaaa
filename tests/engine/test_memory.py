from __future__ import annotations

import pytest
import torch

from instep.engine.memory import (
    Budget,
    CudaMeter,
    NoMeter,
    OverBudgetError,
    bytes_of,
    is_out_of_memory,
    readable,
    reason_of,
)

KB = 1000 * 8


def test_what_is_out_of_memory_and_what_is_not():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    assert NoMeter().needed(caught.value) == 2**60
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory."))
    for other in (
        RuntimeError("out of memory"),
        RuntimeError("the server says: CUDA out of memory"),
        MemoryError(),
        ValueError("DefaultCPUAllocator: "),
    ):
        assert not is_out_of_memory(other)
        assert reason_of(other) == "exception"
    assert reason_of(caught.value) == "out-of-memory"
    assert reason_of(None) == "exception"


class Wrapped(torch.Tensor):
    """A tensor without memory of its own, as a DTensor is one."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, *_):
        return cls(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError


def test_of_a_tensor_around_another_the_inner_one_counts():
    inner = torch.zeros(1000, dtype=torch.float64)
    assert bytes_of([Wrapped(inner), Wrapped(Wrapped(inner)), inner]) == KB
    meter = Budget(1e9, held=0.0)
    meter.ignore([inner])
    meter.include([Wrapped(inner)])
    assert meter.held() == 0
    other = torch.zeros(1000, dtype=torch.float64)
    meter.include([Wrapped(other)])
    assert meter.held() == KB


def test_bytes_are_counted_while_they_are_held():
    x = torch.zeros(1000, dtype=torch.float64, requires_grad=True)
    with Budget(1e9, held=50.0) as meter:
        meter.ignore([x])
        a = x * 2  # saves nothing
        assert meter.held() == 50 + KB
        view = a[:10]
        assert meter.held() == 50 + KB
        del a
        assert meter.held() == 50 + KB  # the view holds it
        del view
        assert meter.held() == 50
        assert meter.peak() == 50 + KB
        meter.restart()
        assert meter.peak() == 50
        b = (x.sin() * 3).exp()  # exp keeps its result; the graph keeps nothing else of ours
        kept = meter.held()
        b.sum().backward()
        assert meter.peak() > kept
        del b
        assert x.grad is not None
        assert meter.held() == 50 + KB  # the gradient
        y = x.detach().clone()
        y += 1
        assert meter.held() == 50 + 2 * KB
    assert is_out_of_memory(OverBudgetError(2e6, 1e6))


def test_what_is_held_already_is_not_counted_again():
    x = torch.zeros(1000, dtype=torch.float64)
    meter = Budget(1e9, held=float(KB))
    meter.ignore([x])
    with meter:
        _ = x[:3]
        x.mul_(2)
        assert meter.held() == KB


def test_a_budget_refuses():
    with Budget(2.5 * KB, held=0.0) as meter:
        a = torch.zeros(1000, dtype=torch.float64)
        b = a + 1
        with pytest.raises(
            torch.OutOfMemoryError, match=r"23\.4 KiB are needed of 19\.5"
        ) as caught:
            b + 1
        assert meter.needed(caught.value) == 3 * KB
        assert meter.needed(torch.OutOfMemoryError()) is None
        del a
        c = b + 1
        assert len(c) == 1000
        assert meter.held() == 2 * KB


def test_storages_are_counted_once():
    x = torch.zeros(10, dtype=torch.float64)
    assert bytes_of([x, x[:2], x.view(2, 5)]) == 80
    assert bytes_of([x, torch.eye(3).to_sparse()]) == 80 + 2 * 3 * 8 + 3 * 4


def test_numbers_for_people():
    assert [readable(n) for n in (12, 2048, 5 * 2**20, 1.5 * 2**30)] == [
        "12 bytes",
        "2.0 KiB",
        "5.0 MiB",
        "1.5 GiB",
    ]


def test_a_gpu_as_its_allocator_tells(monkeypatch):
    told = {
        "mem_get_info": (600, 2000),
        "memory_reserved": 300,
        "get_per_process_memory_fraction": 0.4,
        "memory_allocated": 100,
        "max_memory_allocated": 250,
        "reset_peak_memory_stats": None,
    }
    for name, value in told.items():
        monkeypatch.setattr(torch.cuda, name, lambda _, value=value: value)
    device = torch.device("cuda", 0)
    meter = CudaMeter(device, None)
    assert meter.limit == 800
    assert CudaMeter(device, 700).limit == 700
    assert (meter.held(), meter.peak()) == (100, 250)
    meter.restart()
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 KiB. GPU 0 has ...")
    assert meter.needed(error) == 100 + 2048
    with meter.watching():
        assert meter.can_measure
