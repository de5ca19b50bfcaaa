"""Tensors of many ranks on disk: `torch.distributed.checkpoint`, read without running anything.

Its list of tensors is a pickle. It is read here with only those classes that it needs, so that a
folder from somebody else can do no more harm than a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import pickle
import warnings
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
from torch.distributed.checkpoint.filesystem import (
    FileSystem,
    FileSystemReader,
    FileSystemWriter,
)
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as load_tensors
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as save_tensors

from instep.checkpoint.envelope import EnvelopeError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from torch import Tensor
    from torch.distributed.checkpoint.metadata import Metadata

METADATA = ".metadata"
_MODULE = "torch.distributed.checkpoint"
_CLASSES = {
    (f"{_MODULE}.metadata", "Metadata"),
    (f"{_MODULE}.metadata", "MetadataIndex"),
    (f"{_MODULE}.metadata", "StorageMeta"),
    (f"{_MODULE}.metadata", "TensorProperties"),
    (f"{_MODULE}.metadata", "TensorStorageMetadata"),
    (f"{_MODULE}.metadata", "ChunkStorageMetadata"),
    (f"{_MODULE}.metadata", "_MEM_FORMAT_ENCODING"),
    (f"{_MODULE}.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    ("pathlib", "PosixPath"),
    ("pathlib", "WindowsPath"),
    ("collections", "OrderedDict"),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return a class of the list, or a type of tensors; refuse everything else."""
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if (module, name) in _CLASSES:
            return super().find_class(module, name)
        message = f"{module}.{name} does not belong into a list of tensors"
        raise pickle.UnpicklingError(message)


class Reader(FileSystemReader):
    """Reads what `torch.distributed.checkpoint` wrote, and runs nothing of it."""

    def read_metadata(self, *_args: Any, **_kwargs: Any) -> Metadata:
        """Read the list of tensors; whatever is wrong with it is an `EnvelopeError`."""
        with self._opened() as file:
            try:
                metadata: Metadata = _Unpickler(file).load()
                _require_tensors(metadata)
            except EnvelopeError:
                raise
            except Exception as error:  # a pickle that was changed may raise anything
                raise EnvelopeError("corrupted", f"its list of tensors: {error}") from error
        return metadata

    def _opened(self) -> BinaryIO:
        try:
            return (self.path / METADATA).open("rb")  # type: ignore[operator,no-any-return]
        except FileNotFoundError as error:
            raise EnvelopeError("truncated", f"{METADATA} is not there") from error


def _require_tensors(metadata: Metadata) -> None:
    for name, entry in metadata.state_dict_metadata.items():
        if not isinstance(entry, TensorStorageMetadata):
            raise EnvelopeError("foreign", f"{name} is no tensor")
    for info in metadata.storage_data.values():
        if "/" in info.relative_path or "\\" in info.relative_path:
            raise EnvelopeError("foreign", f"it points outside: {info.relative_path}")


def save(tensors: dict[str, Tensor], folder: Path, group: Any) -> None:
    """Write the tensors of all ranks into a folder, one file each."""
    with _alone_is_fine():
        save_tensors(
            tensors, storage_writer=_writer(folder), process_group=group, no_dist=group is None
        )


def begin_save(tensors: dict[str, Tensor], folder: Path, group: Any) -> Future[Any]:
    """Copy the tensors, and begin to write them; the group must be able to talk on the host."""
    return async_save(  # type: ignore[return-value]
        tensors, storage_writer=_writer(folder), process_group=group
    )


def load(tensors: dict[str, Any], reader: Reader, group: Any) -> None:
    """Fill these tensors, each rank its part of them; without a group, one process all of them."""
    with _alone_is_fine():
        load_tensors(tensors, storage_reader=reader, process_group=group, no_dist=group is None)


@contextlib.contextmanager
def _alone_is_fine() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield


def _writer(folder: Path) -> FileSystemWriter:
    writer = FileSystemWriter(folder, single_file_per_rank=True, sync_files=True)
    writer.fs = _Files()
    return writer


class _Files(FileSystem):
    """Files that say why they could not be written."""

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        """Open a file, for as long as this is entered."""
        if mode != "wb":
            with super().create_stream(path, mode) as other:
                yield other
            return
        with _Stream(io.FileIO(path, mode)) as stream:
            try:
                yield stream
            except RuntimeError as error:
                # torch ends its archive on the way out, and fails at that, too.
                first = stream.first or error.__context__
                if first is None or "unexpected pos" not in str(error):
                    raise
                raise first from None


class _Stream(io.BufferedWriter):
    """Remembers what was wrong first: what torch says then is about the archive it has to end."""

    first: BaseException | None = None

    def write(self, data: Any) -> int:
        """Write, as always."""
        try:
            return super().write(data)
        except BaseException as error:
            self.first = self.first or error
            raise


def files_of(folder: Path, rank: int) -> Iterator[Path]:
    """Yield the files that this rank has written; the first one has the list as well."""
    yield from sorted(folder.glob(f"__{rank}_*.distcp"))
    if rank == 0:
        yield folder / METADATA


def digest_of(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
