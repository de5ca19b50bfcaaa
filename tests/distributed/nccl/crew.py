"""A crew whose process groups are held to the rules of NCCL, and whose ranks are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.distributed.crew import Crew, RankError, text_of
from tests.distributed.nccl import backend
from tests.distributed.nccl.backend import Call, Record


class Held:
    """A case, and what its rank has called on the way."""

    def __init__(self, case: Callable[..., Any]) -> None:
        self.case = case
        self.__name__ = case.__name__

    def __call__(self, *args: Any) -> tuple[bool, Any, Record]:
        try:
            failed, answer = False, self.case(*args)
        except BaseException as error:  # noqa: BLE001 -- the record is wanted all the same
            failed, answer = True, text_of(error)
        return failed, answer, backend.take_record()


class HeldCrew(Crew):
    """Runs cases as any crew, and raises if a rank has broken a rule, or none was asked for."""

    backend = backend.NAME

    def __init__(self, world: int) -> None:
        super().__init__(world)
        self.calls = 0
        """How many were made, on all ranks."""

    def run(self, case: Callable[..., Any], *args: Any, timeout: float = 40.0) -> list[Any]:
        found = super().run(Held(case), *args, timeout=timeout)
        records = [record for _, _, record in found]
        problem = problem_of(records)
        assert not problem, f"{case.__name__}{args}: {problem}"
        self.calls += sum(len(calls) for record in records for calls in record.calls.values())
        errors = [answer if failed else None for failed, answer, _ in found]
        if any(errors):
            raise RankError(errors)
        return [answer for _, answer, _ in found]


def problem_of(records: Sequence[Record]) -> str:
    """Say which rule the ranks of a case have broken; empty if none."""
    for rank, record in enumerate(records):
        if record.broken:
            return f"rank {rank}: {record.broken[0]}"
    if not all(record.members for record in records):
        return "no group was held to the rules"
    for key in dict.fromkeys(key for record in records for key in record.members):
        members = next(record.members[key] for record in records if key in record.members)
        problem = _difference([records[rank].calls.get(key, []) for rank in members])
        if problem:
            return f"group {key} of ranks {members}: {problem}"
    return ""


def _difference(calls: Sequence[list[Call]]) -> str:
    """Say where the ranks of one group part ways."""
    for index in range(max(map(len, calls))):
        here = [each[index] if index < len(each) else None for each in calls]
        if len(set(here)) > 1:
            return f"call {index} is {here}"
    return ""
