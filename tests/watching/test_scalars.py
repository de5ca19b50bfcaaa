import pytest
import torch
from torch import nn

import instep
from instep.watching.scalars import Scalars


class Writer:
    def __init__(self, fail_after=10**9):
        self.scalars = []
        self.left = fail_after

    def add_scalar(self, tag, value, step):
        if not self.left:
            raise ConnectionError("the disk is full")
        self.left -= 1
        self.scalars.append((tag, value, step))


def train(updates=5):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(updates):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return model.weight.detach()


def test_numbers_are_written_as_they_come():
    writer = Writer()
    with instep.watch(writer=writer) as job:
        train(2)
        assert {step for _, _, step in writer.scalars} == {1, 2}
        train(1)
    tags = {tag for tag, _, _ in writer.scalars}
    names = ("loss", "grad_norm", "clip_norm", "update_ratio", "lr")
    assert {f"instep/{name}/optimizer" for name in names} <= tags
    written = [(step, value) for tag, value, step in writer.scalars if tag == "instep/lr/optimizer"]
    assert written == [(update, value) for update, _, value in job.series.lines["lr/optimizer"]]


def test_a_writer_that_fails_is_let_go_and_the_job_goes_on(capsys):
    without = train()
    writer = Writer(fail_after=3)
    with instep.watch(writer=writer) as job:
        watched = train()
    assert torch.equal(without, watched)
    assert len(writer.scalars) == 3
    assert job.series.updates == {"optimizer": 5}
    assert job.seam.faults == []
    assert job.findings == ()
    said = capsys.readouterr().err
    assert said.count("the writer failed (ConnectionError: the disk is full)") == 1


def test_what_wants_the_job_to_end_is_not_caught():
    class Stopping(Writer):
        def add_scalar(self, tag, value, step):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Scalars(Stopping(), print)("loss", "o", 1, 0.0)


def test_what_is_no_writer_is_refused_at_once():
    with pytest.raises(AttributeError, match="add_scalar"):
        instep.watch(writer=object())


def test_tags_have_only_letters_that_everybody_takes():
    writer = Writer()
    Scalars(writer, print)("loss", "self.optimizers[0]#2 é", 1, 0.5)
    assert writer.scalars == [("instep/loss/self.optimizers_0__2_é", 0.5, 1)]
