"""`stepper.save` and `stepper.load`: everything comes back, or nothing changes."""

from __future__ import annotations

import copy
import os
import socket
import threading
from functools import partial

import pytest
import torch
from torch import nn

import instep
from instep.checkpoint import files
from instep.errors import CheckpointError, StateError, WindowError
from tests.engine.kit import assert_bit_identical, batches, mean_loss, mlp
from tests.engine.test_state import Job


class SavedJob(Job):
    """The job of test_state, saved by the stepper alone."""

    def __init__(self, path, **options) -> None:
        super().__init__(**options)
        self.path = path

    def save(self) -> bytes:
        self.stepper.save(self.path, extra={"epoch": 2})
        return b"saved"

    def load(self, saved: bytes) -> None:
        assert saved == b"saved"
        self.loaded = self.stepper.load(self.path)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "stop", [(0, "window"), (4, "before"), (4, "forward"), (4, "after"), (8, "closed")], ids=str
)
def test_a_run_goes_on_bit_for_bit_from_one_file(tmp_path, stop, workers):
    path = tmp_path / "run.ckpt"
    job = SavedJob(path, workers=workers, clip_norm=1.0)
    job.epoch()
    saved, log = job.epoch(stop=stop)
    job.epoch()
    resumed = SavedJob(path, workers=workers, clip_norm=1.0)
    torch.manual_seed(99)
    resumed.load(saved)
    assert resumed.loaded.extra == {"epoch": 2}
    assert resumed.loaded.updates == 3 + stop[0] // 3 + (stop == (8, "closed"))
    assert not resumed.loaded.is_previous
    _, tail = resumed.epoch()
    assert tail == log[len(log) - len(tail) :]
    resumed.epoch()
    assert_bit_identical(resumed.model, job.model)
    assert resumed.scheduler.state_dict() == job.scheduler.state_dict()


def test_the_loss_scale_and_found_sizes_come_along(tmp_path):
    def build():
        model = mlp(dtype=torch.float32)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
        optimizer = torch.optim.Adam(model.parameters())
        return model, scaler, instep.Stepper(model, optimizer, precision="fp16", scaler=scaler)

    model, scaler, stepper = build()
    x = torch.randn(8, 5)
    split = instep.Micro("auto", budget=20_000)
    for _ in range(3):
        stepper.step(x, lambda x: model(x).square().mean(), split=split)
    stepper.save(tmp_path / "run.ckpt")
    other, other_scaler, resumed = build()
    resumed.load(tmp_path / "run.ckpt")
    assert other_scaler.state_dict() == scaler.state_dict()
    assert other_scaler.get_scale() == 2.0**11
    assert resumed.state_dict()["fitting"] == stepper.state_dict()["fitting"] != []


def test_the_previous_one_is_kept_and_taken_when_asked_for(tmp_path):
    path = tmp_path / "run.ckpt"
    job = SavedJob(path)
    job.epoch()
    job.stepper.save(path, extra=1)
    weights = copy.deepcopy(job.model)
    job.epoch()
    job.stepper.save(path, extra=2)
    path.write_bytes(path.read_bytes()[:-1])
    other = SavedJob(path)
    before = copy.deepcopy(other.model)
    with pytest.raises(CheckpointError, match="is cut off") as caught:
        other.stepper.load(path)
    assert "after 3 updates, is whole: stepper.load(path, previous=True)" in caught.value.fix
    assert_bit_identical(other.model, before)
    loaded = other.stepper.load(path, previous=True)
    assert (loaded.updates, loaded.extra, loaded.is_previous) == (3, 1, True)
    assert loaded.path.name == "run.ckpt.previous"
    assert_bit_identical(other.model, weights)


def test_writing_goes_on_while_training_does(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    job = SavedJob(path)
    job.epoch()
    weights = copy.deepcopy(job.model)
    may_write = threading.Event()
    write = files.write

    def slow(*args, **kwargs):
        may_write.wait(30)
        return write(*args, **kwargs)

    monkeypatch.setattr(files, "write", slow)
    writing = job.stepper.save(path, wait=False)
    assert "being written" in repr(writing)
    job.epoch()
    assert not writing.is_done
    assert not path.exists()
    may_write.set()
    writing.wait()
    assert writing.is_done
    assert writing.updates == 3
    other = SavedJob(path)
    other.stepper.load(path)
    assert_bit_identical(other.model, weights)


def test_what_went_wrong_in_the_background_is_raised(tmp_path):
    job = SavedJob(tmp_path)
    (tmp_path / "file").touch()
    in_the_way = tmp_path / "file" / "run.ckpt"
    writing = job.stepper.save(in_the_way, wait=False)
    with pytest.raises(CheckpointError, match="could not be written"):
        writing.wait()
    job.stepper.save(in_the_way, wait=False)
    with pytest.raises(CheckpointError, match="could not be written"):
        job.stepper.save(tmp_path / "run.ckpt")
    job.stepper.save(tmp_path / "run.ckpt").wait()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "run.ckpt"]


def misfits():
    """Builders of steppers that a checkpoint of `mlp()` with SGD and StepLR does not fit."""
    sgd = torch.optim.SGD

    def stepper(model, optimizer=None, scheduler="step", **options):
        optimizer = optimizer or sgd(nn.ModuleList(model).parameters(), lr=0.1)
        kinds = {"step": lambda o: torch.optim.lr_scheduler.StepLR(o, 2), None: lambda o: None}
        one = optimizer if isinstance(optimizer, torch.optim.Optimizer) else None
        return instep.Stepper(
            model, optimizer, scheduler=kinds[scheduler if one else None](one), **options
        )

    yield "it has no '4.weight'", lambda: stepper(nn.Sequential(*mlp(), nn.ReLU(), mlp()[0]))
    yield "the model has no '2.", lambda: stepper(mlp()[:1])
    yield r"'0.weight' is \(7, 5\) there and \(7, 6\)", lambda: stepper(mlp(inputs=6))
    yield "float64 there and torch.float32", lambda: stepper(mlp(dtype=torch.float32))
    yield "has 1 models, this stepper 2", lambda: stepper([mlp(), mlp()])
    yield "schedulers", lambda: stepper(mlp(), scheduler=None)

    def grouped():
        model = mlp()
        groups = [{"params": model[0].parameters()}, {"params": model[2].parameters()}]
        return stepper(model, sgd(groups, lr=0.1))

    yield r"in groups of \[\[4\]\] there, and of \[\[2, 2\]\]", grouped

    def named():
        model = mlp()
        return stepper(model, {"a": sgd(model.parameters(), lr=0.1)})

    yield r"optimizers \['optimizer'\], this stepper \['a'\]", named

    def other_class():
        model = mlp()
        return stepper(model, torch.optim.Adagrad(model.parameters(), lr=0.1))

    yield "'optimizer' is SGD there and Adagrad here", other_class

    def other_order():
        model = mlp()
        return stepper(model, sgd([*model[2].parameters(), *model[0].parameters()], lr=0.1))

    yield "parameter 0 of 'optimizer' is '0.weight' there and '2.weight' here", other_order


@pytest.mark.parametrize("case", range(10))
def test_what_does_not_fit_changes_nothing(tmp_path, case):
    path = tmp_path / "run.ckpt"
    model = mlp(seed=5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    instep.Stepper(model, optimizer, scheduler=scheduler).save(path)
    said, build = list(misfits())[case]
    other = build()
    before = copy.deepcopy([m.state_dict() for m in other.models])
    random = torch.get_rng_state()
    with pytest.raises(StateError, match=said):
        other.load(path)
    after = [m.state_dict() for m in other.models]
    assert all(
        torch.equal(one[k], two[k]) for one, two in zip(before, after, strict=True) for k in one
    )
    assert torch.equal(random, torch.get_rng_state())


def test_a_file_of_before_has_no_names_of_parameters_and_loads(tmp_path):
    path = tmp_path / "run.ckpt"
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    stepper.save(path)
    parts = files.read(path).parts
    names = ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert parts.pop("makes") == {"optimizer": [{"class": "SGD", "parameters": [names]}]}
    files.write(path, parts, updates=0)
    assert stepper.load(path).updates == 0


def test_nothing_to_go_on_from_says_how_to_begin_anew(tmp_path):
    path = tmp_path / "run.ckpt"
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    stepper.save(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"either\. Move run\.ckpt away to begin anew"):
        stepper.load(path)
    path.with_name("run.ckpt.previous").write_bytes(b"")
    for previous in (True, False):
        with pytest.raises(CheckpointError, match=r"Move run\.ckpt and run\.ckpt\.previous away"):
            stepper.load(path, previous=previous)


def test_parts_that_are_missing_or_newer_are_said(tmp_path):
    path = tmp_path / "run.ckpt"
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    stepper.save(path)
    parts = files.read(path).parts
    files.write(path, {**parts, "version": 2}, updates=0)
    with pytest.raises(StateError, match="version 2, this is 1"):
        stepper.load(path)
    files.write(path, {"models": []}, updates=0)
    with pytest.raises(StateError, match="it has no version, optimizers"):
        stepper.load(path)


def test_what_cannot_be_read_again_is_not_saved(tmp_path):
    path = tmp_path / "run.ckpt"
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(CheckpointError, match=r"extra\['loss'\] is a builtins.function"):
        stepper.save(path, extra={"loss": mlp})
    assert list(tmp_path.iterdir()) == []


def test_data_that_contains_itself_is_said(tmp_path):
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    extra = {"a": [1]}
    extra["a"].append(extra)
    with pytest.raises(CheckpointError, match=r"extra\['a'\]\[1\] contains itself"):
        stepper.save(tmp_path / "run.ckpt", extra=extra)
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(CheckpointError, match="extra is nested too deeply"):
        stepper.save(tmp_path / "run.ckpt", extra=deep)
    shared = [1]
    stepper.save(tmp_path / "run.ckpt", extra=[shared, shared])
    assert stepper.load(tmp_path / "run.ckpt").extra == [shared, shared]


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_what_is_no_file_is_left_alone(tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if kind == "pipe":
        os.mkfifo("run.ckpt")
    else:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("run.ckpt")
    before = os.lstat("run.ckpt")
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    calls = [
        lambda: stepper.save("run.ckpt"),
        lambda: stepper.load("run.ckpt"),
        lambda: stepper.autosave("run.ckpt", every=1),
    ]
    for call in calls:
        with pytest.raises(CheckpointError, match="is no file: it is a device, a pipe or a socket"):
            call()
    assert list(tmp_path.iterdir()) == [tmp_path / "run.ckpt"]
    assert os.lstat("run.ckpt") == before


def test_what_is_no_checkpoint_is_not_overwritten(tmp_path):
    path = tmp_path / "thesis.txt"
    path.write_text("mine")
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for wait in (True, False):
        with pytest.raises(CheckpointError, match="is no checkpoint, and is not overwritten"):
            stepper.save(path, wait=wait)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]
    # Nor is one of zeros, which anybody may have made; also by a run that saves itself.
    content = b"\0" * 300
    path.write_bytes(content)
    for call in (stepper.save, partial(stepper.autosave, every=1)):
        with pytest.raises(CheckpointError, match=r"is no checkpoint|was never finished"):
            call(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]
    # A checkpoint that is damaged may go, and what is empty beside one.
    path.write_bytes(b"\x93instep\ncut off")
    stepper.save(path)
    stepper.save(path)
    path.write_bytes(b"")
    stepper.save(path)
    assert stepper.load(path).updates == 0


def test_places_without_a_way_back_write_nothing(tmp_path):
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data = batches([2, 2])
    for window in stepper.windows(data, size=2):
        for batch in window:
            window.backward(mean_loss(model, *batch), items=2)
            break
        with pytest.raises(WindowError, match="cannot be resumed"):
            stepper.save(tmp_path / "run.ckpt")
        window.discard()
        break
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["run.ckpt.previous", "run.ckpt.outgoing", "run.ckpt.lock"])
@pytest.mark.parametrize("kind", ["file", "folder", "pipe"])
@pytest.mark.parametrize("is_first", [True, False])
def test_somebody_elses_names_beside_it_are_left_alone(tmp_path, name, kind, is_first):
    path = tmp_path / "run.ckpt"
    job = SavedJob(path)
    if not is_first:
        job.stepper.save(path)
    beside = tmp_path / name
    if kind == "file":
        beside.write_text("notes of mine")
    elif kind == "folder":
        beside.mkdir()
        (beside / "mine").write_text("notes")
    else:
        os.mkfifo(beside)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for save in (job.stepper.save, lambda p: job.stepper.save(p, wait=False)):
        with pytest.raises(CheckpointError, match="Nothing was changed") as caught:
            save(path)
        assert caught.value.what.startswith(f"{beside} is ")
    with pytest.raises(CheckpointError, match=name):
        job.stepper.autosave(path, every=1).save()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert beside.exists()


def test_what_a_killed_writer_left_beside_it_is_no_obstacle(tmp_path):
    path = tmp_path / "run.ckpt"
    job = SavedJob(path)
    job.stepper.save(path)
    (tmp_path / "run.ckpt.lock").touch()
    (tmp_path / "run.ckpt.outgoing").hardlink_to(path)
    (tmp_path / "run.ckpt.previous").write_bytes(path.read_bytes()[:200])
    job.stepper.save(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.ckpt", "run.ckpt.previous"]
    job.stepper.load(path, previous=True)


@pytest.mark.parametrize("kind", ["accumulated", "tensor"])
def test_a_hook_of_a_backward_saves_nothing_and_loses_nothing(tmp_path, kind):
    path = tmp_path / "run.ckpt"
    expected = SavedJob(path)
    expected.epoch()
    job = SavedJob(path)
    said = []

    def hook(_):
        with pytest.raises(WindowError, match="cannot be resumed from here") as caught:
            job.stepper.save(path)
        said.append(caught.value.why)

    parameter = next(iter(job.model.parameters()))
    if kind == "accumulated":
        parameter.register_post_accumulate_grad_hook(hook)
    else:
        parameter.register_hook(hook)
    job.epoch()
    assert said
    assert all(why.startswith("a backward is running") for why in said)
    assert list(tmp_path.iterdir()) == []
    assert_bit_identical(job.model, expected.model)
    # After the backward all is well, also where it has failed.
    job.stepper.save(path)
    assert path.exists()


def test_a_backward_that_failed_is_not_running(tmp_path):
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def hook(_):
        raise ZeroDivisionError

    handle = next(iter(model.parameters())).register_post_accumulate_grad_hook(hook)
    with pytest.raises(ZeroDivisionError), stepper.window() as window:
        window.backward(model(torch.ones(1, 5).double()).mean(), items=1)
    handle.remove()
    stepper.save(tmp_path / "run.ckpt")


def test_a_place_that_was_loaded_and_not_taken_up_is_saved_again(tmp_path):
    job = Job()
    saved, _ = job.epoch(stop=(4, "after"))
    again = SavedJob(tmp_path / "again.ckpt")
    Job.load(again, saved)
    again.save()
    resumed = SavedJob(again.path)
    resumed.load(b"saved")
    resumed.epoch()
    assert_bit_identical(resumed.model, job.model)


def test_a_window_by_hand_beside_a_loaded_place_has_no_way_back(tmp_path):
    job = Job()
    saved, _ = job.epoch(stop=(3, "closed"))
    resumed = Job()
    resumed.load(saved)
    with resumed.stepper.window() as window:
        window.backward(resumed.loss(torch.ones(2, 5), torch.tensor([0, 1])), items=2)
        with pytest.raises(WindowError, match="cannot be resumed"):
            resumed.stepper.state_dict()
        window.discard()
    assert resumed.stepper.state_dict()["place"] is not None


def test_a_compiled_model_and_a_plain_one_are_the_same_to_it(tmp_path):
    path = tmp_path / "run.ckpt"
    model = mlp(seed=1)
    compiled = torch.compile(model, backend="eager")
    instep.Stepper(compiled, torch.optim.SGD(compiled.parameters(), lr=0.1)).save(path)
    plain = mlp(seed=2)
    instep.Stepper(plain, torch.optim.SGD(plain.parameters(), lr=0.1)).load(path)
    assert_bit_identical(plain, model)


def test_loading_inside_a_window_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    job = SavedJob(path)
    job.save()
    before = copy.deepcopy(job.model)
    for window in job.stepper.windows(job.loader, size=3):
        with pytest.raises(WindowError, match="inside a window"):
            job.stepper.load(path)
        window.discard()
        break
    assert_bit_identical(job.model, before)


@pytest.mark.parametrize(
    ("name", "words"),
    [("a" * 250, "shorter name"), ("a" * 300, "shorter name"), ("a\0b", "embedded null byte")],
    ids=["with what is beside it", "by itself", "a zero"],
)
def test_names_that_no_file_can_have_are_explained(tmp_path, name, words):
    model = torch.nn.Linear(1, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    path = f"{tmp_path}/{name}"
    with pytest.raises(CheckpointError, match=words):
        stepper.save(path)
    with pytest.raises(CheckpointError, match=words):
        stepper.autosave(path, every=1)
    for previous in (False, True):
        with pytest.raises(CheckpointError):
            stepper.load(path, previous=previous)
    assert not list(tmp_path.iterdir())


def test_a_file_where_a_folder_would_be(tmp_path):
    model = torch.nn.Linear(1, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(CheckpointError, match="there is a file where this one has a folder"):
        stepper.save(tmp_path / "notes" / "run.ckpt")
    assert (tmp_path / "notes").read_text() == "mine"


class Elsewhere:
    """A path, as far as Python's protocol goes."""

    def __init__(self, path) -> None:
        self.path = path

    def __fspath__(self):
        return self.path


@pytest.mark.parametrize("path", [None, 5, 2.5, b"run.ckpt", ["run.ckpt"], Elsewhere(b"run.ckpt")])
@pytest.mark.parametrize("call", ["save", "load", "autosave"])
def test_what_is_no_path_is_said(path, call):
    model = torch.nn.Linear(1, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    options = {"every": 1} if call == "autosave" else {}
    with pytest.raises(CheckpointError, match="which is no path"):
        getattr(stepper, call)(path, **options)


@pytest.mark.skipif(os.name != "posix", reason="the folder one works in stays there")
@pytest.mark.parametrize("call", ["save", "load", "autosave"])
def test_a_folder_that_was_removed_under_the_program_is_said(tmp_path, monkeypatch, call):
    model = torch.nn.Linear(1, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    options = {"every": 1} if call == "autosave" else {}
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(CheckpointError, match=r"'run\.ckpt' is in is gone"):
        getattr(stepper, call)("run.ckpt", **options)
    stepper.save(Elsewhere(str(tmp_path / "run.ckpt")))
    assert stepper.load(tmp_path / "run.ckpt").updates == 0
