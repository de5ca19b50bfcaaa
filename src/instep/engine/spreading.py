"""A saved state for other ranks than those it was saved on: tensors cut anew, states dealt out."""

from __future__ import annotations

import copy
from collections import OrderedDict
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from instep.checkpoint.trees import split
from instep.engine import gradients as grads
from instep.engine.ranks.digests import is_spread
from instep.errors import CheckpointError, StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn
    from torch.optim import Optimizer

Models = list["nn.Module"]
Optimizers = dict[str, tuple["Optimizer", ...]]
Dims = list[int | None]
"""The dimension of a tensor that is cut along each dimension of a mesh; None: it is repeated."""


def bare(model: nn.Module) -> nn.Module:
    """Return the module itself: what is wrapped around it would change every name."""
    inner = getattr(model, "_orig_mod", None)  # torch.compile
    if inner is None and type(model).__name__ == "DistributedDataParallel":
        inner = model.module
    return model if inner is None else bare(inner)


def destinations(
    models: Models, optimizers: Optimizers, layouts: Mapping[str, Dims]
) -> Callable[[str, Any, Any], Tensor]:
    """Return where each tensor of a checkpoint is to go: cut like the parameter it belongs to.

    layouts: of states that were cut in another way.
    """
    of_models = {
        f"models.{index}.{name}": tensor
        for index, model in enumerate(models)
        for name, tensor in bare(model).state_dict().items()
        if isinstance(tensor, Tensor)
    }
    of_states = _by_place(optimizers)

    def destination(name: str, size: torch.Size, dtype: torch.dtype) -> Tensor:
        like = of_models.get(name)
        if like is None:
            like = _owner(name, of_states)
        if name in layouts and is_spread(like):
            return _laid_out(size, dtype, like, layouts[name])
        # What has another shape is a counter, or does not fit, which is said later.
        if like is None or like.shape != size:
            return torch.empty(size, dtype=dtype)
        return torch.empty_like(like.detach(), dtype=dtype)

    return destination


def layouts_of(states: dict[str, Any], optimizers: Optimizers) -> dict[str, Dims]:
    """Return along which dimensions states are cut, where their parameter is cut in another way.

    Means of its rows, for example. By the names under which they are written.
    """
    of_states, found = _by_place(optimizers), {}
    for name, tensor in split({"optimizers": states})[1].items():
        if not is_spread(tensor):
            continue
        spread: Any = tensor
        like: Any = _owner(name, of_states)
        if any(placement.is_partial() for placement in spread.placements):
            raise _not_added_up(name)
        is_alike = is_spread(like) and like.shape == spread.shape
        if not is_alike or like.placements != spread.placements:
            found[name] = [p.dim if p.is_shard() else None for p in spread.placements]
    return found


def _by_place(optimizers: Optimizers) -> dict[str, Tensor]:
    return {
        f"optimizers.{name}.{index}.state.{number}": parameter
        for name, together in optimizers.items()
        for index, optimizer in enumerate(together)
        for number, parameter in enumerate(grads.parameters_of([optimizer]))
    }


def _owner(name: str, of_states: Mapping[str, Tensor]) -> Tensor | None:
    """Return the parameter that a state belongs to, however deep it is nested."""
    places = accumulate(name.split("."), "{}.{}".format)
    return next((of_states[place] for place in places if place in of_states), None)


def _laid_out(size: torch.Size, dtype: torch.dtype, like: Any, dims: Dims) -> Tensor:
    from torch.distributed.tensor import Replicate, Shard, empty  # noqa: PLC0415 -- in use already

    mesh = like.device_mesh
    if len(dims) != mesh.ndim:
        # Along the dimensions of this mesh that parameters are cut along.
        cut_along = iter([dim for dim in dims if dim is not None])
        dims = [next(cut_along, None) if p.is_shard() else None for p in like.placements]
    placements = [Replicate() if dim is None else Shard(dim) for dim in dims]
    laid_out: Tensor = empty(*size, dtype=dtype, device_mesh=mesh, placements=placements)
    return laid_out


def _not_added_up(name: str) -> CheckpointError:
    return CheckpointError(
        f"{name} cannot be saved: it is a sum that was not added up over ranks (Partial).",
        why="each rank has a term of it, and a checkpoint has one value. Nothing was written.",
        fix="let the optimizer keep the sum: tensor.redistribute(placements=[Replicate()]).",
        more="checkpoint",
    )


def cut(parts: dict[str, Any], models: Models, optimizers: Optimizers) -> None:
    """Replace whole tensors by this rank's part of them, where the parameter is spread."""
    for model, saved in zip(models, parts["models"], strict=False):
        for name, tensor in bare(model).state_dict().items():
            if name in saved:
                saved[name] = _cut_like(tensor, saved[name])
    for name, together in optimizers.items():
        for optimizer, saved in zip(together, parts["optimizers"].get(name, ()), strict=False):
            parameters = grads.parameters_of([optimizer])
            for number, state in saved.get("state", {}).items():
                if number in range(len(parameters)):
                    saved["state"][number] = _cut_like(parameters[number], state)


def _cut_like(like: Any, whole: Any) -> Any:
    if type(whole) in (dict, OrderedDict):
        return type(whole)((key, _cut_like(like, value)) for key, value in whole.items())
    if type(whole) in (list, tuple):
        return type(whole)(_cut_like(like, value) for value in whole)
    if not is_spread(like) or not isinstance(whole, Tensor):
        return whole
    if is_spread(whole) or whole.shape != like.shape:
        return whole
    from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415 -- in use already

    mesh = like.device_mesh
    # Every rank has read all of it: nobody has to send.
    return distribute_tensor(whole.to(mesh.device_type), mesh, like.placements, src_data_rank=None)


def dealt(states: Sequence[dict[str, Any]], rank: int, world: int) -> dict[str, Any]:
    """Return the stepper's state for one rank of another number of them.

    Between two windows all ranks are at the same place, and the sum of their work is done; inside
    of one, each has gradients of its own.
    """
    if any(lane["window"] is not None for state in states for lane in state["lanes"].values()):
        raise _not_here(
            len(states),
            world,
            "it was saved in the middle of a window, of which each rank has a part of its own",
        )
    state = copy.deepcopy(states[min(rank, len(states) - 1)])
    if any(each["place"] is not None for each in states):
        done = _done_together(states)
        if done is None:
            raise _not_here(
                len(states),
                world,
                "it was saved in the middle of an epoch, and nothing is known of how its samples "
                "were dealt out",
            )
        state["place"]["position"].update(skip=0, redraw=[], begins_at=done, is_over=False)
    if rank >= len(states):
        # Ranks that were not there draw numbers of their own.
        seed = int(state["random"]["cpu"].to(torch.int64).sum()) * world + rank
        own = {"cpu": torch.Generator().manual_seed(seed).get_state()}
        state["random"] = own
        if state["place"] is not None:
            state["place"]["position"]["random"] = own
    return state


def _done_together(states: Sequence[dict[str, Any]]) -> int | None:
    """Return how many samples of the epoch all ranks have done, the first ones of its order.

    They took turns, so that ranks which have done equally many batches have done the first ones
    together. Who has done fewer has no more.
    """
    places = [state["place"] for state in states]
    positions = [None if place is None else place["position"] for place in places]
    known = [p for p in positions if p is not None and p.get("turns") is not None]
    if len(known) != len(states) or any(p["turns"]["world"] != len(states) for p in known):
        return None
    furthest = max(known, key=lambda position: int(position["skip"]))
    behind = [p for p in known if p["skip"] != furthest["skip"]]
    if not all(p["turns"]["is_over"] for p in behind):
        return None
    per_batch = furthest["turns"]["per_batch"]
    return int(furthest["begins_at"] + furthest["skip"] * per_batch * len(states))


def _not_here(saved: int, world: int, why: str) -> StateError:
    return StateError(
        f"this checkpoint of {saved} {'ranks' if saved > 1 else 'process'} cannot go on "
        f"with {world}.",
        why=f"{why}. Nothing was loaded.",
        fix=f"go on with {saved}, or save at the end of an epoch; between windows of a loader that "
        "instep.distributed.shard(loader) made of a data set with a length, any number can go on.",
        more="checkpoint",
    )
