from __future__ import annotations

import math

import pytest
import torch

from instep.engine.arithmetic import Part
from instep.engine.tally import Tally, read

F32, F64 = torch.float32, torch.float64


def test_the_reference_is_the_first_count_that_is_not_zero():
    tally = Tally(None)
    assert not tally.is_begun
    assert tally.share(5, F64, is_sum=False) == 5 / 4
    assert tally.reference == 4.0
    assert tally.share(100, F64, is_sum=False) == 25
    assert tally.share(100, F64, is_sum=True) == 0.25
    assert Tally(16.0).share(8, F64, is_sum=False) == 0.5


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32, torch.bool])
def test_the_reference_is_found_on_the_device_too(dtype):
    tally = Tally(None)
    empty, one = torch.tensor(0, dtype=dtype), torch.tensor(1, dtype=dtype)
    assert tally.share(empty, F32, is_sum=False).item() == 0
    assert tally.share(empty, F32, is_sum=False).item() == 0
    share = tally.share(one, F32, is_sum=False)
    assert share.item() == 1.0
    assert share.dtype == torch.float64
    assert tally.share(torch.tensor(3), F32, is_sum=False).item() == 3.0
    assert tally.share(torch.tensor(3), F32, is_sum=True).item() == 1.0
    tally.declare(torch.tensor(2.0), one, 1.0, is_sum=False)
    assert read({"loss": tally}, []).references == {"loss": 1.0}


def test_counts_on_the_host_after_empty_ones_on_the_device():
    tally = Tally(None)
    assert tally.share(torch.tensor(0), F32, is_sum=False).item() == 0
    assert tally.share(6, F32, is_sum=False).item() == 6 / 8
    assert tally.share(4, F32, is_sum=True).item() == 1 / 8


@pytest.mark.parametrize("known", [None, 2.0**24])
def test_device_counts_are_exact_beyond_24_bits(known):
    tally = Tally(known)
    count = 2**24 + 1
    share = tally.share(torch.tensor(count), F64, is_sum=False)
    assert share.item() * read({"t": tally}, []).references["t"] == count


def test_narrow_counts_are_widened_before_they_are_divided():
    count = torch.tensor(200.0, dtype=torch.bfloat16)
    assert Tally(128.0).share(count, F32, is_sum=False).item() == 200 / 128
    assert Tally(128.0).share(count, F32, is_sum=False).dtype == torch.float64


def test_reading_brings_everything_home_in_order():
    first, second = Tally(4.0), Tally(None)
    first.declare(torch.tensor(1.5), 2, 1.0, is_sum=False)
    first.declare(0.5, torch.tensor(3), 0.5, is_sum=True)
    second.declare(torch.tensor(7.0), torch.tensor(9), 2.0, is_sum=False)
    reading = read({"a": first, "b": second}, [torch.tensor(42.0)])
    assert reading.extra == [42.0]
    assert reading.parts == {
        "a": [Part(1.5, 2, 1.0, False), Part(0.5, 3, 0.5, True)],
        "b": [Part(7.0, 9, 2.0, False)],
    }
    assert reading.references == {"a": 4.0, "b": 1.0}
    assert read({}, []) == ({}, {}, [])
    assert not math.isnan(reading.extra[0])


def test_a_window_of_quite_another_size_chooses_anew():
    """So that fp16 gradients neither vanish nor overflow after a change of scale."""
    assert Tally(1024.0).share(512, F32, is_sum=False) == 0.5
    small = Tally(1024.0)
    assert small.share(20, F32, is_sum=False) == 20 / 16
    assert small.share(2000, F32, is_sum=False) == 2000 / 16
    fixed = Tally(1024.0, is_fixed=True)
    assert fixed.share(1, F32, is_sum=False) == 1 / 1024


def test_counts_do_not_follow_a_narrow_default_type():
    torch.set_default_dtype(torch.bfloat16)
    try:
        share = Tally(512.0).share(torch.tensor(1003), F32, is_sum=False)
    finally:
        torch.set_default_dtype(torch.float32)
    assert share.item() == 1003 / 512
