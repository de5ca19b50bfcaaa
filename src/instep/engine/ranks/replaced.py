"""Parameters that one rank has replaced in its model: its optimizer goes on with the old ones.

What optimizers hold is compared elsewhere, and does not change by it: the model of that rank would
never be updated again where it was replaced, without a word. So every rank says a number of what
its model has lost: names that led to a parameter of an optimizer and no longer do. Names that came
in addition, and those that differ from the start, are a rank's own.
"""

from __future__ import annotations

import zlib
from itertools import chain
from operator import is_, methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple

from instep.engine.gradients import parameters_of
from instep.engine.ranks.headers import agreed, ranks_that
from instep.engine.spreading import bare

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import nn

    from instep.engine.lane import Lane
    from instep.engine.ranks.headers import Said
    from instep.engine.ranks.sharded import Shards

Place = tuple[str, int]
"""The name of an optimizer, and the number of a parameter in it."""
Names = dict[Place, list[str]]
"""What leads to each parameter in the models; tied ones have several."""
TRANSPARENT = ("_orig_mod", "_checkpoint_wrapped_module")
"""Names in which torch keeps a module whose work it does in another way, perhaps on one rank."""

_values = methodcaller("values")


class Lost(NamedTuple):
    """What a model no longer has: a number to compare, and words for it; empty if nothing."""

    number: str = ""
    words: str = ""


class Places:
    """Where the parameters of a stepper's optimizers are in its models.

    The dictionaries of all modules are remembered with what was in them, so that a look at a model
    that has not changed is one comparison.
    """

    def __init__(self, models: Sequence[nn.Module], shards: Shards | None) -> None:
        self._models = models
        self._shards = shards
        self._held: dict[str, list[int]] = {}
        self._names: Names = {}
        self._dicts: list[Any] = []
        self._slots: list[tuple[Any, str, Any]] = []
        """In modules of which FSDP has some parameters: those that it does not have."""
        self._seen: list[Any] = []
        self._is_changed = False
        """Whether the last look found something that FSDP will put back by itself."""
        self._lost = Lost()

    def learn(self, lanes: Iterable[Lane]) -> None:
        """Find the parameters of these optimizers."""
        known = list(lanes)
        self._held |= {lane.name: list(map(id, parameters_of(lane.optimizers))) for lane in known}
        found, _ = self._found()
        for lane in known:
            for number in range(len(self._held[lane.name])):
                self._names[lane.name, number] = found.get((lane.name, number), [])
        self._remember()
        self._lost = self._look()

    def lost(self, lanes: Sequence[Lane]) -> Lost:
        """Return what these optimizers have, and the models no longer where it was."""
        for lane in lanes:
            if list(map(id, parameters_of(lane.optimizers))) != self._held.get(lane.name):
                # Given to the optimizer since, or taken from it.
                self._forget(lane.name)
                self.learn([lane])
        was_changed = self._is_changed
        self._is_changed = self._shards is not None and _has_other(self._shards)
        if self._is_changed or was_changed or self._is_other():
            self._remember()
            self._lost = self._look()
        return self._lost

    def _forget(self, name: str) -> None:
        self._names = {place: names for place, names in self._names.items() if place[0] != name}

    def _is_other(self) -> bool:
        """Whether anything is in a module that was not, or is not where it was."""
        now = chain.from_iterable(map(_values, self._dicts))
        if sum(map(len, self._dicts)) != len(self._seen) or not all(map(is_, now, self._seen)):
            return True
        return any(held.get(name) is not what for held, name, what in self._slots)

    def _remember(self) -> None:
        cut = _as_sharded(self._shards)
        self._dicts, self._slots = [], []
        for module in chain.from_iterable(model.modules() for model in self._models):
            children: Any = module._modules  # noqa: SLF001 -- no copy of it would tell
            held: Any = module._parameters  # noqa: SLF001
            if not (isinstance(held, dict) and isinstance(children, dict)):
                continue  # TorchScript keeps them elsewhere, and makes another object at each look
            self._dicts.append(children)
            if any(id(each) in cut for each in held.values()):
                # FSDP puts others in their places, all the time.
                own = [(held, name, p) for name, p in held.items() if id(p) not in cut]
                self._slots += own
            else:
                self._dicts.append(held)
        # What is empty has nothing to lose.
        self._dicts = list(filter(None, self._dicts))
        self._seen = list(chain.from_iterable(map(_values, self._dicts)))

    def _look(self) -> Lost:
        """Compare the names that parameters have now with those that they had."""
        now, there = self._found()
        gone = [
            (place, name)
            for place, names in self._names.items()
            for name in names or [""]
            if name not in now.get(place, ())
        ]
        if not gone:
            return Lost()
        place, name = gone[0]
        rest = now.get(place, ())
        if not name:
            words = f"parameter {place[1]} of {place[0]!r} is missing in the model"
        elif rest and name not in there:
            words = f"{name!r} was moved to {rest[0]!r} in the model"
        else:
            words = f"{name!r} was replaced in the model"
        return Lost(f"{zlib.crc32(repr(sorted(gone)).encode()):08x}", words)

    def _found(self) -> tuple[Names, set[str]]:
        """Return what leads to each parameter now, and every name that leads to any."""
        cut = _as_sharded(self._shards)
        wanted: dict[int, list[Place]] = {}
        for name, held in self._held.items():
            for number, each in enumerate(held):
                wanted.setdefault(each, []).append((name, number))
        found: Names = {}
        there: set[str] = set()
        for index, model in enumerate(self._models):
            first = f"models[{index}]." if index else ""
            for name, parameter in _slots_of(bare(model)):
                there.add(first + name)
                for place in wanted.get(cut.get(id(parameter), id(parameter)), ()):
                    found.setdefault(place, []).append(first + name)
        return found, there


def _slots_of(model: nn.Module) -> list[tuple[str, Any]]:
    """Return every parameter of a model with its names, of tied ones and shared modules, too.

    A module that is met again is not entered again: there may be circles.
    """
    found: list[tuple[str, Any]] = []
    paths: dict[int, str] = {}
    again: list[tuple[str, str]] = []
    waiting: list[tuple[str, Any]] = [("", model)]
    while waiting:
        path, module = waiting.pop()
        if id(module) in paths:
            again.append((path, paths[id(module)]))
            continue
        paths[id(module)] = path
        held = module.named_parameters(recurse=False, remove_duplicate=False)
        found += ((path + name, parameter) for name, parameter in held)
        inner = [
            (path if name in TRANSPARENT else f"{path}{name}.", child)
            for name, child in module._modules.items()  # noqa: SLF001 -- also those met before
            if child is not None
        ]
        waiting += reversed(inner)
    shared = [
        (other + name.removeprefix(path), parameter)
        for other, path in again
        for name, parameter in found
        if name.startswith(path)
    ]
    return found + shared


_KINDS = ("sharded_param", "_unsharded_param", "_sharded_post_forward_param")


def _as_sharded(shards: Shards | None) -> dict[int, int]:
    """Return which sharded parameter everything stands for that FSDP puts into modules."""
    found: dict[int, int] = {}
    for group in shards.groups() if shards is not None else ():
        for param in group.fsdp_params:
            known = (getattr(param, kind, None) for kind in _KINDS)
            found |= {id(each): id(param.sharded_param) for each in known if each is not None}
    return found


def _has_other(shards: Shards) -> bool:
    """Whether something is in a place of FSDP's that it has not put there."""
    for group in shards.groups():
        for param in group.fsdp_params:
            known = [getattr(param, kind, None) for kind in _KINDS]
            for held, name in _slots_of_shard(param):
                now = held.get(name)
                if now is None or not any(now is each for each in known):
                    return True
    return False


def _slots_of_shard(param: Any) -> Iterator[tuple[Mapping[str, Any], str]]:
    info = param._module_info  # noqa: SLF001 -- torch has no public way to it
    yield info.module._parameters, info.param_name  # noqa: SLF001
    for module, name in zip(info.shared_modules, info.shared_param_names, strict=True):
        yield module._parameters, name  # noqa: SLF001


def require_same_places(heard: Sequence[Said]) -> None:
    """Raise if the models of some ranks have lost what those of others have."""
    first = heard[0].lost
    if all(said.lost == first for said in heard):
        return
    other = [bool(said.lost) for said in heard]
    if all(other):
        other = [said.lost != first for said in heard]
    words = next(said.replaced for said, flag in zip(heard, other, strict=True) if flag)
    raise agreed(
        f"{words} of {ranks_that(other)}, and not on the others.",
        why="the optimizer there goes on with the parameters that it was given, which the model no "
        "longer uses as on the other ranks: the ranks would train different models. The window was "
        "thrown away.",
        fix="write new values into the parameter that is there, on every rank (with "
        "torch.no_grad(): parameter.copy_(...)); a new layer, a wrapper or an untied weight "
        "needs a new optimizer and stepper, on every rank.",
        more="ranks",
    )
