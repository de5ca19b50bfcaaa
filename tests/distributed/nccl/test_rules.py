"""Each rule refuses what it is for, and nothing that NCCL takes."""

from __future__ import annotations

import pytest
import torch

from tests.distributed.nccl import rules
from tests.distributed.nccl.rules import RuleError, require, require_equal, require_parts

CHANNELS_LAST = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
REFUSED = {
    "no tensors": ([], ""),
    "int16": ([torch.zeros(2, dtype=torch.int16)], "SUM"),
    "uint16": ([torch.zeros(2, dtype=torch.uint16)], ""),
    "strides": ([torch.zeros(4, 4).t()], "SUM"),
    "sparse": ([torch.eye(3).to_sparse()], "SUM"),
    "several devices": ([torch.zeros(2), torch.zeros(2, device="meta")], ""),
    "several types": ([torch.zeros(2), torch.zeros(2).double()], ""),
    "BAND": ([torch.zeros(2, dtype=torch.int32)], "BAND"),
    "mean of truth values": ([torch.zeros(2, dtype=torch.bool)], "AVG"),
    "cannot add": ([torch.zeros(2, dtype=torch.float8_e5m2fnuz)], "SUM"),
    "premultiplied": ([torch.zeros(2, dtype=torch.int32)], "PREMUL_SUM"),
    "MAX of complex": ([torch.zeros(2, dtype=torch.complex64)], "MAX"),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_nccl_does_not_take(words):
    tensors, operation = REFUSED[words]
    with pytest.raises(RuleError, match=words):
        require("allreduce", tensors, operation)


def test_complex_numbers_are_gathered_by_nobody():
    with pytest.raises(RuleError, match=r"NCCL has no torch\.complex64"):
        require("all_gather_single", [torch.zeros(2, dtype=torch.complex64)])


@pytest.mark.parametrize(
    ("taken", "refused"),
    [
        ((torch.zeros(2), "SUM"), (torch.zeros(2), "BAND")),
        ((torch.zeros(()), "AVG"), (torch.zeros((), dtype=torch.bool), "AVG")),
        ((torch.zeros(0), "SUM"), (torch.zeros(0, dtype=torch.int16), "SUM")),
        ((torch.zeros(2).bool(), "MAX"), (torch.zeros(2).bool(), "AVG")),
        ((torch.zeros(2).cfloat(), "SUM"), (torch.zeros(2).cfloat(), "MAX")),
        ((CHANNELS_LAST, "SUM"), (CHANNELS_LAST.permute(0, 3, 1, 2), "SUM")),
        ((torch.zeros(4, 4)[1:3], "SUM"), (torch.zeros(4, 4)[:, 1:3], "SUM")),
    ],
)
def test_what_nccl_takes_and_what_is_next_to_it(taken, refused):
    found = []
    for tensor, operation in (taken, refused):
        try:
            require("allreduce", [tensor], operation)
        except RuleError:
            found.append("refused")
        else:
            found.append("taken")
    assert found == ["taken", "refused"]


def test_operations_have_one_name():
    options = torch.distributed.AllreduceOptions()
    assert rules.operation_of(options.reduceOp) == "SUM"
    assert rules.operation_of(torch.distributed.ReduceOp.MAX) == "MAX"


def test_sizes():
    part = torch.zeros(3)
    require_parts("all_gather_single", torch.zeros(6), part, 2)
    with pytest.raises(RuleError, match="5 elements for 2 times 3"):
        require_parts("all_gather_single", torch.zeros(5), part, 2)
    require_equal("allgather", [torch.zeros(3), torch.zeros(3)], part, 2)
    with pytest.raises(RuleError, match="1 tensors for 2 ranks"):
        require_equal("allgather", [part], part, 2)
    with pytest.raises(RuleError, match=r"sizes \[3, 4\]"):
        require_equal("allgather", [torch.zeros(3), torch.zeros(4)], part, 2)
