"""A process group that runs over gloo and holds every collective to the rules of NCCL.

`distributed.init_process_group(NAME)` makes one. What breaks a rule raises `RuleError`, which is
also written down: code under test may turn it into an error of its own. Every call is written down
as well, because NCCL matches the calls of ranks by nothing but their order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup, ProcessGroupGloo
from torch.utils._python_dispatch import _disable_current_modes

from tests.distributed.nccl import rules
from tests.distributed.nccl.rules import RuleError, operation_of

NAME = "held_to_nccl"


class Call(NamedTuple):
    """What all ranks of a group have to call alike."""

    name: str
    dtype: str = ""
    sizes: tuple[int, ...] = ()
    how: str = ""
    """The operation of a sum, the root of a broadcast, the format of a tensor."""


@dataclass
class Record:
    """What one rank has called in a case, and what it should not have."""

    calls: dict[str, list[Call]] = field(default_factory=dict)
    """By group."""
    members: dict[str, list[int]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)


_record = Record()


def take_record() -> Record:
    """Return what was written down, and begin anew."""
    global _record
    taken, _record = _record, Record()
    return taken


class HeldToNCCL(ProcessGroup):
    """Passes on to gloo what NCCL would take."""

    def __init__(self, options: Any) -> None:
        super().__init__(options.group_rank, options.group_size)
        self._inner = ProcessGroupGloo(
            options.store, options.group_rank, options.group_size, timeout=options.timeout
        )
        # torch asks a group which devices it has, and how it times out.
        self._register_backend(torch.device("cpu"), ProcessGroup.BackendType.CUSTOM, self._inner)
        self._set_default_backend(ProcessGroup.BackendType.CUSTOM)
        self._key = str(options.group_id)
        self._thread = threading.get_ident()
        _record.members[self._key] = list(options.global_ranks_in_group) or list(
            range(options.group_size)
        )

    def getBackendName(self) -> str:
        return NAME

    def _flat(self, tensors: Sequence[Tensor]) -> None:
        """Take the memory of one tensor for all of these, as NCCL does for lists on its way.

        Nobody is sent anything if there is none: it is a place where one rank may fail alone.
        """
        torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype)

    def _pass_on(self, name: str, *args: Any) -> Any:
        # What gloo takes for itself is no part of the program under test.
        with _disable_current_modes():
            return getattr(self._inner, name)(*args)

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            rules.require_thread(self._thread)
            yield
        except RuleError as error:
            _record.broken.append(str(error))
            raise

    def _note(self, name: str, tensors: Sequence[Tensor] = (), how: Any = "") -> None:
        formats = "" if all(t.is_contiguous() for t in tensors) else " channels last"
        dtype = str(tensors[0].dtype) if tensors else ""
        call = Call(name, dtype, tuple(t.numel() for t in tensors), f"{how}{formats}")
        _record.calls.setdefault(self._key, []).append(call)

    # -- sums ------------------------------------------------------------------------------------

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        opts = opts or distributed.AllreduceOptions()
        with self._checked():
            rules.require("allreduce", tensors, operation_of(opts.reduceOp))
            if len(tensors) != 1:
                raise RuleError("allreduce: several tensors in one call")
        self._note("allreduce", tensors, operation_of(opts.reduceOp))
        return self._pass_on("allreduce", tensors, opts)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Any:
        opts = opts or distributed.AllreduceCoalescedOptions()
        with self._checked():
            rules.require("allreduce_coalesced", tensors, operation_of(opts.reduceOp))
        self._note("allreduce_coalesced", tensors, operation_of(opts.reduceOp))
        return self._pass_on("allreduce_coalesced", tensors, opts)

    def reduce(self, tensors: list[Tensor], opts: Any) -> Any:
        with self._checked():
            rules.require("reduce", tensors, operation_of(opts.reduceOp))
        self._note("reduce", tensors, f"{operation_of(opts.reduceOp)} to {opts.rootRank}")
        return self._pass_on("reduce", tensors, opts)

    def reduce_scatter(
        self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None
    ) -> Any:
        opts = opts or distributed.ReduceScatterOptions()
        with self._checked():
            rules.require("reduce_scatter", [*outputs, *inputs[0]], operation_of(opts.reduceOp))
            rules.require_equal("reduce_scatter", inputs[0], outputs[0], self.size())
        self._flat(inputs[0])
        self._note("reduce_scatter", inputs[0], operation_of(opts.reduceOp))
        return self._pass_on("reduce_scatter", outputs, inputs, opts)

    def reduce_scatter_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Any:
        opts = opts or distributed.ReduceScatterOptions()
        with self._checked():
            rules.require("reduce_scatter_single", [output, given], operation_of(opts.reduceOp))
            rules.require_parts("reduce_scatter_single", given, output, self.size())
        self._note("reduce_scatter_single", [given], operation_of(opts.reduceOp))
        return self._pass_on("_reduce_scatter_base", output, given, opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        pairs = zip(outputs, inputs, strict=True)
        return _all_of([self.reduce_scatter_single(o, i, opts) for o, i in pairs])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # -- copies ----------------------------------------------------------------------------------

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        with self._checked():
            rules.require("allgather", [*inputs, *outputs[0]])
            rules.require_equal("allgather", outputs[0], inputs[0], self.size())
        self._flat(outputs[0])
        self._note("allgather", inputs)
        return self._pass_on("allgather", outputs, inputs, opts or distributed.AllgatherOptions())

    def allgather_coalesced(self, *_: Any) -> Any:
        with self._checked():
            raise RuleError("allgather_coalesced: NCCL has none")

    def all_gather_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Any:
        with self._checked():
            rules.require("all_gather_single", [output, given])
            rules.require_parts("all_gather_single", output, given, self.size())
        self._note("all_gather_single", [given])
        opts = opts or distributed.AllgatherOptions()
        return self._pass_on("_allgather_base", output, given, opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        pairs = zip(outputs, inputs, strict=True)
        return _all_of([self.all_gather_single(o, i, opts) for o, i in pairs])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Any:
        with self._checked():
            rules.require("broadcast", tensors)
            if len(tensors) != 1:
                raise RuleError("broadcast: several tensors in one call")
        self._note("broadcast", tensors, f"from {opts.rootRank}")
        return self._pass_on("broadcast", tensors, opts)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Any:
        with self._checked():
            parts = outputs[0] if self.rank() == opts.rootRank else []
            rules.require("gather", [*inputs, *parts])
            if self.rank() == opts.rootRank:
                rules.require_equal("gather", parts, inputs[0], self.size())
            elif outputs and outputs[0]:
                raise RuleError("gather: outputs on a rank that is not the root")
        self._note("gather", inputs, f"to {opts.rootRank}")
        return self._pass_on("gather", outputs, inputs, opts)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Any:
        with self._checked():
            parts = inputs[0] if self.rank() == opts.rootRank else []
            rules.require("scatter", [*outputs, *parts])
            if self.rank() == opts.rootRank:
                rules.require_equal("scatter", parts, outputs[0], self.size())
            elif inputs and inputs[0]:
                raise RuleError("scatter: inputs on a rank that is not the root")
        self._note("scatter", outputs, f"from {opts.rootRank}")
        return self._pass_on("scatter", outputs, inputs, opts)

    def barrier(self, opts: Any = None) -> Any:
        with self._checked():
            """Only the thread matters."""
        self._note("barrier")
        return self._pass_on("barrier", opts or distributed.BarrierOptions())

    # -- from one to another ---------------------------------------------------------------------

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        with self._checked():
            rules.require("alltoall", [*outputs, *inputs])
            if not len(outputs) == len(inputs) == self.size():
                raise RuleError("alltoall: not one tensor for each rank")
        self._note("alltoall", [], inputs[0].dtype)
        return self._pass_on("alltoall", outputs, inputs, opts or distributed.AllToAllOptions())

    def all_to_all_single(
        self, output: Tensor, given: Tensor, into: list[int], out_of: list[int], opts: Any = None
    ) -> Any:
        with self._checked():
            rules.require("all_to_all_single", [output, given])
        self._note("all_to_all_single", [], given.dtype)
        opts = opts or distributed.AllToAllOptions()
        return self._pass_on("alltoall_base", output, given, into, out_of, opts)

    alltoall_base = all_to_all_single

    def send(self, tensors: list[Tensor], to: int, tag: int) -> Any:
        with self._checked():
            rules.require("send", tensors)
        return self._pass_on("send", tensors, to, tag)

    def recv(self, tensors: list[Tensor], of: int, tag: int) -> Any:
        with self._checked():
            rules.require("recv", tensors)
        return self._pass_on("recv", tensors, of, tag)

    def recv_anysource(self, *_: Any) -> Any:
        with self._checked():
            raise RuleError("recv: NCCL wants to know from whom")


def _all_of(works: list[Any]) -> Any:
    for work in works[:-1]:
        work.wait()
    return works[-1]


def _make(options: Any, _: Any) -> HeldToNCCL:
    return HeldToNCCL(options)


distributed.Backend.register_backend(NAME, _make, extended_api=True, devices=["cpu"])
