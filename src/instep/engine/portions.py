"""What of optimizers' states is each rank's own: saved by it, and given back to it.

Most of a state is the same on all ranks, or a tensor that knows how it is spread over them
(DTensor): one checkpoint has it once. A plain tensor that an optimizer keeps for its shard of a
parameter, and whatever differs between ranks, would be replaced by that of another rank. It goes
into the rank's own part, and comes back to it on the same number of ranks; on another number there
is nobody whose it would be.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from instep.engine import gradients as grads
from instep.engine.ranks.digests import digest_of, digests_of, is_spread
from instep.errors import CheckpointError, StateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from instep.checkpoint.talk import Talk
    from instep.engine.spreading import Optimizers

Place = tuple[Any, ...]
"""The name of an optimizer, its number, and the keys that lead to a value in its state."""
States = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Portions:
    """The values of the states that one rank is about to save, and what it says of them."""

    values: dict[Place, Any]
    digests: dict[Place, str]
    is_own: frozenset[Place]
    """Belong to this rank, whatever others say."""
    is_odd: frozenset[Place]
    """Cannot be written among the tensors that ranks share."""

    @classmethod
    def of(cls, states: States, optimizers: Optimizers, *, is_alone: bool) -> Portions:
        """Look at all that these optimizers are about to save (syncs, unless alone)."""
        own, odd, values = set(), set(), {}
        for name, together in states.items():
            for index, saved in enumerate(together):
                parameters = _by_number(saved, optimizers[name][index])
                for path, value in _values(saved):
                    place = (name, index, *path)
                    values[place] = value
                    like = parameters.get(path[1]) if path[0] == "state" else None
                    plain = [one for one in _tensors(value) if not is_spread(one)]
                    if any(_is_of_shard(one, like) for one in plain):
                        own.add(place)
                    if any(one.layout is not torch.strided for one in plain):
                        odd.add(place)
        digests = dict.fromkeys(values, "") if is_alone else digests_of(values)
        return cls(values, digests, frozenset(own), frozenset(odd))

    def said(self) -> tuple[str, bool]:
        """Return what is told first: a number of all values, and whether any is this rank's."""
        listed = sorted((repr(place), digest) for place, digest in self.digests.items())
        return digest_of(listed), bool(self.is_own or self.is_odd)

    def settle(self, heard: Sequence[tuple[str, bool]], talk: Talk) -> list[tuple[Place, bool]]:
        """Return what each rank saves by itself, and whether it is the same on all of them.

        The ranks talk again only if there may be anything.
        """
        if len({number for number, _ in heard}) == 1 and not any(has for _, has in heard):
            return []
        everyone = talk.gather((self.digests, self.is_own, self.is_odd))
        found = []
        for place in dict.fromkeys(place for digests, _, _ in everyone for place in digests):
            differs = len({digests.get(place) for digests, _, _ in everyone}) > 1
            is_own = differs or any(place in own for _, own, _ in everyone)
            if is_own or any(place in odd for _, _, odd in everyone):
                found.append((place, not is_own))
        return found

    def taken_out(self, states: States, places: Sequence[tuple[Place, bool]]) -> list[Any]:
        """Take these out of what ranks share; return those of this rank, with their places."""
        if places:
            for together in states.values():
                # What `state_dict` returns has the optimizer's own dicts in it.
                together[:] = [_copied(saved) for saved in together]
        own = []
        for place, _ in places:
            if place not in self.values:
                continue
            value = self.values[place]
            if any(map(is_spread, _tensors(value))):
                raise _mixed(place)
            own.append((place, value))
            _put(states, place, None)
        return own


def require_for_all(parts: dict[str, Any], saved: int, world: int) -> None:
    """Raise if another number of ranks cannot go on from this: some state is a rank's own."""
    own = [place for place, is_same in parts.get("own", ()) if not is_same]
    if not own:
        return
    more = f", and {len(own) - 3} more" if len(own) > 3 else ""
    raise StateError(
        f"this checkpoint of {saved} {'ranks' if saved > 1 else 'process'} cannot go on with "
        f"{world}: it has states that are each rank's own: "
        f"{', '.join(_name(place, parts) for place in own[:3])}{more}.",
        why="they are plain tensors of a rank's shard of a parameter, or have other values on "
        "other ranks, and nothing says how to deal them out anew. Nothing was loaded.",
        fix=f"go on with {saved}; an optimizer that keeps what belongs to a sharded parameter in "
        "torch.zeros_like(parameter), and the same values on all ranks, can go on with any number.",
        more="checkpoint",
    )


def put_into(states: States, own: Sequence[tuple[Place, Any]]) -> None:
    """Put back what was taken out."""
    for place, value in own:
        _put(states, place, value)


def _put(states: States, place: Place, value: Any) -> None:
    name, index, *path, last = place
    inside: Any = states[name][index]
    for key in path:
        inside = inside.setdefault(key, {}) if isinstance(inside, dict) else inside[key]
    inside[last] = value


def _copied(saved: dict[str, Any]) -> dict[str, Any]:
    state = {number: copy.copy(each) for number, each in saved["state"].items()}
    return {**saved, "state": state, "param_groups": [dict(g) for g in saved["param_groups"]]}


def _values(saved: dict[str, Any]) -> Iterator[tuple[Place, Any]]:
    for number, state in saved["state"].items():
        if not isinstance(state, dict):
            yield ("state", number), state
            continue
        for key, value in state.items():
            yield ("state", number, key), value
    for number, group in enumerate(saved["param_groups"]):
        for key, value in group.items():
            if key != "params":
                yield ("param_groups", number, key), value


def _by_number(saved: dict[str, Any], optimizer: torch.optim.Optimizer) -> dict[Any, Tensor]:
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    return dict(zip(numbers, grads.parameters_of([optimizer]), strict=False))


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _tensors(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _tensors(value)


def _is_of_shard(value: Tensor, parameter: Any) -> bool:
    """Whether a plain tensor is about this rank's shard, by its shape.

    A single number is not: if all ranks have the same one, it is that of every shard.
    """
    if not is_spread(parameter) or parameter.device_mesh.size() == 1 or value.numel() == 1:
        return False
    shard = parameter.to_local()
    cut = [p.dim for p in parameter.placements if p.is_shard()]
    if not cut:
        return False
    return value.numel() == shard.numel() or any(shard.shape[d] in value.shape for d in cut)


def _name(place: Place, parts: dict[str, Any]) -> str:
    name, index, where, number, *keys = place
    key = f"{keys[0]!r}" if keys else "the state"
    if where == "param_groups":
        return f"{key} of group {number} of {name!r}"
    makes = parts.get("makes", {}).get(name, [])
    listed = [n for group in makes[index]["parameters"] for n in group] if makes else []
    known = listed[number] if number in range(len(listed)) else None
    return f"{key} of {known!r}" if known else f"{key} of parameter {number} of {name!r}"


def _mixed(place: Place) -> CheckpointError:
    name, _, _, number, *keys = place
    return CheckpointError(
        f"the state {''.join(map(repr, keys[:1]))} of parameter {number} of {name!r} cannot be "
        "saved: it has tensors in it that are spread over ranks, and others that are a rank's own.",
        why="the ones are written by all ranks together, the others by each by itself. Nothing "
        "was written.",
        fix="let the optimizer keep them under different keys of its state.",
        more="checkpoint",
    )
