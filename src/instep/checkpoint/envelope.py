"""The head of a checkpoint file: what it is, how long, and the checksum of what follows.

A file that was cut off, changed or made by something else is told apart before anything of it is
read. The head is written last: a file whose writer was killed has none.

| bytes | what |
|---|---|
| 0–7 | `MAGIC` |
| 8–11 | version of this layout |
| 12–19 | updates that were made when it was saved |
| 20–27 | length of the payload |
| 28–59 | SHA-256 of the payload |
| 60–111 | zeros |
| 112–127 | the first half of the SHA-256 of the bytes before |
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import BinaryIO, Literal

# The first byte is no ASCII, and the end changes if somebody converts line ends.
MAGIC = b"\x93instep\n"
VERSION = 1
SIZE = 128
_FIELDS = struct.Struct("<8sIQQ32s52x")
_BLOCK = 2**20

Kind = Literal["foreign", "unfinished", "newer", "truncated", "corrupted"]


class EnvelopeError(Exception):
    """What is wrong with a file: its kind, and the details in a clause."""

    def __init__(self, kind: Kind, details: str) -> None:
        super().__init__(f"{kind}: {details}")
        self.kind, self.details = kind, details

    def __reduce__(self) -> tuple[type[EnvelopeError], tuple[Kind, str]]:
        """Let it travel: torch sends what one rank has raised to all."""
        return type(self), (self.kind, self.details)


@dataclass(frozen=True, slots=True)
class Head:
    """What the head of a file says.

    >>> head = Head(updates=7, length=3, digest=hashlib.sha256(b"abc").digest())
    >>> Head.parse(head.packed()) == head
    True
    """

    updates: int
    length: int
    digest: bytes

    def packed(self) -> bytes:
        """Return the head as it is in the file."""
        fields = _FIELDS.pack(MAGIC, VERSION, self.updates, self.length, self.digest)
        return fields + _own_digest(fields)

    @staticmethod
    def parse(head: bytes) -> Head:
        """Read a head; raise if it is none of ours, or not as it was written."""
        if not any(head):
            raise EnvelopeError("unfinished", "whoever wrote it did not come to the end")
        if not head.startswith(MAGIC[: max(len(head), 1)]):
            raise EnvelopeError("foreign", f"it begins with {head[:8]!r}")
        if len(head) < SIZE:
            raise EnvelopeError("truncated", f"it has {len(head)} bytes, the head alone has {SIZE}")
        fields, own = head[: _FIELDS.size], head[_FIELDS.size : SIZE]
        if own != _own_digest(fields):
            raise EnvelopeError("corrupted", "its head does not have its checksum")
        _, version, updates, length, digest = _FIELDS.unpack(fields)
        if version != VERSION:
            raise EnvelopeError("newer", f"it has version {version}, this instep reads {VERSION}")
        return Head(updates, length, digest)


def _own_digest(fields: bytes) -> bytes:
    return hashlib.sha256(fields).digest()[: SIZE - _FIELDS.size]


class Sealing:
    """A file being written: place for the head, the payload, then the head.

    An error of the disk is kept and raised by `seal`: serialisers written in C++ do not expect one
    from `write`, and some lose it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._length = 0
        self._error: OSError | None = None
        self._put(b"\0" * SIZE)

    def write(self, data: bytes | memoryview) -> int:
        """Append to the payload."""
        view = memoryview(data).cast("B")
        self._put(view)
        self._digest.update(view)
        self._length += len(view)
        return len(view)

    def _put(self, data: bytes | memoryview) -> None:
        if self._error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self._error = error

    def flush(self) -> None:
        """Do nothing: `seal` flushes once."""

    def seal(self, *, updates: int) -> Head:
        """Write the head; raise what went wrong on the way."""
        head = Head(updates, self._length, self._digest.digest())
        if self._error is not None:
            raise self._error
        self._file.seek(0)
        self._file.write(head.packed())
        return head


def read_head(file: BinaryIO) -> Head:
    """Read the head of a file that stands at its beginning, and look at its length."""
    head = Head.parse(file.read(SIZE))
    there = file.seek(0, 2) - SIZE
    file.seek(SIZE)
    if there < head.length:
        raise EnvelopeError("truncated", f"{there} of {head.length} bytes are there")
    if there > head.length:
        raise EnvelopeError("corrupted", f"{there - head.length} bytes follow its end")
    return head


def verify(file: BinaryIO) -> Head:
    """Read a file to its end; raise unless it is what was written. It stands at its payload then.

    >>> import io
    >>> file = io.BytesIO()
    >>> sealing = Sealing(file)
    >>> _ = sealing.write(b"payload")
    >>> _ = sealing.seal(updates=3)
    >>> _ = file.seek(0)
    >>> verify(file).updates, file.read()
    (3, b'payload')
    """
    head = read_head(file)
    digest = hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    if digest.digest() != head.digest:
        raise EnvelopeError("corrupted", "its bytes do not have the checksum in its head")
    file.seek(SIZE)
    return head
