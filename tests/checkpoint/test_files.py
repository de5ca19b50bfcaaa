"""One file: read back as it was written, or an error that says what is wrong with it."""

from __future__ import annotations

import pickle
import resource

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from instep.checkpoint import envelope, files
from instep.checkpoint.disk import previous_of
from instep.errors import CheckpointError

PARTS = {"model": {"w": torch.arange(300.0)}, "extra": {"epoch": 3}}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run.ckpt"
    files.write(path, PARTS, updates=10)
    return path


def refused(path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        files.read(path)
    return caught.value


def test_what_was_written_is_read(path):
    found = files.read(path)
    assert (found.path, found.updates) == (path, 10)
    assert found.parts["extra"] == {"epoch": 3}
    assert torch.equal(found.parts["model"]["w"], PARTS["model"]["w"])


def test_plain_pytorch_reads_it(path):
    with path.open("rb") as file:
        file.seek(128)
        parts = torch.load(file, weights_only=True)
    assert torch.equal(parts["model"]["w"], PARTS["model"]["w"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run.ckpt"
    files.write(path, PARTS, updates=10)
    return path.read_bytes()


@given(st.data())
def test_any_cut_and_any_changed_byte_is_an_error(whole, tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.ckpt"
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        content = whole[:place]
    else:
        flip = data.draw(st.integers(1, 255))
        content = whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :]
    path.write_bytes(content)
    assert "Nothing was loaded" in refused(path).why


def test_each_kind_of_damage_is_named_and_the_previous_one_offered(path):
    whole = path.read_bytes()
    damaged = {
        "is cut off": whole[:-5],
        "is corrupted": whole[:200] + b"?" + whole[201:],
        "is no checkpoint of instep": b"PK\x03\x04" + whole[4:],
        "was never finished": b"\0" * 500,
    }
    for said, content in damaged.items():
        path.write_bytes(content)
        assert f"{path} {said}." in str(refused(path))
        assert "no whole one before it" in refused(path).fix
    previous_of(path).write_bytes(whole)
    for content in damaged.values():
        path.write_bytes(content)
        assert "after 10 updates, is whole: stepper.load(path, previous=True)" in refused(path).fix
    path.unlink()
    assert "there is no checkpoint at" in str(refused(path))
    assert "after 10 updates, is whole" in refused(path).fix
    previous_of(path).write_bytes(whole[:-1])
    assert "begins anew" in refused(path).fix


def test_folders_and_missing_files(tmp_path):
    assert "cannot be read" in str(refused(tmp_path))
    assert "there is no checkpoint" in str(refused(tmp_path / "none"))


def test_nothing_in_a_file_is_run(tmp_path):
    """An envelope does not make a pickle trustworthy: anybody can write one."""

    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "was here"), "w"))

    path = tmp_path / "run.ckpt"
    files.write(path, {"model": Evil()}, updates=1)
    assert "weights_only" in refused(path).fix
    assert not (tmp_path / "was here").exists()

    def write(sealing):
        sealing.write(pickle.dumps({"model": Evil()}, protocol=2))

    files.disk.write_whole(path, write, updates=1)
    assert refused(path)
    files.write(path, [1, 2], updates=1)
    assert "it holds a list" in refused(path).why
    assert not (tmp_path / "was here").exists()


def test_what_could_not_be_read_is_not_written():
    with pytest.raises(CheckpointError, match=r"extra\['f'\] is a builtins.type"):
        files.require_plain({"f": int}, "extra")


@pytest.mark.parametrize("at", [0, 3, 10, 25])
def test_an_error_in_the_middle_is_not_hidden_by_the_one_that_follows(path, monkeypatch, at):
    """A handler of a signal raises wherever it comes; torch then fails to end its archive."""
    before = path.read_bytes()
    write, calls = envelope.Sealing.write, []

    def interrupted(self, data):
        calls.append(len(data))
        if len(calls) == at + 1:
            raise ArithmeticError("a worker has died")
        return write(self, data)

    monkeypatch.setattr(envelope.Sealing, "write", interrupted)
    with pytest.raises(ArithmeticError, match="a worker has died"):
        files.write(path, PARTS, updates=11)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["run.ckpt"]


def test_a_full_disk_in_the_middle_of_a_tensor(path):
    """The limit on the size of a file fails where a full disk does: in write, half way."""
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="the disk is full"):
            files.write(path, {"model": torch.zeros(200_000)}, updates=11)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["run.ckpt"]
