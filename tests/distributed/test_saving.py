"""Checkpoints of several ranks: whole or not there, and a run goes on bit for bit."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import instep
from instep.checkpoint import folders
from instep.engine.ranks import rollcall
from instep.engine.ranks.headers import is_agreed
from instep.errors import CheckpointError, StateError, WindowError
from tests.distributed.crew import RankError
from tests.distributed.kit import dealt, spread, values
from tests.engine.kit import counted, mean_loss, mlp

SIZES = [[3, 5, 2, 4, 2], [2, 2, 6], [4, 4, 3, 2]]
KINDS = ["ddp", "fsdp"]


class Job:
    """A job on one of several ranks, with random numbers and numbers of its own on each."""

    def __init__(self, rank, world, kind, *, sizes=SIZES, seed=0):
        self.rank = rank
        self.plain = nn.Sequential(mlp(seed)[0], nn.BatchNorm1d(7).double(), mlp(seed)[2])
        self.model = spread(self.plain, kind)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, gamma=0.7)
        group = torch.distributed.group.WORLD if kind == "group" else None
        self.stepper = instep.Stepper(
            self.model, self.optimizer, scheduler=self.scheduler, clip_norm=1.0, group=group
        )
        self.data = dealt(sizes)[rank % len(sizes)]
        torch.manual_seed(100 * seed + rank)

    def loss(self, x, y):
        # With dropout, so that random states matter.
        return mean_loss(self.model, nn.functional.dropout(x, 0.1), y)

    def epoch(self, at=None, then=None):
        seen = 0
        for window in self.stepper.windows(self.data, size=2):
            for x, y in window:
                window.backward(self.loss(x, y), items=counted(y))
                if then is not None and at == ("micro-batch", window.index, seen):
                    then()
                seen += 1
            if then is not None and at == ("window", window.index):
                then()

    def found(self):
        buffers = [b.tolist() for b in self.plain.buffers()]
        state = [
            [v.full_tensor() if hasattr(v, "full_tensor") else v for v in entry.values()]
            for entry in self.optimizer.state_dict()["state"].values()
        ]
        numbers = [v.flatten().tolist() for entry in state for v in entry]
        return values(self.plain), buffers, numbers, torch.rand(1).item()


def interrupted(rank, world, kind, path, at, wait):
    """Save at a place and go on to the end; then do the rest again from what was saved."""
    job = Job(rank, world, kind)
    writing = []

    def save():
        writing.append(job.stepper.save(path, extra={"rank": rank}, wait=wait))

    job.epoch()
    job.epoch(at, save)
    if at is None:
        save()
    job.epoch()
    found = job.found()
    writing[0].wait()
    again = Job(rank, world, kind, seed=7)
    loaded = again.stepper.load(path)
    assert loaded.extra == {"rank": rank}
    assert loaded.updates == writing[0].updates
    if at is not None:
        again.epoch()
    again.epoch()
    return found == again.found(), loaded.updates, found == Job(rank, world, kind).found()


PLACES = [("window", 3), ("window", 5), None]


@pytest.mark.parametrize("wait", [True, False], ids=["", "background"])
@pytest.mark.parametrize("kind", [*KINDS, "group"])
def test_a_run_goes_on_bit_for_bit(two, tmp_path, kind, wait):
    for index, at in enumerate(PLACES):
        path = str(tmp_path / str(index))
        found = two.run(interrupted, kind, path, at, wait)
        assert found == [(True, 6 if at is None else at[1] + 1, False)] * 2
        assert len(folders.finished(Path(path))) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_three_ranks(three, tmp_path, kind):
    found = three.run(interrupted, kind, str(tmp_path), ("window", 4), True)
    assert found == [(True, 5, False)] * 3


def test_in_the_middle_of_a_window(two, tmp_path):
    found = two.run(interrupted, "ddp", str(tmp_path), ("micro-batch", 3, 0), True)
    assert found == [(True, 3, False)] * 2


def save_sharded(rank, world, path):
    job = Job(rank, world, "fsdp")
    caught = []

    def save():
        with pytest.raises(WindowError, match="cannot be saved in the middle") as error:
            job.stepper.save(path)
        caught.append(error.value.what)

    job.epoch(("micro-batch", 0, 0), save)
    return len(caught)


def test_a_sharded_model_is_saved_between_windows(two, tmp_path):
    assert two.run(save_sharded, str(tmp_path)) == [1, 1]
    assert list(tmp_path.iterdir()) == []


# -- other numbers of ranks ----------------------------------------------------------------------


def save_after(rank, world, kind, path, at):
    job = Job(rank, world, kind)
    job.epoch(at, lambda: job.stepper.save(path, extra={"of": rank}))
    if at is None:
        job.stepper.save(path, extra={"of": rank})
    return values(job.plain), job.scheduler.last_epoch


def load_and_go_on(rank, world, kind, path):
    job = Job(rank, world, kind, seed=9)
    loaded = job.stepper.load(path)
    start = values(job.plain)
    job.epoch()
    return start, job.scheduler.last_epoch, loaded.extra, values(job.plain)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_another_number_of_ranks_goes_on_at_the_end_of_an_epoch(two, three, tmp_path, kind, other):
    saved = two.run(save_after, kind, str(tmp_path), None)
    found = three.run(load_and_go_on, other, str(tmp_path))
    for start, updates, _, end in found:
        assert start == saved[0][0]
        assert updates == saved[0][1] + 3
        assert end == found[0][3]
    assert [extra for _, _, extra, _ in found] == [{"of": 0}, {"of": 1}, {"of": 1}]


class Alone(Job):
    """The same job on a process by itself."""

    def __init__(self, seed=0):
        super().__init__(0, 1, "plain", seed=seed)


@pytest.mark.parametrize("kind", KINDS)
def test_one_process_goes_on_from_a_folder_and_saves_into_it(two, tmp_path, kind):
    saved = two.run(save_after, kind, str(tmp_path), None)
    job = Alone(seed=9)
    job.stepper.load(tmp_path)
    assert values(job.plain) == saved[0][0]
    job.epoch()
    job.stepper.save(tmp_path)
    again = Alone(seed=8)
    again.stepper.load(tmp_path)
    assert values(again.plain) == values(job.plain)
    assert len(folders.finished(tmp_path)) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_several_ranks_go_on_from_a_file(two, tmp_path, kind):
    path = tmp_path / "run.ckpt"
    job = Alone()
    job.epoch()
    job.stepper.save(path)
    found = two.run(load_and_go_on, kind, str(path))
    for start, updates, _, end in found:
        assert start == values(job.plain)
        assert updates == job.scheduler.last_epoch + 3
        assert end == found[0][3]


def refused(rank, world, kind, path):
    job = Job(rank, world, kind, seed=9)
    before = values(job.plain)
    with pytest.raises((StateError, CheckpointError)) as caught:
        job.stepper.load(path)
    assert values(job.plain) == before
    return str(caught.value)


@pytest.mark.parametrize(
    ("at", "said"),
    [(("micro-batch", 1, 2), "in the middle of a window"), (("window", 1), "middle of an epoch")],
)
def test_another_number_of_ranks_inside_an_epoch_is_refused(two, three, tmp_path, at, said):
    two.run(save_after, "ddp", str(tmp_path), at)
    for text in three.run(refused, "ddp", str(tmp_path)):
        assert "of 2 ranks cannot go on with 3" in text
        assert said in text
    with pytest.raises(StateError, match="of 2 ranks cannot go on with 1"):
        Alone().stepper.load(tmp_path)


class Numbered(torch.utils.data.Dataset):
    """Samples that know their numbers."""

    def __len__(self):
        return 23

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return index, torch.randn(5, generator=generator, dtype=torch.float64), index % 3


def numbered(rank, world, path, stop, epochs, how="seed"):
    """Train on a sharded loader, and return the numbers of the samples of each epoch."""
    model = spread(mlp(rank), "ddp") if world > 1 else mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    own = torch.Generator().manual_seed(3) if how != "seed" else None
    loader = torch.utils.data.DataLoader(Numbered(), batch_size=2, shuffle=True, generator=own)
    loader = instep.distributed.shard(loader)
    seen = [[] for _ in range(epochs)]
    if Path(path).exists():
        stepper.load(path)
    for epoch in stepper.epochs(epochs):
        if how == "epochs":
            loader.sampler.set_epoch(epoch)
        for window in stepper.windows(loader, size=2):
            for index, x, y in window:
                # Whole numbers stay on the host where everything else lies on a device.
                window.backward(mean_loss(model, x, y.to(x.device)), items=len(y))
                seen[epoch] += index.tolist()
            if window.index == stop:
                stepper.save(path)
                return seen
    return seen


@pytest.mark.parametrize("how", ["seed", "generator", "epochs"])
@pytest.mark.parametrize("stop", [0, 1, 2, 3])
def test_another_number_of_ranks_goes_on_inside_an_epoch(two, three, tmp_path, stop, how):
    """2 ranks, then 3, then one process, then 2 again: every sample is in every epoch once."""
    path = str(tmp_path / "run")
    parts = two.run(numbered, path, stop, 2, how)
    if stop < 2:
        parts += three.run(numbered, path, stop + 1, 2, how)
    parts.append(numbered(0, 1, path, 4 + (stop > 1), 2, how))
    parts += two.run(numbered, path, None, 2, how)
    for epoch in range(2):
        assert sorted(index for part in parts for index in part[epoch]) == list(range(23))


@pytest.mark.parametrize("how", ["generator", "epochs"])
@pytest.mark.parametrize("stop", [1, 2, 4])
def test_orders_are_those_of_a_run_that_nobody_stopped(two, tmp_path, stop, how):
    """In the middle of an epoch and after its end: an epoch has three windows."""
    whole = two.run(numbered, str(tmp_path / "whole"), None, 3, how)
    first = two.run(numbered, str(tmp_path / "run"), stop, 3, how)
    second = two.run(numbered, str(tmp_path / "run"), None, 3, how)
    for rank in range(2):
        parts = zip(first[rank], second[rank], strict=True)
        assert [one + other for one, other in parts] == whole[rank]
    assert whole[0][0] != whole[0][1]


class Jittered(torch.utils.data.Dataset):
    """Draws from the generators of Python and numpy, as many augmentations do."""

    def __len__(self):
        return 23

    def __getitem__(self, index):
        return torch.tensor([index + random.random() + np.random.rand() + torch.rand(()).item()])


def drawing_in_the_body(rank, world, path, stop):
    def start(seed):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        model = spread(nn.Linear(1, 1), "ddp")
        loader = torch.utils.data.DataLoader(Jittered(), batch_size=2, shuffle=True)
        stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
        return stepper, model, instep.distributed.shard(loader)

    def run(stepper, model, loader, stop=None):
        seen = []
        for _ in stepper.epochs(2):
            for window in stepper.windows(loader, size=2):
                for x in window:
                    seen.append(x.flatten().tolist())
                    random.random(), np.random.rand(), torch.rand(1)
                    window.backward(model(x).square().mean(), items=len(x))
                if window.index == stop:
                    stepper.save(path)
                    return seen
        return seen, random.random(), np.random.rand(), torch.rand(1).item()

    whole, *ends = run(*start(5))
    begun = run(*start(5), stop)
    again = start(9)
    again[0].load(path)
    rest, *last = run(*again)
    return begun + rest == whole, ends == last


@pytest.mark.parametrize("stop", [0, 1, 2, 4])
def test_a_batch_that_is_drawn_ahead_comes_back_with_the_numbers_it_had(two, tmp_path, stop):
    assert two.run(drawing_in_the_body, str(tmp_path), stop) == [(True, True)] * 2


def narrower(rank, world, path):
    model = spread(mlp(inputs=4), "ddp")
    stepper = instep.Stepper(model, torch.optim.AdamW(model.parameters()))
    with pytest.raises(StateError, match="does not fit"):
        stepper.load(path)
    return True


def test_another_model_does_not_fit(two, tmp_path):
    two.run(save_after, "ddp", str(tmp_path), None)
    assert two.run(narrower, str(tmp_path)) == [True, True]


# -- damage --------------------------------------------------------------------------------------


def save_twice(rank, world, path):
    job = Job(rank, world, "fsdp")
    for _ in range(3):
        job.epoch()
        job.stepper.save(path)
    return True


def load_previous(rank, world, path):
    loaded = Job(rank, world, "fsdp").stepper.load(path, previous=True)
    return loaded.updates, loaded.is_previous


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("__1_0.distcp", "flip", "is corrupted"),
        ("__0_0.distcp", "cut", "is corrupted"),
        ("__1_0.distcp", "remove", "is cut off"),
        (".metadata", "flip", "is corrupted"),
        (".metadata", "remove", "is cut off"),
        ("rank-1.ckpt", "flip", "is corrupted"),
        ("rank-0.ckpt", "remove", "is cut off"),
        ("manifest.ckpt", "cut", "is cut off"),
    ],
)
def test_damage_is_said_on_all_ranks_and_the_previous_one_offered(
    two, tmp_path, name, damage, said
):
    two.run(save_twice, str(tmp_path))
    first, last = folders.finished(tmp_path)
    path = last / name
    content = path.read_bytes()
    if damage == "remove":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[:-3])
    else:
        middle = len(content) // 2
        flipped = bytes([content[middle] ^ 1])
        path.write_bytes(content[:middle] + flipped + content[middle + 1 :])
    for text in two.run(refused, "fsdp", str(tmp_path)):
        assert said in text
        assert "after 6 updates, is finished: stepper.load(path, previous=True)" in text
    assert two.run(load_previous, str(tmp_path)) == [(6, True)] * 2
    assert first.name == "00000002-update-6"


def swap(first, last):
    (last / "rank-0.ckpt").rename(last / "other")
    (last / "rank-1.ckpt").rename(last / "rank-0.ckpt")
    (last / "other").rename(last / "rank-1.ckpt")


def copy(name):
    return lambda first, last: shutil.copy(first / name, last / name)


MIXED = {
    "an older manifest": (copy("manifest.ckpt"), "rank-0.ckpt and manifest.ckpt are of different"),
    "an older part": (copy("rank-1.ckpt"), "rank-1.ckpt and manifest.ckpt are of different saves"),
    "another rank's part": (swap, "rank-0.ckpt is that of rank 1"),
    "no list": (lambda first, last: (last / ".metadata").unlink(), ".metadata is not there"),
}


@pytest.mark.parametrize("name", MIXED)
def test_what_does_not_belong_together_is_not_loaded(two, tmp_path, name):
    """Each file is as it was written. Both are of the same update, as a run that ends leaves it."""
    mix, said = MIXED[name]
    two.run(saving_itself, "ddp", str(tmp_path), None, {"every": 3})
    mix(*folders.finished(tmp_path))
    for text in two.run(refused, "ddp", str(tmp_path)):
        assert said in text
        assert "after 6 updates, is finished: stepper.load(path, previous=True)" in text
    for updates, warned in two.run(go_on_from_damage, str(tmp_path)):
        assert updates == 6
        assert "this run goes on from the checkpoint before it" in warned[0]


def test_damage_of_two_kinds_is_the_same_error_on_all(two, tmp_path):
    two.run(save_twice, str(tmp_path))
    last = folders.finished(tmp_path)[-1]
    (last / "rank-0.ckpt").unlink()
    (last / "rank-1.ckpt").write_bytes(b"somebody else's")
    first, second = two.run(refused, "fsdp", str(tmp_path))
    assert first == second
    assert "rank-0.ckpt is not there" in first


def written_before(rank, world, path):
    """A checkpoint of an instep whose files did not say of which save they are."""
    from instep.checkpoint import files

    write = files.write

    def before(place, parts, *, updates):
        kept = {name: part for name, part in parts.items() if name not in ("save", "rank")}
        return write(place, kept, updates=updates)

    job = Job(rank, world, "ddp")
    files.write = before
    try:
        job.stepper.save(path)
    finally:
        files.write = write
    return Job(rank, world, "ddp", seed=7).stepper.load(path).updates


def test_folders_that_do_not_say_of_which_save_they_are_can_be_loaded(two, tmp_path):
    assert two.run(written_before, str(tmp_path / "run")) == [0, 0]


def test_a_folder_without_a_manifest_is_no_checkpoint(two, tmp_path):
    two.run(save_twice, str(tmp_path))
    first, last = folders.finished(tmp_path)
    (last / "manifest.ckpt").unlink()
    found = two.run(load_and_go_on, "fsdp", str(tmp_path))
    assert found[0][1] == 6 + 3
    # The next one removes what was never finished, and keeps two.
    two.run(save_twice, str(tmp_path))
    assert not last.exists()
    assert len(list(tmp_path.iterdir())) == 2


def full_on_one(rank, world, path, wait):
    job = Job(rank, world, "ddp")
    job.stepper.save(path)
    from instep.checkpoint import files

    write = files.write

    def full(place, parts, *, updates):
        if rank == 1:
            with files.disk.explained(place):
                raise OSError(28, "No space left on device")
        write(place, parts, updates=updates)

    files.write = full
    try:
        with pytest.raises(CheckpointError, match="the disk is full") as caught:
            job.stepper.save(path, wait=wait).wait()
    finally:
        files.write = write
    job.epoch()
    return caught.value.what


@pytest.mark.parametrize("wait", [True, False])
def test_a_full_disk_on_one_rank_is_an_error_on_all(two, tmp_path, wait):
    first, second = two.run(full_on_one, str(tmp_path), wait)
    assert "failed on rank 1" in first
    assert "the disk is full" in second
    (only,) = tmp_path.iterdir()
    assert only.name == "00000001-update-0"


def full_for_tensors(rank, world, path, wait, size):
    """The file system of rank 1 takes no more: found by the library that writes the tensors."""
    import resource
    import warnings

    job = Job(rank, world, "ddp")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    on_excess = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def limit(size):
        if rank == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with job.stepper.autosave(path, every=2, signals=()):
            # The group for the background is made now: its store is a file here, too.
            job.stepper.save(path, wait=wait).wait()
            try:
                limit(size)
                with pytest.raises(CheckpointError, match="the disk is full"):
                    job.stepper.save(path, wait=wait).wait()
                job.epoch()
            finally:
                limit(before[0])
                signal.signal(signal.SIGXFSZ, on_excess)
    return [str(w.message) for w in said if issubclass(w.category, instep.errors.InstepWarning)]


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("size", [100, 3000, 6000])
def test_a_full_disk_for_the_tensors_of_one_rank_is_said_on_all(two, tmp_path, wait, size):
    """Wherever it comes: in the middle of an archive, torch fails at the end of that, too."""
    told = two.run(full_for_tensors, str(tmp_path), wait, size)
    for said in told:
        assert "no checkpoint after 2 updates" in said[0]
        assert "the disk is full" in said[0]
    assert "the checkpoint failed on rank 1: " in told[0][0]
    assert "failed on" not in told[1][0]
    assert folders.finished(tmp_path)[-1].name.endswith("-update-3")


def evil(rank, world, path):
    with pytest.raises(CheckpointError, match="does not belong into a list of tensors"):
        Job(rank, world, "ddp").stepper.load(path)
    return True


def test_nothing_in_a_folder_is_run(two, tmp_path):
    import pickle

    from instep.checkpoint import files, shards

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "was here"),))

    two.run(save_after, "ddp", str(tmp_path / "run"), None)
    (folder,) = folders.finished(tmp_path / "run")
    (folder / ".metadata").write_bytes(pickle.dumps(Evil()))
    own = files.read(folder / "rank-0.ckpt")
    own.parts["digests"][".metadata"] = shards.digest_of(folder / ".metadata")
    files.write(folder / "rank-0.ckpt", own.parts, updates=own.updates)
    assert two.run(evil, str(tmp_path / "run")) == [True, True]
    assert not (tmp_path / "was here").exists()


def onto_a_file(rank, world, path):
    with pytest.raises(CheckpointError, match="is a file"):
        Job(rank, world, "ddp").stepper.save(path)
    return True


def test_a_file_is_not_replaced_by_a_folder(two, tmp_path):
    path = tmp_path / "run.ckpt"
    path.write_text("precious")
    assert two.run(onto_a_file, str(path)) == [True, True]
    assert path.read_text() == "precious"


def to_other_paths(rank, world, path):
    job = Job(rank, world, "ddp")
    with pytest.raises(CheckpointError, match="ranks save to different paths") as caught:
        job.stepper.save(f"{path}/{rank}")
    # A link to the same place is the same.
    link = Path(path) / "link"
    if rank == 0:
        link.symlink_to(Path(path) / "run")
    torch.distributed.barrier()
    job.stepper.save(link if rank else Path(path) / "run")
    job.epoch()
    return caught.value.what


def test_ranks_that_save_to_different_paths_are_told_both(two, tmp_path):
    for what in two.run(to_other_paths, str(tmp_path)):
        assert f"{tmp_path}/0 on rank 0; {tmp_path}/1 on rank 1" in what
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "run"]
    assert len(folders.finished(tmp_path / "run")) == 1


def in_other_ways(rank, world, path):
    job = Job(rank, world, "ddp")
    said = []
    for call in (job.stepper.save, job.stepper.autosave):
        with pytest.raises(CheckpointError, match="not in the same way") as caught:
            call(path, wait=rank == 0)
        said.append(caught.value.what)
    job.stepper.save(path, wait=False).wait()
    job.epoch()
    return said


def test_ranks_of_which_one_does_not_wait_are_told(two, tmp_path):
    for said in two.run(in_other_ways, str(tmp_path / "run")):
        for what in said:
            assert f"{tmp_path}/run on rank 0; {tmp_path}/run (wait=False) on rank 1" in what


def load_from_other_paths(rank, world, path):
    job = Job(rank, world, "ddp")
    job.stepper.save(f"{path}/run")
    said = []
    for where, previous in ((f"{path}/{'other' if rank else 'run'}", False), (f"{path}/run", rank)):
        with pytest.raises(CheckpointError, match="ranks load from different paths") as caught:
            job.stepper.load(where, previous=bool(previous))
        said.append(str(caught.value))
    job.stepper.load(f"{path}/run")
    job.epoch()
    return said


def test_ranks_that_load_from_different_paths_are_told_both(three, tmp_path):
    for paths, which in three.run(load_from_other_paths, str(tmp_path)):
        assert f"{tmp_path}/run on rank 0; {tmp_path}/other on ranks 1 and 2." in paths
        assert f"{tmp_path}/run on rank 0; {tmp_path}/run (previous=True) on ranks 1" in which
        assert "Nothing was loaded" in paths


def load_on_the_first_only(rank, world, path, call):
    job = Job(rank, world, "ddp")
    job.epoch()
    job.stepper.save(path)
    with pytest.raises(WindowError) as caught:
        if rank == 0:
            getattr(job.stepper, call)(path)
        else:
            job.epoch()
    return str(caught.value), values(job.model)


@pytest.mark.parametrize("call", ["load", "autosave"])
def test_a_load_on_one_rank_only_is_an_error_on_all(two, tmp_path, call):
    (first, mine), (second, others) = two.run(load_on_the_first_only, str(tmp_path / "run"), call)
    assert first.startswith(f"rank 1 did not come to {call}, but for something else.")
    assert f"call stepper.{call}() on every rank, without `if rank == 0`" in first
    about = {"load": "loading from", "autosave": "autosave at"}[call]
    assert f"rank 0 for begin '{about} {tmp_path}/run'" in second
    assert mine == others


def load_and_nobody_comes(rank, world, path, call):
    rollcall.ROLL_CALL = 1.0
    job = Job(rank, world, "ddp")
    if rank == 1:
        time.sleep(4)
        return ""
    with pytest.raises(WindowError) as caught:
        getattr(job.stepper, call)(path)
    return str(caught.value)


@pytest.mark.parametrize("call", ["load", "autosave"])
def test_a_rank_that_does_not_come_to_load_is_named(two, tmp_path, call):
    said, _ = two.run(load_and_nobody_comes, str(tmp_path / "run"), call, timeout=2.0)
    what = {"load": "loading a checkpoint", "autosave": "the start of autosave"}[call]
    assert said.startswith(f"rank 1 did not come to {what} in time.")


def save_on_the_first_only(rank, world, path):
    job = Job(rank, world, "ddp")
    job.epoch()
    with pytest.raises(WindowError) as caught:
        if rank == 0:
            job.stepper.save(path)
        else:
            job.epoch()
    return str(caught.value)


def test_a_save_on_one_rank_only_is_an_error_on_all(two, tmp_path):
    first, second = two.run(save_on_the_first_only, str(tmp_path / "run"))
    assert "rank 1 did not come to save" in first
    assert "call stepper.save() on every rank, without `if rank == 0`" in first
    assert f"rank 0 for begin 'a checkpoint at {tmp_path}/run'" in second
    assert list(tmp_path.iterdir()) == []


def foreign_extra_on_one(rank, world, path):
    job = Job(rank, world, "ddp")
    with pytest.raises(CheckpointError, match=r"extra is a builtins\.object") as caught:
        job.stepper.save(path, extra=object() if rank else 1)
    job.epoch()
    return caught.value.what


def test_extra_that_cannot_be_saved_on_one_rank_is_an_error_on_all(two, tmp_path):
    first, second = two.run(foreign_extra_on_one, str(tmp_path / "run"))
    assert "the checkpoint failed on rank 1" in first
    assert "failed on" not in second
    assert list(tmp_path.iterdir()) == []


def save_in_vain(rank, world, path, how):
    """A save in an open window, that fails on rank 1; all ranks have the error."""
    import resource

    job = Job(rank, world, "ddp")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    on_excess = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    told, left = [], job.stepper._together._exchange.leave
    job.stepper._together._exchange.leave = lambda reason: (told.append(reason), left(reason))
    x, y = job.data[0]
    raised = None
    try:
        with job.stepper.window() as window:
            window.backward(job.loss(x, y), items=counted(y))
            if how == "tensors" and rank == 1:
                resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
            extra = object() if how == "extra" and rank == 1 else None
            where = f"{path}/{rank}" if how == "paths" else path
            job.stepper.save(where, extra=extra)
    except CheckpointError as error:
        raised = error
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, on_excess)
    job.epoch()
    return is_agreed(raised), told, job.found()[0]


@pytest.mark.parametrize("how", ["extra", "tensors", "paths"])
def test_a_save_that_fails_in_a_window_is_known_to_all(two, tmp_path, how):
    """Nobody says what all ranks know: a word that nobody waits for is taken for another's."""
    first, second = two.run(save_in_vain, str(tmp_path / "run"), how)
    assert first[:2] == second[:2] == (True, [])
    assert first[2] == second[2]


def wait_on_one(rank, world, path):
    """What was written in the background fails where somebody waits for it: on one rank here."""
    from instep.checkpoint import files

    job = Job(rank, world, "ddp")
    job.stepper.save(path, wait=False).wait()
    write = files.write

    def full(place, parts, *, updates):
        with files.disk.explained(place):
            raise OSError(28, "No space left on device")

    files.write = full
    x, y = job.data[0]
    said = ""
    try:
        with job.stepper.window() as window:
            window.backward(job.loss(x, y), items=counted(y))
            writing = job.stepper.save(path, wait=False)
            if rank == 1:
                writing.wait()
    except (CheckpointError, instep.errors.WindowError) as error:
        said = error.what
    finally:
        files.write = write
        while not writing.is_done:
            pass
        job.stepper._desk.writing = None
    job.epoch()
    return said, job.found()[0]


def test_a_failure_that_one_rank_has_waited_for_is_told_to_the_others(two, tmp_path):
    first, second = two.run(wait_on_one, str(tmp_path / "run"))
    assert first[0].startswith("rank 1 gave up")
    assert "the disk is full" in second[0]
    assert first[1] == second[1]


# -- autosave ------------------------------------------------------------------------------------


class Stop(Exception):
    pass


def leave():
    raise Stop


def saving_itself(rank, world, kind, path, stop, options):
    job = Job(rank, world, kind)
    seen = []
    try:
        with job.stepper.autosave(path, signals=[signal.SIGUSR1], **options) as run:
            for epoch in job.stepper.epochs(2):
                for window in job.stepper.windows(job.data, size=2):
                    for x, y in window:
                        window.backward(job.loss(x, y), items=counted(y))
                    seen.append((epoch, window.index))
                    if stop == "kill" and window.index == 4:
                        leave()
                    if stop == "signal" and rank == 1 and window.index == 2:
                        signal.raise_signal(signal.SIGUSR1)
    except Stop:
        return seen
    return job.found(), seen, None if run.resumed is None else run.resumed.updates


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_save_themselves_and_go_on(two, tmp_path, kind):
    whole = two.run(saving_itself, kind, str(tmp_path / "whole"), None, {"every": 2})
    for _ in range(2):
        two.run(saving_itself, kind, str(tmp_path / "run"), "kill", {"every": 2})
    found = two.run(saving_itself, kind, str(tmp_path / "run"), None, {"every": 2})
    assert [each[0] for each in found] == [each[0] for each in whole]
    assert found[0][2] == 4


def told_to_end(rank, world, path):
    calls = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: calls.append(number))
    try:
        found = saving_itself(rank, world, "ddp", path, "signal", {"every": 100})
    finally:
        signal.signal(signal.SIGUSR1, before)
    return len(found[1]), calls, [p.name for p in folders.finished(Path(path))]


def test_a_signal_to_one_rank_saves_all(two, tmp_path):
    """It is told to the others with the next window, and saved after that."""
    first, second = two.run(told_to_end, str(tmp_path))
    assert (first[0], second[0]) == (6, 6)
    assert (first[1], second[1]) == ([], [signal.SIGUSR1])
    # The one of the beginning is gone; the last is that of the end.
    assert first[2] == ["00000002-update-4", "00000003-update-6"]


def go_on_from_damage(rank, world, path):
    import warnings

    job = Job(rank, world, "ddp")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = job.stepper.autosave(path, every=1, signals=())
    run.stop()
    return run.resumed.updates, [str(each.message).splitlines()[0] for each in said]


def test_damage_on_the_files_of_one_rank_is_gone_around_by_all(two, tmp_path):
    two.run(saving_itself, "ddp", str(tmp_path), None, {"every": 3})
    last = folders.finished(tmp_path)[-1]
    path = last / "rank-1.ckpt"
    path.write_bytes(path.read_bytes()[:-1])
    for updates, said in two.run(go_on_from_damage, str(tmp_path)):
        assert updates == 6
        assert len(said) == 1
        assert "is cut off: this run goes on from the checkpoint before it" in said[0]


def test_a_rank_that_hangs_while_saving_is_an_error(two, tmp_path):
    with pytest.raises(RankError) as caught:
        two.run(hang_in_save, str(tmp_path), timeout=2.0)
    assert "rank 1 did not come to the checkpoint" in caught.value.errors[0]
    assert list(folders.finished(tmp_path)) == []


def hang_in_save(rank, world, path):
    import time

    job = Job(rank, world, "ddp")
    if rank == 1:
        time.sleep(5)
        return
    job.stepper.save(path)


def test_the_comparison_has_teeth(two):
    (model, _, _, _), _ = two.run(trained, 0)
    other, _ = two.run(trained, 1)
    assert model != other[0]


def trained(rank, world, seed):
    job = Job(rank, world, "ddp", seed=seed)
    job.epoch()
    return job.found()
