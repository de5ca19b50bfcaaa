"""A checkpoint of several ranks: a folder, each checkpoint a folder in it that is finished or not.

    run/00000007-update-400/        the last one
        manifest.ckpt               written when all the rest is there: without it there is nothing
        writing                     as long as somebody writes here
        rank-0.ckpt, rank-1.ckpt    what is each rank's own, and the checksums of what it wrote;
                                    whose it is, and of which save, as the manifest says, too
        .metadata, __0_0.distcp …   tensors, by torch.distributed.checkpoint
    run/00000006-update-300/        the one before

All ranks write, read and fail together. Whoever saves into the same folder meanwhile, from another
thread or job, takes the next number, and leaves alone what is still being written.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.checkpoint import disk, failures, files, locks
from instep.checkpoint.envelope import EnvelopeError
from instep.checkpoint.files import SAID
from instep.checkpoint.trees import join, split
from instep.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

    from instep.checkpoint.talk import Talk

    Destination = Callable[[str, Any, Any], Tensor]

MANIFEST = "manifest.ckpt"
WRITING = "writing"
KEPT = 2
_ANEW = "there is no finished one before it, either. Move the folder away to begin anew."
_NAME = re.compile(r"(\d{8})-update-\d+")


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint that is finished, as its manifest says."""

    path: Path
    updates: int
    world: int
    rest: dict[str, Any]


class Write:
    """One checkpoint on its way to the disk: tensors first, the manifest last."""

    def __init__(
        self, place: Path, shared: dict[str, Any], own: dict[str, Any], updates: int, talk: Talk
    ) -> None:
        self._place, self._own, self._updates, self._talk = place, own, updates, talk
        self._mark = contextlib.ExitStack()
        with talk.together("the checkpoint"):
            self._rest, self._tensors = split(shared)
            files.require_plain(self._rest, "checkpoint")
            files.require_plain(own, "rank")
        self.folder, self._save = self._begun()

    def _begun(self) -> tuple[Path, str]:
        """Make the folder; return it, and what tells this save from every other."""
        name = ""
        with self._talk.together("the checkpoint"), disk.explained(self._place):
            if self._talk.rank == 0:
                _require_folder(self._place)
                self._place.mkdir(parents=True, exist_ok=True)
                name = _claimed(self._place, self._updates)
                file = self._mark.enter_context((self._place / name / WRITING).open("xb"))
                locks.mark(file)
        name, save = self._talk.gather((name, secrets.token_hex(8)))[0]
        return self._place / name, save

    def tensors(self) -> None:
        """Write this rank's part of the tensors."""
        from instep.checkpoint import shards  # noqa: PLC0415 -- only where it is used

        with self._removing(), self._talk.waiting("the checkpoint"):
            shards.save(self._tensors, self.folder, self._talk.group)

    def copy_tensors(self) -> Callable[[], None]:
        """Copy this rank's part, and begin to write it; return how to wait for that."""
        from instep.checkpoint import shards  # noqa: PLC0415

        future = shards.begin_save(self._tensors, self.folder, self._talk.group)
        self._tensors = {}

        def wait() -> None:
            with self._removing():
                future.result()

        return wait

    def finish(self) -> None:
        """Write each rank's own part, then the manifest; remove what is older."""
        from instep.checkpoint import shards  # noqa: PLC0415

        talk, folder = self._talk, self.folder
        with self._removing(), talk.together("the checkpoint"), disk.explained(folder):
            written = list(shards.files_of(folder, talk.rank))
            digests = {path.name: shards.digest_of(path) for path in written}
            mine = {"digests": digests, "save": self._save, "rank": talk.rank}
            own = {**self._own, **mine}
            files.write(folder / f"rank-{talk.rank}.ckpt", own, updates=self._updates)
        with self._removing(), talk.together("the checkpoint"), disk.explained(folder):
            if talk.rank == 0:
                manifest = {"world": talk.world, "rest": self._rest, "save": self._save}
                files.write(folder / MANIFEST, manifest, updates=self._updates)
                disk.sync_folder(self._place)
        with talk.together("the checkpoint"):
            if talk.rank == 0:
                self._unmark()
                _remove_old(self._place)

    def _unmark(self) -> None:
        (self.folder / WRITING).unlink(missing_ok=True)
        self._mark.close()

    @contextlib.contextmanager
    def _removing(self) -> Iterator[None]:
        """Remove a checkpoint that failed, and say why in instep's words."""
        try:
            with failures.sorted_out(self._talk, self.folder), disk.explained(self.folder):
                yield
        except BaseException:
            if self._talk.rank == 0:
                shutil.rmtree(self.folder, ignore_errors=True)
                self._mark.close()
            raise


def _require_folder(place: Path) -> None:
    disk.require_regular(place)
    if place.is_file():
        raise CheckpointError(
            f"{place} is a file.",
            why="one process saves into a file, several ranks into a folder, and the file may be "
            "the only checkpoint that there is.",
            fix="give another path to save to; it can be loaded from where it is.",
            more="checkpoint",
        )


def _claimed(place: Path, updates: int) -> str:
    """Make the next folder, and return its name; somebody else may have taken it just now."""
    number = max((int(path.name[:8]) for path in _generations(place)), default=0)
    while True:
        number += 1
        name = f"{number:08d}-update-{updates}"
        with contextlib.suppress(FileExistsError):
            (place / name).mkdir()
            return name


def _generations(place: Path) -> list[Path]:
    """Return the checkpoints of a folder, the oldest first, finished or not."""
    if not place.is_dir():
        return []
    return sorted(path for path in place.iterdir() if _NAME.fullmatch(path.name))


def finished(place: Path) -> list[Path]:
    """Return the checkpoints of a folder that have a manifest, the oldest first."""
    return [path for path in _generations(place) if (path / MANIFEST).is_file()]


def _remove_old(place: Path) -> None:
    kept = finished(place)[-KEPT:]
    for path in _generations(place):
        if path not in kept and path < kept[-1] and not locks.is_marked(path / WRITING):
            # The manifest first: what is half removed is not finished.
            (path / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)


# -- reading -------------------------------------------------------------------------------------


def choose(place: Path, talk: Talk, *, previous: bool) -> Found:
    """Choose the last finished checkpoint, or the one before, and check all of its files."""
    chosen: str | None = None
    with talk.together("the checkpoint"):
        if talk.rank == 0:
            there = finished(place)
            wanted = 1 + int(previous)
            if len(there) < wanted:
                raise _missing(place, previous=previous)
            chosen = there[-wanted].name
    folder = place / str(talk.gather(chosen)[0])
    found: Found | None = None
    with talk.together("the checkpoint") as round_:
        try:
            found = _checked(folder, talk)
        except EnvelopeError as error:
            round_.says = error.kind, error.details
        except OSError as error:
            if isinstance(error, CheckpointError):
                raise
            raise _unreadable(folder, error) from error
    # Of several ranks each may have found something else, and what follows has to be the same.
    damage = next((EnvelopeError(*said) for said in round_.heard if said is not None), None)
    if damage is not None:
        raised = _damaged(place, folder, damage, previous=previous)
        talk.mark(raised)
        raise raised from damage
    assert found is not None  # noqa: S101 -- there would be damage
    return found


def _checked(folder: Path, talk: Talk) -> Found:
    from instep.checkpoint import shards  # noqa: PLC0415

    manifest = _sealed(folder / MANIFEST)
    found = Found(folder, manifest.updates, manifest.parts["world"], manifest.parts["rest"])
    # Each rank looks at its part of the files.
    for rank in range(talk.rank, found.world, talk.world):
        own = _sealed(folder / f"rank-{rank}.ckpt")
        _require_same_save(manifest, own, rank)
        for name, digest in own.parts["digests"].items():
            path = folder / name
            if not path.is_file():
                raise EnvelopeError("truncated", f"{name} is not there")
            if shards.digest_of(path) != digest:
                raise EnvelopeError("corrupted", f"{name} does not have its checksum")
    # What has the right checksum may still be what somebody else has written.
    shards.Reader(folder).read_metadata()
    return found


def _require_same_save(manifest: files.Read, own: files.Read, rank: int) -> None:
    """Refuse what is whole by itself, and was copied here from another place.

    Those that were written before this was looked at do not say it, in any of their files.
    """
    whose = own.parts.get("rank", rank)
    if whose != rank:
        raise EnvelopeError("corrupted", f"{own.path.name} is that of rank {whose}")
    both = [(each.parts.get("save"), each.updates) for each in (manifest, own)]
    if both[0] != both[1]:
        raise EnvelopeError("corrupted", f"{own.path.name} and {MANIFEST} are of different saves")


def _sealed(path: Path) -> files.Read:
    """Read one of the files; what is wrong with it is wrong with the checkpoint."""
    try:
        return files.read(path)
    except CheckpointError as error:
        cause = error.__cause__
        if isinstance(cause, EnvelopeError):
            raise EnvelopeError(cause.kind, f"{path.name}: {cause.details}") from error
        if isinstance(cause, FileNotFoundError):
            raise EnvelopeError("truncated", f"{path.name} is not there") from error
        raise


def own_parts(found: Found, rank: int) -> dict[str, Any]:
    """Return what one rank saved for itself."""
    return files.read(found.path / f"rank-{rank}.ckpt").parts


def shared_parts(found: Found, destination: Destination, talk: Talk) -> dict[str, Any]:
    """Return what all ranks share; `destination(name, size, dtype)` is where a tensor is to go."""
    from instep.checkpoint import shards  # noqa: PLC0415

    reader = shards.Reader(found.path)
    entries: Mapping[str, Any] = reader.read_metadata().state_dict_metadata
    tensors: dict[str, Any] = {
        name: destination(name, entry.size, entry.properties.dtype)
        for name, entry in entries.items()
    }
    with failures.sorted_out(talk), talk.waiting("the checkpoint"):
        shards.load(tensors, reader, talk.group)
    parts: dict[str, Any] = join(found.rest, tensors)
    return parts


def _offer(place: Path, folder: Path) -> str:
    older = [path for path in finished(place) if path < folder]
    if not older:
        return _ANEW
    head = files.whole_head(older[-1] / MANIFEST)
    after = f", after {head.updates} updates," if head is not None else ""
    return f"the one before it{after} is finished: stepper.load(path, previous=True)."


def _damaged(place: Path, folder: Path, error: EnvelopeError, *, previous: bool) -> CheckpointError:
    return CheckpointError(
        f"{folder} {SAID[error.kind]}.",
        why=f"{error.details}. Nothing was loaded.",
        fix="nothing can be read from it; "
        + (
            "there is no other. Move the folder away to begin anew."
            if previous
            else _offer(place, folder)
        ),
        more="checkpoint",
    )


def _unreadable(folder: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"{folder} cannot be read.",
        why=f"{error}. Nothing was loaded.",
        fix="let every rank read the whole folder.",
        more="checkpoint",
    )


def _missing(place: Path, *, previous: bool) -> CheckpointError:
    which = "no checkpoint before the last one" if previous else "no finished checkpoint"
    return CheckpointError(
        f"there is {which} in {place}.",
        why="a checkpoint of several ranks is finished when its manifest is there.",
        fix="give the folder that stepper.save() was given.",
        more="checkpoint",
    )
