"""Files that appear whole or not at all, with the one before kept as `<name>.previous`.

A new file is written under another name beside its place, flushed to the disk and then renamed. The
one before stays reachable under a second name until the new one is in place, so that whenever the
process or the machine stops, a whole checkpoint is found under one of the two names:

| after | `run.ckpt` | `run.ckpt.previous` |
|---|---|---|
| writing `run.ckpt.<token>.writing` | last | the one before |
| linking `run.ckpt` as `run.ckpt.outgoing` | last | the one before |
| renaming the new one to `run.ckpt` | **new** | the one before |
| renaming `run.ckpt.outgoing` to `run.ckpt.previous` | new | **last** |

Who writes at the same path meanwhile waits for its turn (`locks`); where nothing can be locked, the
names still change in this order, and one of the writers is the last.

Where the file system has no hard links, the last one is renamed to `run.ckpt.previous` first, and
for an instant there is nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from instep.checkpoint import locks
from instep.checkpoint.envelope import MAGIC, EnvelopeError, Sealing, read_head
from instep.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from instep.checkpoint.envelope import Head

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def place_of(path: str | os.PathLike[str]) -> Path:
    """Return where a checkpoint is; a link to it stays a link."""
    given = path.__fspath__() if isinstance(path, os.PathLike) else path
    if not isinstance(given, str):
        raise CheckpointError(
            f"the path of the checkpoint is {given!r}, which is no path.",
            why="it is a string or a pathlib.Path; a variable was not set, or has something else, "
            "most likely. Nothing was changed.",
            fix='give the path of a file: "run.ckpt"; os.fsdecode() makes a string of bytes.',
            more="checkpoint",
        )
    if not given:
        raise CheckpointError(
            "the path of the checkpoint is empty.",
            why="it would be the folder that the program runs in: an option or a variable was not "
            "set, most likely. Nothing was changed.",
            fix='give the path of a file; "." is this folder, if that is meant.',
            more="checkpoint",
        )
    try:
        return Path(os.path.realpath(given))
    except ValueError as error:
        raise CheckpointError(
            f"the path of the checkpoint is {given!r}: {error}.",
            why="no file can have it. Nothing was changed.",
            fix="give the path of a file.",
            more="checkpoint",
        ) from error
    except FileNotFoundError as error:
        raise CheckpointError(
            f"the folder that {given!r} is in is gone.",
            why="a path that does not begin with / goes on from the folder that the program runs "
            "in, and that was removed. Nothing was changed.",
            fix="give a whole path, or os.chdir() to a folder that is there.",
            more="checkpoint",
        ) from error


def previous_of(path: Path) -> Path:
    """Return where the checkpoint before the one at `path` is."""
    return path.with_name(f"{path.name}.previous")


def outgoing_of(path: Path) -> Path:
    """Return the second name that the checkpoint at `path` has while it is replaced."""
    return path.with_name(f"{path.name}.outgoing")


def require_regular(path: Path) -> None:
    """Refuse devices, pipes and sockets: opening one may wait for ever, renaming one destroys it.

    What is not there, and a folder, is for others to judge.
    """
    found = _found_at(path)
    if found is None or stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        return
    raise CheckpointError(
        f"{path} is no file: it is a device, a pipe or a socket.",
        why="a checkpoint is a file that is put in the place of the one before. Nothing was "
        "changed.",
        fix="give the path of a file, or one where nothing is yet.",
        more="checkpoint",
    ) from OSError(errno.EINVAL, "not a regular file")


def require_ours(path: Path) -> None:
    """Refuse to put a checkpoint in the place of something else; what is damaged may go.

    The same for the names beside it that a write uses: nothing was made by then.
    """
    beside = (previous_of(path), outgoing_of(path))
    for one in beside:
        _require_no_folder(one)
    for one in (path, *beside):
        require_regular(one)  # before any of them is opened
    # Nothing tells zeros of somebody else from those that a loss of power has left, but what is
    # beside them.
    is_ours = any(map(_begins_as_ours, (path, *beside)))
    for one in (path, *beside):
        _require_checkpoint(one, may_be_blank=is_ours)
    lock = locks.lock_of(path)
    _require_no_folder(lock)
    require_regular(lock)
    found = _found_at(lock)
    if found is not None and found.st_size:
        why = "it holds something, and a lock is empty"
        raise _taken(lock, "is no lock of instep", why) from FileExistsError(errno.EEXIST, why)


def _begins_as_ours(path: Path) -> bool:
    """Whether a file is there that instep has written, damaged or not."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _found_at(path: Path) -> os.stat_result | None:
    """Look once: other writers make and remove what is beside a checkpoint."""
    try:
        return path.stat()
    except OSError:
        return None  # nothing is there, or nobody may look; that is seen when it is written


def exists(path: Path) -> bool:
    """Whether something can be seen there; no name is too long to ask."""
    return _found_at(path) is not None


def is_folder(path: Path) -> bool:
    """Whether a folder can be seen there."""
    found = _found_at(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def _require_no_folder(path: Path) -> None:
    if is_folder(path):
        why = "a save uses this name for a file beside the checkpoint"
        raise _taken(path, "is a folder", why) from FileExistsError(errno.EEXIST, why)


def _taken(path: Path, what: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"{path} {what}, and is not overwritten.",
        why=f"{why}. Nothing was changed.",
        fix="save to another path, or move it away.",
        more="checkpoint",
    )


def _require_checkpoint(path: Path, *, may_be_blank: bool) -> None:
    with explained(path):
        try:
            with path.open("rb") as file:
                read_head(file)
        except (FileNotFoundError, NotADirectoryError):
            return  # nothing is there; whether it can be made is seen when it is written
        except EnvelopeError as error:
            why, is_blank = error.details, error.kind == "unfinished"
            if is_blank and path.stat().st_size == 0:
                return  # nothing is in it that could be lost, as where `mkstemp` has made it
            if is_blank and not may_be_blank:
                why = "it begins with zeros, and no checkpoint is beside it: it may be anybody's"
            elif error.kind not in ("foreign", "newer"):
                return
            what = "is one of a newer instep" if error.kind == "newer" else "is no checkpoint"
            raise _taken(path, what, why) from FileExistsError(errno.EEXIST, why)


def write_whole(path: Path, write: Callable[[Sealing], None], *, updates: int) -> Head:
    """Put a sealed file in place, the one before aside; on any error nothing has changed.

    Returns its head.
    """
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.writing")
        with locks.one_thread(path):
            try:
                with _opened(temporary, path) as file:
                    sealing = Sealing(file)
                    write(sealing)
                    head = sealing.seal(updates=updates)
                    file.flush()
                    os.fsync(file.fileno())
                    if os.name != "posix":  # pragma: no cover -- what is open has no other name
                        file.close()
                    # Open until it has its name: nobody takes it for what a killed writer left.
                    with locks.one_process(path):
                        _put_in_place(temporary, path)
                        _remove_left_over(path)
                    return head
            finally:
                temporary.unlink(missing_ok=True)


def _opened(temporary: Path, path: Path) -> BinaryIO:
    """Make a file to be written; others see it only when it is marked as that."""
    with locks.one_process(path):
        file = temporary.open("xb")
        locks.mark(file)
        return file


def _put_in_place(new: Path, path: Path) -> None:
    outgoing, previous = outgoing_of(path), previous_of(path)
    outgoing.unlink(missing_ok=True)
    # What is damaged already must not replace a whole one.
    if has_head(path):
        try:
            outgoing.hardlink_to(path)
        except FileExistsError:
            pass  # another writer, where there are no locks, has just done the same
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                path.replace(previous)
    try:
        new.replace(path)
        sync_folder(path.parent)
        with contextlib.suppress(FileNotFoundError):
            outgoing.replace(previous)
            sync_folder(path.parent)
    finally:
        outgoing.unlink(missing_ok=True)


def has_head(path: Path) -> bool:
    """Whether a file is there that looks whole; its payload is not read."""
    try:
        with path.open("rb") as file:
            read_head(file)
    except (OSError, EnvelopeError):
        return False
    return True


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a loss of power, where that can be asked for."""
    if os.name != "posix":  # pragma: no cover
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return  # one that may be written and not be read
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems do not know it for folders.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _remove_left_over(path: Path) -> None:
    """Remove what writers of this checkpoint left that were killed."""
    for other in path.parent.glob(f"{_escaped(path.name)}.*.writing"):
        locks.remove_unless_marked(other)


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an error of the disk while writing into one that says what it means."""
    try:
        yield
    except CheckpointError:
        raise
    except OSError as error:
        raise explanation(path, error) from error


def explanation(path: Path, error: OSError) -> CheckpointError:
    """Return the error that says what one of the disk means."""
    full = error.errno in FULL
    text = error.strerror or str(error)
    fix = "make the folder writable, or save somewhere else."
    if full:
        fix = "free some space, or save somewhere else. There must be room for one more "
        fix += "checkpoint than the two that are kept."
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        fix = "give another path: there is a file where this one has a folder."
    elif error.errno == errno.ENAMETOOLONG:
        fix = "give it a shorter name: files beside it have up to 17 characters more."
    return CheckpointError(
        f"{path} could not be written: {'the disk is full' if full else text.lower()}.",
        why=f"{text} ({errno.errorcode.get(error.errno or 0, 'OSError')}). What was written of "
        "it is removed; the checkpoint that was there is as it was.",
        fix=fix,
        more="checkpoint",
    )
