"""What a checkpoint of a stepper holds, and how it is put back: all of it, or nothing."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.checkpoint import disk, files, folders
from instep.checkpoint.background import Writing
from instep.checkpoint.plain import copied
from instep.checkpoint.talk import Talk
from instep.engine import restoring, state
from instep.engine.fitting import makes, misfits
from instep.engine.portions import Portions, put_into, require_for_all
from instep.engine.ranks import errands
from instep.engine.ranks.headers import mark
from instep.engine.spreading import bare, cut, dealt, destinations, layouts_of
from instep.errors import StateError, WindowError

if TYPE_CHECKING:
    import os
    from contextlib import AbstractContextManager
    from pathlib import Path

    from torch import nn
    from torch.optim import Optimizer

    from instep.engine.loop import Loop
    from instep.engine.ranks.world import Ranks
    from instep.engine.stepper import Stepper

    PathLike = str | os.PathLike[str]

VERSION = 1


@dataclass(frozen=True, slots=True)
class Loaded:
    """Which checkpoint was loaded; what `stepper.load` returns."""

    path: Path
    updates: int
    """Updates that had been made when it was saved."""
    is_previous: bool
    """Whether it is the one before the last."""
    extra: Any
    """What was given to `stepper.save(extra=...)`."""


class Desk:
    """Where checkpoints are written, one at a time."""

    def __init__(self) -> None:
        self.turn = threading.RLock()
        """Held by the thread that saves or loads; the same may come again, from a handler."""
        self.writing: Writing | None = None
        """The last one, until somebody has waited for it."""
        self.group: Any = None
        """Another group of the same processes, for writing while they train."""
        self.seals: dict[Path, str] = {}
        """What was put at each path last: see `claims.seal_of`."""

    def clear(self) -> None:
        """Wait until what is being written is on the disk; raise if it could not be."""
        writing, self.writing = self.writing, None
        if writing is not None:
            writing.wait()

    def aside(self, ranks: Ranks) -> Any:
        """Return a group that talks on the host, beside the training's own."""
        if self.group is None:
            import torch.distributed as dist  # noqa: PLC0415 -- in use already

            members = dist.get_process_group_ranks(ranks.group)
            self.group = dist.new_group(members, backend="gloo", use_local_synchronization=True)
        return self.group


def save(
    stepper: Stepper, loop: Loop, desk: Desk, path: PathLike, *, extra: Any, wait: bool
) -> Writing:
    """Save everything that a run needs to go on: in one file, or, of several ranks, a folder."""
    place = disk.place_of(path)
    if state.is_in_backward(loop):
        # Before the others are asked to come: their backwards may be done, or have no such hook.
        state.require_resumable(loop)
    if not stepper.ranks.is_alone or disk.is_folder(place):
        _require_whole_shards(stepper, loop)
        require_all(stepper, loop, errands.SAVE, path, how="" if wait else errands.ASIDE)
        with _between_rounds(loop, errands.SAVE):
            return _save_together(stepper, loop, desk, place, extra=extra, wait=wait)
    disk.require_ours(place)
    parts = {**_shared(stepper), **_own(stepper, extra)}
    for name, part in parts.items():
        files.require_plain(part, name)
    if not wait:
        parts = copied(parts)
    updates = parts["stepper"]["index"]

    def write() -> None:
        # Of one that failed on the way it is not known whether it is in place.
        desk.seals.pop(place, None)
        desk.seals[place] = files.write(place, parts, updates=updates).digest.hex()

    # Known before it begins: after an interrupt the next save waits for it, too.
    desk.writing = writing = Writing(place, updates, write)
    writing.start(wait=wait)
    return writing


def _save_together(
    stepper: Stepper, loop: Loop, desk: Desk, place: Path, *, extra: Any, wait: bool
) -> Writing:
    talk = _talk(stepper, loop)
    desk.seals.pop(place, None)
    # An error on one rank is one on all: nobody waits for who does not come.
    with talk.together("the checkpoint") as round_:
        own, shared = _own(stepper, extra), _shared(stepper)
        portions = Portions.of(
            shared["optimizers"], stepper.optimizers, is_alone=stepper.ranks.is_alone
        )
        round_.says = portions.said()
        shared["layouts"] = layouts_of(shared["optimizers"], stepper.optimizers)
    shared["own"] = portions.settle(round_.heard, talk)
    with talk.together("the checkpoint") if shared["own"] else nullcontext():
        own["states"] = portions.taken_out(shared["optimizers"], shared["own"])
    # What each rank has by itself, such as the statistics of BatchNorm, stays each rank's own.
    own["buffers"] = [
        _buffers(bare(m), s) for m, s in zip(stepper.models, shared["models"], strict=True)
    ]
    updates = own["stepper"]["index"]
    # One process that goes on with a folder writes it at once.
    wait = wait or stepper.ranks.is_alone
    if not wait:
        # Its errors are raised where somebody waits for it, which may be one rank alone.
        talk = Talk(stepper.ranks, desk.aside(stepper.ranks))
    write = folders.Write(place, shared, own if wait else copied(own), updates, talk)
    if wait:
        write.tensors()
        write.finish()
        desk.seals[place] = write.folder.name
        return Writing(place, updates, lambda: None)
    wait_for_tensors = write.copy_tensors()

    def rest() -> None:
        wait_for_tensors()
        write.finish()
        desk.seals[place] = write.folder.name

    desk.writing = writing = Writing(place, updates, rest)
    writing.start(wait=False)
    return writing


def _require_whole_shards(stepper: Stepper, loop: Loop) -> None:
    is_open = loop.window is not None and loop.window.is_open
    if stepper.ranks.kind == "sharded" and is_open:
        raise WindowError(
            "a sharded model cannot be saved in the middle of a window.",
            why="its parameters are whole on every rank while a window is open, and their shards "
            "are what is saved.",
            fix="save between two windows: after the inner loop.",
            more="checkpoint",
        )


def require_all(
    stepper: Stepper,
    loop: Loop,
    errand: errands.Errand,
    path: PathLike,
    *,
    how: str = "",
) -> None:
    """Raise unless all ranks have come for the same, with the same path and options."""
    gather = _talk(stepper, loop).gather
    together, place = loop.core.together, disk.place_of(path)
    errands.require_all(together, errand, path, place, gather, how=how)


def _between_rounds(loop: Loop, errand: errands.Errand) -> AbstractContextManager[None]:
    together = loop.core.together
    return nullcontext() if together is None else together.between_rounds(errand.what)


def _talk(stepper: Stepper, loop: Loop) -> Talk:
    together = loop.core.together
    return Talk(stepper.ranks, waiting=None if together is None else together.waiting, mark=mark)


def _buffers(model: nn.Module, saved: dict[str, Any]) -> dict[str, Any]:
    """Take out of a model's state what is no parameter."""
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return {name: saved.pop(name) for name in list(saved) if name not in names}


def is_there(stepper: Stepper, loop: Loop, path: PathLike, *, previous: bool = False) -> bool:
    """Whether there is something to go on from, damaged or not; or a whole one before it."""
    with _between_rounds(loop, errands.AUTOSAVE):
        return _is_there(stepper, _talk(stepper, loop), disk.place_of(path), previous=previous)


def _is_there(stepper: Stepper, talk: Talk, place: Path, *, previous: bool) -> bool:
    if talk.gather(disk.is_folder(place))[0]:
        return bool(talk.gather(len(folders.finished(place)) > int(previous))[0])
    before = disk.previous_of(place)
    if previous:
        return bool(talk.gather(files.whole_head(before) is not None)[0])
    if stepper.ranks.is_alone and disk.exists(before) and not disk.exists(place):
        # Something of another kind with that name: nothing to go on from, nor to be overwritten.
        disk.require_ours(place)
    return bool(talk.gather(disk.exists(place) or disk.exists(before))[0])


def load(stepper: Stepper, loop: Loop, path: PathLike, *, previous: bool) -> Loaded:
    """Put back what was saved; nothing changes unless all of it fits."""
    place = disk.place_of(path)
    require_all(stepper, loop, errands.LOAD, path, how="previous=True" if previous else "")
    with _between_rounds(loop, errands.LOAD):
        return _load(stepper, loop, place, previous=previous)


def _load(stepper: Stepper, loop: Loop, place: Path, *, previous: bool) -> Loaded:
    talk = _talk(stepper, loop)
    if talk.gather(disk.is_folder(place))[0]:
        found = folders.choose(place, talk, previous=previous)
        parts, updates, where = _from_folder(stepper, found, talk), found.updates, found.path
    else:
        with talk.together("reading the checkpoint"):
            read = files.read(disk.previous_of(place) if previous else place)
            parts, updates, where = read.parts, read.updates, read.path
    with talk.together("loading the checkpoint"):
        _require_fit(stepper, loop, parts, is_dealt=where.is_dir())
    put_back(stepper, loop, parts)
    return Loaded(where, updates, previous, parts["extra"])


def _from_folder(stepper: Stepper, found: folders.Found, talk: Talk) -> dict[str, Any]:
    with talk.together("reading the checkpoint"):
        if found.world == talk.world:
            own = folders.own_parts(found, talk.rank)
        else:
            require_for_all(found.rest, found.world, talk.world)
            everyone = [folders.own_parts(found, rank) for rank in range(found.world)]
            own = dict(everyone[min(talk.rank, found.world - 1)])
            states = [each["stepper"] for each in everyone]
            own["stepper"] = dealt(states, talk.rank, talk.world)
    with talk.together("reading the checkpoint"):
        # Folders of before have no layouts, and no portions.
        layouts = found.rest.get("layouts", {})
        to = destinations(stepper.models, stepper.optimizers, layouts)
        parts = folders.shared_parts(found, to, talk)
    for saved, buffers in zip(parts["models"], own["buffers"], strict=True):
        saved.update(buffers)
    put_into(parts["optimizers"], own.get("states", ()))
    return {**parts, "stepper": own["stepper"], "extra": own["extra"]}


def _shared(stepper: Stepper) -> dict[str, Any]:
    """Return what all ranks have in common; tensors are those that train, not copies."""
    return {
        "version": VERSION,
        "models": [dict(bare(model).state_dict()) for model in stepper.models],
        "optimizers": {
            name: [optimizer.state_dict() for optimizer in together]
            for name, together in stepper.optimizers.items()
        },
        "makes": makes(stepper),
        "schedulers": {
            name: [(type(one).__name__, _state_of(one)) for one in listed]
            for name, listed in stepper.schedulers.items()
        },
    }


def _own(stepper: Stepper, extra: Any) -> dict[str, Any]:
    files.require_plain(extra, "extra")
    return {"stepper": stepper.state_dict(), "extra": extra}


def _state_of(scheduler: Any) -> Any:
    return scheduler.state_dict() if hasattr(scheduler, "state_dict") else {}


def _require_fit(stepper: Stepper, loop: Loop, parts: dict[str, Any], *, is_dealt: bool) -> None:
    problem = next(misfits(stepper, parts, VERSION), None)
    if problem is not None:
        raise StateError(
            f"this checkpoint does not fit: {problem}.",
            why="it was saved with another model, optimizer or scheduler. Nothing was loaded.",
            fix="build everything as it was when it was saved; what changed by intention is loaded "
            "by itself, from torch.load (instep explain checkpoint).",
            more="checkpoint",
        )
    if not is_dealt and stepper.ranks.world > 1:
        # A file of one process, for several.
        parts["stepper"] = dealt([parts["stepper"]], stepper.ranks.rank, stepper.ranks.world)
        cut(parts, stepper.models, stepper.optimizers)
    state.require_loadable(loop, parts["stepper"])


def put_back(stepper: Stepper, loop: Loop, parts: dict[str, Any]) -> None:
    """Load the parts of a checkpoint into a stepper's model, optimizers and schedulers, and it."""
    for model, saved in zip(stepper.models, parts["models"], strict=True):
        bare(model).load_state_dict(saved)
    for name, together in stepper.optimizers.items():
        for optimizer, saved in zip(together, parts["optimizers"][name], strict=True):
            load_optimizer(loop, optimizer, saved)
    for name, listed in stepper.schedulers.items():
        for scheduler, (_, saved) in zip(listed, parts["schedulers"][name], strict=True):
            if hasattr(scheduler, "load_state_dict"):
                scheduler.load_state_dict(saved)
    # Last: it puts back the random states.
    stepper.load_state_dict(parts["stepper"])


def load_optimizer(loop: Loop, optimizer: Optimizer, saved: dict[str, Any]) -> None:
    """Load a state; warn of a class that does so in a way of its own, which nobody can undo."""
    changed = restoring.put_back(optimizer, saved)
    if not changed:
        return
    kind = type(optimizer).__name__
    more = f", and {len(changed) - 3} more" if len(changed) > 3 else ""
    loop.core.warn(
        f"{kind}.load_state_dict has changed what was saved: {', '.join(changed[:3])}{more}.",
        why="this run does not go on bit for bit. The class has a load_state_dict of its own, "
        "and what it has done could not be put right.",
        fix=f"let {kind}.load_state_dict take over every value in its own type, or leave it to "
        "torch's, which instep puts right.",
        more="checkpoint",
    )
