"""A file that is not exactly what was written is an error, and never something else."""

from __future__ import annotations

import errno
import io
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.checkpoint import envelope
from instep.checkpoint.envelope import SIZE, EnvelopeError, Head, Sealing, verify


def sealed(payload: bytes, updates: int = 5) -> bytes:
    file = io.BytesIO()
    sealing = Sealing(file)
    for start in range(0, len(payload), 7):
        sealing.write(payload[start : start + 7])
    sealing.seal(updates=updates)
    return file.getvalue()


def kind_of(content: bytes) -> str:
    with pytest.raises(EnvelopeError) as caught:
        verify(io.BytesIO(content))
    assert caught.value.details
    return caught.value.kind


@given(st.binary(max_size=300), st.integers(0, 2**63))
def test_what_was_sealed_is_read_back(payload, updates):
    file = io.BytesIO(sealed(payload, updates))
    head = verify(file)
    assert (head.updates, head.length) == (updates, len(payload))
    assert file.read() == payload


@given(st.binary(max_size=200), st.data())
def test_every_truncation_is_an_error(payload, data):
    whole = sealed(payload)
    cut = data.draw(st.integers(0, len(whole) - 1))
    kind = kind_of(whole[:cut])
    assert kind == ("unfinished" if cut == 0 else "truncated")


@given(st.binary(max_size=200), st.data())
def test_every_changed_byte_is_an_error(payload, data):
    whole = bytearray(sealed(payload))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    kind = kind_of(bytes(whole))
    assert kind == ("foreign" if place < len(envelope.MAGIC) else "corrupted")


@given(st.binary(max_size=60), st.binary(min_size=1, max_size=60))
def test_more_bytes_than_were_written_are_an_error(payload, more):
    assert kind_of(sealed(payload) + more) == "corrupted"


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_parts_of_two_files_are_an_error(left, right):
    one, other = sealed(left), sealed(right)
    if left != right:
        assert kind_of(one[:SIZE] + other[SIZE:]) in ("corrupted", "truncated")


@pytest.mark.parametrize(
    "content", [b"PK\x03\x04 a plain torch.save", b"{}", b"\x93NUMPY", b"\x80\x02"]
)
def test_other_formats_are_foreign(content):
    assert kind_of(content + b"." * 200) == "foreign"
    assert kind_of(content) == "foreign"


def test_a_writer_that_was_killed_leaves_no_head():
    file = io.BytesIO()
    Sealing(file).write(b"some of it")
    assert kind_of(file.getvalue()) == "unfinished"
    assert kind_of(b"") == "unfinished"


def test_a_newer_version_is_told_from_damage():
    head = Head(1, 0, b"\0" * 32)
    try:
        envelope.VERSION = 2
        newer = head.packed()
    finally:
        envelope.VERSION = 1
    assert kind_of(newer) == "newer"


def test_an_error_of_the_disk_comes_when_it_is_sealed():
    class Full(io.BytesIO):
        def write(self, data):
            if self.tell() + len(data) > 200:
                raise OSError(errno.ENOSPC, "full")
            return super().write(data)

    sealing = Sealing(Full())
    assert sealing.write(b"x" * 100) == 100
    assert sealing.write(b"x" * 5) == 5
    with pytest.raises(OSError, match="full"):
        sealing.seal(updates=0)


def test_what_is_wrong_travels_between_processes():
    found = pickle.loads(pickle.dumps(EnvelopeError("foreign", "it begins with b'PK'")))
    assert (found.kind, found.details) == ("foreign", "it begins with b'PK'")
