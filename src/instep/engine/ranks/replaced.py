"""Parameters that one rank has replaced in its model: its optimizer goes on with the old ones.

What optimizers hold is compared elsewhere, and does not change by it: the model of that rank would
never be updated again where it was replaced, without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from instep.engine.gradients import parameters_of
from instep.engine.ranks.headers import agreed, ranks_that
from instep.engine.spreading import bare

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from instep.engine.lane import Lane
    from instep.engine.ranks.headers import Said
    from instep.engine.ranks.sharded import Shards

Link = tuple[dict[str, Any], str, Any]
"""Where something is in a module: its dictionary, the name in it, and what is there."""


class Places:
    """Where the parameters of a stepper's optimizers are in its models.

    Every module on the way to them is remembered, so that a look is as many comparisons, and a
    layer that was replaced is noticed as well as a parameter.
    """

    def __init__(self, models: Sequence[nn.Module], shards: Shards | None) -> None:
        self._models = [bare(model) for model in models]
        self._shards = shards
        self._listed: dict[str, list[int]] = {}
        self._names: dict[int, str] = {}
        self._links: list[Link] = []

    def learn(self, lanes: Iterable[Lane]) -> None:
        """Find the parameters of these optimizers."""
        self._listed |= {lane.name: list(map(id, _held(lane))) for lane in lanes}
        wanted = {number for listed in self._listed.values() for number in listed}
        if self._shards is not None:
            # FSDP puts others in their places, all the time.
            wanted -= set(self._shards.by_shard())
        self._names = {n: name for n, name in _names(self._models).items() if n in wanted}
        self._links = list(_links(self._models, wanted))

    def missing(self, lanes: Sequence[Lane]) -> str:
        """Return the name of a parameter that an optimizer has, and its model no longer."""
        for lane in lanes:
            if list(map(id, _held(lane))) != self._listed.get(lane.name):
                # Given to the optimizer since, or taken from it.
                self.learn([lane])
        if any(held.get(name) is not what for held, name, what in self._links):
            there = _names(self._models)
            for lane in lanes:
                for parameter in _held(lane):
                    if id(parameter) in self._names and id(parameter) not in there:
                        return self._names[id(parameter)]
            self.learn(())
        return "" if self._shards is None else _missing_shard(self._shards)


def _held(lane: Lane) -> list[Tensor]:
    return parameters_of(lane.optimizers)


def _names(models: Sequence[nn.Module]) -> dict[int, str]:
    return {id(p): name for model in models for name, p in model.named_parameters()}


def _links(models: Sequence[nn.Module], wanted: set[int]) -> Iterator[Link]:
    for model in models:
        for module in model.modules():
            children = module._modules  # noqa: SLF001 -- no copy of it would tell
            held: Any = module._parameters  # noqa: SLF001
            if not isinstance(held, dict):
                continue  # TorchScript keeps them elsewhere, and makes another object at each look
            yield from ((children, name, child) for name, child in children.items())
            yield from ((held, name, p) for name, p in held.items() if id(p) in wanted)


def _missing_shard(shards: Shards) -> str:
    """Return the name of a parameter that is none of those that FSDP has put in its place."""
    for group in shards.groups():
        for param in group.fsdp_params:
            info = param._module_info  # noqa: SLF001 -- torch has no public way to it
            held: Mapping[str, Any] = info.module._parameters  # noqa: SLF001
            known = ("sharded_param", "_unsharded_param", "_sharded_post_forward_param")
            if not any(held.get(info.param_name) is getattr(param, each, param) for each in known):
                return getattr(param, "_param_fqn", None) or str(info.param_name)
    return ""


def require_same_places(heard: Sequence[Said]) -> None:
    """Raise if some ranks have replaced a parameter and others have not."""
    found = {said.replaced for said in heard}
    if len(found) == 1:
        return
    other = [bool(said.replaced) for said in heard]
    if all(other):
        other = [said.replaced != heard[0].replaced for said in heard]
    named = next(said.replaced for said, flag in zip(heard, other, strict=True) if flag)
    raise agreed(
        f"{named!r} was replaced in the model of {ranks_that(other)}, and not on the others.",
        why="the optimizer there goes on with the parameter that it was given, which the model no "
        "longer has: the ranks would train different models. The window was thrown away.",
        fix="write new values into the parameter that is there, on every rank (with "
        "torch.no_grad(): parameter.copy_(...)); a new layer needs a new optimizer and stepper, on "
        "every rank.",
        more="ranks",
    )
