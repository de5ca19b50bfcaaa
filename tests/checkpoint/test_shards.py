"""Tensors of many ranks are read back, and a list of tensors that was changed runs nothing."""

from __future__ import annotations

import contextlib
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from instep.checkpoint import shards
from instep.checkpoint.envelope import EnvelopeError

TENSORS = {"models.0.w": torch.arange(12.0).reshape(3, 4), "step": torch.tensor(3.0)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    shards.save(TENSORS, folder, None)
    return folder


def test_what_was_written_is_read(folder):
    found = {name: torch.empty_like(tensor) for name, tensor in TENSORS.items()}
    shards.load(found, shards.Reader(folder), None)
    assert all(torch.equal(found[name], tensor) for name, tensor in TENSORS.items())
    assert [path.name for path in shards.files_of(folder, 0)] == ["__0_0.distcp", ".metadata"]
    assert list(shards.files_of(folder, 1)) == []


@given(st.data())
def test_a_changed_list_of_tensors_is_an_error_or_a_list_of_tensors(folder, tmp_path_factory, data):
    """Its checksum is looked at before; this is about files that were made to look right."""
    content = bytearray((folder / ".metadata").read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    other = tmp_path_factory.getbasetemp() / "changed"
    other.mkdir(exist_ok=True)
    (other / ".metadata").write_bytes(content)
    with contextlib.suppress(EnvelopeError):
        metadata = shards.Reader(other).read_metadata()
        assert isinstance(metadata.state_dict_metadata, dict)


@pytest.mark.parametrize(
    "module", ["os.system", "builtins.eval", "torch.load", "pathlib.Path.unlink"]
)
def test_other_names_are_refused(tmp_path, module):
    package, _, name = module.rpartition(".")
    (tmp_path / ".metadata").write_bytes(f"c{package}\n{name}\n(S'1'\ntR.".encode())
    with pytest.raises(EnvelopeError, match="does not belong into a list of tensors"):
        shards.Reader(tmp_path).read_metadata()


def test_a_list_that_is_not_there_is_damage(tmp_path):
    with pytest.raises(EnvelopeError, match=r"truncated: \.metadata is not there"):
        shards.Reader(tmp_path).read_metadata()


def test_paths_that_lead_outside_are_refused(folder, tmp_path):
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    for info in metadata.storage_data.values():
        info.relative_path = "../elsewhere.distcp"
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(EnvelopeError, match="it points outside"):
        shards.Reader(tmp_path).read_metadata()
