"""Wherever a writer is stopped, a whole checkpoint is found under one of the two names."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from instep.checkpoint import disk
from instep.checkpoint.disk import place_of, previous_of, write_whole
from instep.checkpoint.envelope import EnvelopeError, verify
from instep.errors import CheckpointError

# Writes the third checkpoint, and dies at the n-th thing that it does to the disk.
WRITER = """
import errno, os, sys
from pathlib import Path
from instep.checkpoint import disk, envelope

path, dies_at, has_links = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "links"
done = []

def counted(owner, name, before=False):
    original = getattr(owner, name)
    def wrapper(*args, **kwargs):
        result = None if before else original(*args, **kwargs)
        done.append(name)
        if len(done) == dies_at:
            os.kill(os.getpid(), 9)
        return original(*args, **kwargs) if before else result
    setattr(owner, name, wrapper)

def none(*args):
    raise OSError(errno.EPERM, "no links here")

if not has_links:
    Path.hardlink_to = none
for owner, name in ((envelope.Sealing, "write"), (envelope.Sealing, "seal"), (os, "fsync"),
                    (Path, "hardlink_to"), (Path, "replace"), (Path, "unlink")):
    counted(owner, name)
counted(os, "fsync", before=True)

def write(sealing):
    for _ in range(3):
        sealing.write(b"3" * 1000)

disk.write_whole(path, write, updates=3)
print(len(done))
"""


def put(path: Path, updates: int) -> None:
    write_whole(path, lambda sealing: sealing.write(str(updates).encode() * 3000), updates=updates)


def found(path: Path) -> int | None:
    """The updates of a file if it is whole, and None if it is not there; damage raises."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        head = verify(file)
        assert file.read() == str(head.updates).encode() * 3000
    return head.updates


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def run_writer(path: Path, dies_at: int, links: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WRITER, str(path), str(dies_at), links],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("links", ["links", "no links"])
def test_a_writer_killed_anywhere_leaves_a_whole_checkpoint(tmp_path, links):
    steps = int(run_writer(tmp_path / "try.ckpt", 0, links).stdout)
    assert steps >= 9
    seen = set()
    for dies_at in range(1, steps + 3):
        path = tmp_path / str(dies_at) / "run.ckpt"
        put(path, 1)
        put(path, 2)
        finished = run_writer(path, dies_at, links).returncode == 0
        state = (found(path), found(previous_of(path)))
        seen.add(state)
        assert state in ((2, 1), (3, 1), (3, 2), (None, 2))
        assert state != (None, 2) or links == "no links"
        assert not finished or state == (3, 2)
        # The next one cleans up after it.
        put(path, 4)
        newest = max(updates for updates in state if updates is not None)
        assert (found(path), found(previous_of(path))) == (4, newest)
        assert left_in(path.parent) == ["run.ckpt", "run.ckpt.previous"]
    assert {(2, 1), (3, 2)} <= seen


def test_what_is_damaged_does_not_replace_the_previous_one(tmp_path):
    path = tmp_path / "run.ckpt"
    put(path, 1)
    put(path, 2)
    path.write_bytes(path.read_bytes()[:-1])
    put(path, 3)
    assert (found(path), found(previous_of(path))) == (3, 1)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_everything_as_it_was(tmp_path, code):
    path = tmp_path / "run.ckpt"
    put(path, 1)
    put(path, 2)
    before = {name: (tmp_path / name).read_bytes() for name in left_in(tmp_path)}

    def write(sealing):
        sealing.write(b"x" * 10)
        raise OSError(code, os.strerror(code))

    with pytest.raises(CheckpointError, match="the disk is full") as caught:
        write_whole(path, write, updates=3)
    assert "as it was" in caught.value.why
    assert {name: (tmp_path / name).read_bytes() for name in left_in(tmp_path)} == before


def test_other_errors_of_the_disk_are_said(tmp_path, monkeypatch):
    def fails(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(CheckpointError, match="input/output error"):
        put(tmp_path / "run.ckpt", 1)
    assert left_in(tmp_path) == []


def test_somebody_elses_file_that_is_being_written_stays(tmp_path):
    path = tmp_path / "run[1].ckpt"
    inside = []

    def write(sealing):
        sealing.write(b"outer" * 10)
        put(path, 2)
        inside.extend(name for name in left_in(tmp_path) if name.endswith(".writing"))

    write_whole(path, write, updates=1)
    assert len(inside) == 1
    assert found(previous_of(path)) == 2
    assert left_in(tmp_path) == [path.name, previous_of(path).name]


def test_links_to_a_checkpoint_stay_links(tmp_path):
    (tmp_path / "store").mkdir()
    link = tmp_path / "latest.ckpt"
    link.symlink_to(tmp_path / "store" / "run.ckpt")
    put(place_of(link), 1)
    put(place_of(link), 2)
    assert link.is_symlink()
    assert found(link) == 2
    assert left_in(tmp_path / "store") == ["run.ckpt", "run.ckpt.previous"]


def test_folders_that_cannot_be_synced_are_no_error(tmp_path, monkeypatch):
    real = os.fsync
    calls = []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.EINVAL, "not for folders")
        real(descriptor)

    monkeypatch.setattr(disk.os, "fsync", fsync)
    put(tmp_path / "run.ckpt", 1)
    assert len(calls) == 2


def test_a_folder_that_may_be_written_and_not_be_read(tmp_path, monkeypatch):
    real = os.open

    def refusing(path, *args, **options):
        if Path(path) == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", refusing)
    path = tmp_path / "run.ckpt"
    for updates in (1, 2):
        write_whole(path, lambda sealing: sealing.write(b"x"), updates=updates)
    for place, updates in ((path, 2), (previous_of(path), 1)):
        with place.open("rb") as file:
            assert verify(file).updates == updates


def test_damage_raises_in_these_tests(tmp_path):
    path = tmp_path / "run.ckpt"
    put(path, 1)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(EnvelopeError):
        found(path)


def test_an_empty_path_is_not_the_folder_that_the_program_runs_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="the path of the checkpoint is empty"):
        place_of("")
    assert place_of(".") == tmp_path.resolve()
    assert list(tmp_path.iterdir()) == []


NOTHING = {"empty": b"", "zeros": b"\0" * 1000}


@pytest.mark.parametrize("name", ["run.ckpt", "run.ckpt.previous", "run.ckpt.outgoing"])
def test_zeros_are_anybodys_where_no_checkpoint_is_beside_them(tmp_path, name):
    path, content = tmp_path / "run.ckpt", NOTHING["zeros"]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match="is no checkpoint, and is not overwritten") as caught:
        disk.require_ours(path)
    assert "it may be anybody's" in caught.value.why
    assert (tmp_path / name).read_bytes() == content


def test_an_empty_file_is_replaced(tmp_path):
    """Nothing is in it; `tempfile` makes such files, for others to write to."""
    path = tmp_path / "run.ckpt"
    path.touch()
    disk.require_ours(path)
    put(path, 1)
    assert found(path) == 1


@pytest.mark.parametrize("content", NOTHING.values(), ids=NOTHING)
@pytest.mark.parametrize("damage", [False, True])
def test_beside_a_checkpoint_it_is_one_that_was_never_finished(tmp_path, content, damage):
    """A loss of power may leave that; the next save goes on, and keeps the one before."""
    path = tmp_path / "run.ckpt"
    put(path, 1)
    put(path, 2)
    previous = previous_of(path)
    if damage:
        previous.write_bytes(previous.read_bytes()[:-1])
    before = previous.read_bytes()
    path.write_bytes(content)
    disk.require_ours(path)
    put(path, 3)
    assert found(path) == 3
    assert previous.read_bytes() == before
