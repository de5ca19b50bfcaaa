"""What torch has gathered of failures is raised in instep's words, to each rank its own."""

from __future__ import annotations

import errno
import traceback
from types import SimpleNamespace

import pytest
from torch.distributed.checkpoint.api import CheckpointException

from instep.checkpoint import failures
from instep.checkpoint.envelope import EnvelopeError
from instep.checkpoint.talk import Talk
from instep.errors import CheckpointError


def raised_on(rank, errors, folder):
    """What this rank raises, and what it has marked as an error of all."""
    marked = []
    talk = Talk(SimpleNamespace(rank=rank, world=3, group=object()), mark=marked.append)
    told = {where: (error, traceback.StackSummary()) for where, error in errors.items()}
    with pytest.raises(BaseException) as caught, failures.sorted_out(talk, folder):  # noqa: PT011
        raise CheckpointException("write", told)
    assert marked == [caught.value]
    return caught.value


def test_a_full_disk_names_its_rank(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    own, other = (raised_on(rank, {1: full}, tmp_path) for rank in (1, 2))
    assert own.what == f"{tmp_path} could not be written: the disk is full."
    assert other.what == f"the checkpoint failed on rank 1: {own.what}"
    # By this a run that saves itself knows that it can go on.
    assert [e.__cause__.errno for e in (own, other)] == [errno.ENOSPC] * 2


def test_who_was_interrupted_has_the_interrupt(tmp_path):
    interrupt = KeyboardInterrupt()
    assert raised_on(1, {1: interrupt}, tmp_path) is interrupt
    other = raised_on(0, {1: interrupt}, tmp_path)
    assert isinstance(other, CheckpointError)
    assert other.what == "the checkpoint failed on rank 1: KeyboardInterrupt"


def test_all_who_failed_are_named_and_the_first_is_quoted(tmp_path):
    found = raised_on(0, {2: ValueError("b"), 1: ValueError("a")}, tmp_path)
    assert found.what == "the checkpoint failed on ranks 1, 2: ValueError: a"


def test_damage_that_is_found_while_reading_stays_damage():
    found = raised_on(0, {1: EnvelopeError("corrupted", "its list of tensors")}, None)
    assert isinstance(found.__cause__, EnvelopeError)
    assert found.__cause__.kind == "corrupted"


def test_other_errors_go_through(tmp_path):
    with pytest.raises(ValueError, match="mine"), failures.sorted_out(object(), tmp_path):
        raise ValueError("mine")
