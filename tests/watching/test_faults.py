"""Whatever fails in the watcher, the job comes to the same end, and is told of it once."""

import warnings

import pytest
import torch
from torch import nn

import instep
from instep.watching import job as job_module
from instep.watching.backwards import Backwards
from instep.watching.book import Book
from instep.watching.clearing import Clearing
from instep.watching.judging import Judge
from instep.watching.losses import Losses
from instep.watching.models import Models
from instep.watching.recorder import Recorder
from instep.watching.samples import Sampler
from instep.watching.stream import Stream
from instep.watching.voice import Voice
from instep.watching.witness import Witnesses


def train() -> list[torch.Tensor]:
    """Use everything that is watched, and return what came of it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    loader = torch.utils.data.DataLoader(torch.randn(12, 3), batch_size=2)
    for _ in range(2):
        model.train()
        for x in loader:
            optimizer.zero_grad()
            scaler.scale(model(x).square().mean()).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        scheduler.step()
        model.eval()
    model[0].weight.grad = None
    model.zero_grad(set_to_none=False)
    model.zero_grad()
    stepper = instep.Stepper(model, optimizer)
    stepper.step(torch.ones(4, 3), lambda x: model(x).square().mean(), split=2)
    for x in loader:  # and one mistake
        (model(x).square().mean() / 2).backward()
        optimizer.step()
    model[2] = nn.Linear(4, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.amp.GradScaler(enabled=False)
    return [parameter.detach().clone() for parameter in model.parameters()]


OWNERS = (
    Recorder, Backwards, Clearing, Models, Losses, Witnesses, Book, Sampler, Stream, Judge, Voice,
)  # fmt: skip
PARTS = [
    (owner, name)
    for owner in OWNERS
    for name, value in vars(owner).items()
    if callable(value) and not name.startswith("__")
]


@pytest.fixture(scope="module")
def expected():
    return train()


@pytest.mark.parametrize(("owner", "name"), PARTS, ids=lambda part: getattr(part, "__name__", part))
def test_a_fault_in_any_part_does_not_touch_the_job(owner, name, expected, monkeypatch, capsys):
    called = []

    def fail(*args, **kwargs):
        called.append(name)
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(owner, name, fail)
    before = torch.autograd.backward
    with instep.watch() as job:
        seen = train()
    assert torch.autograd.backward is before
    assert all(torch.equal(a, b) for a, b in zip(expected, seen, strict=True))
    said = capsys.readouterr().err
    if not called:
        pytest.skip("the loop has no reason to call it")
    assert said.count("the watcher failed") == 1
    assert "a mistake of ours" in job.seam.faults[0]


@pytest.mark.parametrize("seam", job_module._SEAMS, ids=lambda seam: seam.__name__.split(".")[-1])
def test_a_seam_that_cannot_be_installed(seam, expected, monkeypatch, capsys):

    def fail(*_):
        raise AttributeError("another torch")

    monkeypatch.setattr(seam, "install", fail)
    with instep.watch() as job:
        seen = train()
    assert all(torch.equal(a, b) for a, b in zip(expected, seen, strict=True))
    assert capsys.readouterr().err.count("the watcher failed") == 1
    assert "another torch" in job.seam.faults[0]
    assert "may have missed something" in job.summary()


def test_a_standard_error_that_is_closed(expected, monkeypatch, tmp_path):
    closed = (tmp_path / "log").open("w")
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    with instep.watch() as job:
        seen = train()
    assert all(torch.equal(a, b) for a, b in zip(expected, seen, strict=True))
    assert job.findings
    assert job.seam.faults == []


def test_no_standard_error_at_all(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    with instep.watch() as job:
        train()
    assert job.findings
    assert job.seam.faults == []


def test_an_interrupt_in_the_watcher_ends_the_job(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Recorder, "stepped", interrupt)
    before = torch.autograd.backward
    with pytest.raises(KeyboardInterrupt), instep.watch():
        train()
    assert torch.autograd.backward is before
