"""`Ranks`: which processes train together, and how the model is spread over them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from instep.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from torch import nn

Kind = Literal["alone", "replicas", "sharded"]
Sync = Literal["window", "micro-batch"]

# By name, because importing them would start torch.distributed.
REPLICATED, SHARDED = "DistributedDataParallel", "FSDPModule"
REFUSED = {
    "FullyShardedDataParallel": "shard it with torch.distributed.fsdp.fully_shard.",
    "DataParallel": "start one process per device with torchrun, and use DistributedDataParallel.",
}


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """The processes of one stepper: this one's number, how many, and the group they talk in.

    >>> ALONE.rank, ALONE.world, ALONE.is_alone
    (0, 1, True)
    """

    rank: int = 0
    world: int = 1
    group: Any = None
    """The torch.distributed process group; None for a process by itself."""
    kind: Kind = "alone"
    """"replicas" hold all parameters each (DDP), "sharded" ones a part of them (FSDP2)."""
    sync: Sync = "window"
    """When sharded gradients are added up: once per window, or after each backward."""
    home: torch.device | None = None
    """The device of this rank's parameters, if that is not the host."""

    @property
    def is_alone(self) -> bool:
        """Whether nobody else takes part, so that nothing is ever waited for."""
        return self.group is None

    def device(self) -> torch.device:
        """Return where numbers are put to be sent: the host, if the group can send from there.

        Otherwise where the parameters are: who never called torch.cuda.set_device has the same
        current device on all ranks, on which NCCL refuses them.
        """
        kinds = self._kinds()
        if "cpu" in kinds:
            return torch.device("cpu")
        for known in (self.home, getattr(self.group, "bound_device_id", None)):
            if known is not None and known.type in kinds:
                return torch.device(known)
        index = torch.accelerator.current_device_index()
        return torch.device(kinds[0], index)

    def way_from(self, device: torch.device) -> torch.device:
        """Return where a tensor of this device is sent from: there, if the group can."""
        return device if device.type in self._kinds() else self.device()

    def at_home(self) -> AbstractContextManager[None]:
        """Make it the current device, from which torch sends objects, and so checkpoints."""
        return (
            nullcontext() if self.home is None else torch.accelerator.device_index(self.home.index)
        )

    def _kinds(self) -> list[str]:
        return [device.type for device in self.group._device_types]  # noqa: SLF001 -- no other way


ALONE = Ranks()


def wrapper_of(module: nn.Module) -> str | None:
    """Return the name of what spreads a module over processes, if anything does."""
    names = (REPLICATED, SHARDED, *REFUSED)
    return next((c.__name__ for c in type(module).__mro__ if c.__name__ in names), None)


def wrapped_in(models: Sequence[nn.Module]) -> Iterator[tuple[nn.Module, str]]:
    """Yield the modules that are spread over processes, outermost ones only."""
    for module in models:
        wrapper = wrapper_of(module)
        if wrapper is not None:
            yield module, wrapper
        else:
            yield from wrapped_in(list(module.children()))


def ranks_of(models: Sequence[nn.Module], group: Any, sync: str) -> Ranks:
    """Find the processes that train these models together, from their wrappers or `group`.

    A plain model belongs to one process, also where torch.distributed is running: many programs
    train something small on each rank by itself. `group` says otherwise.
    """
    if sync not in ("window", "micro-batch"):
        raise SetupError(
            f"sync is {sync!r}.",
            why='sharded gradients are added up once per "window", which keeps the parameters '
            'whole in between, or after each "micro-batch", which takes less memory.',
            fix='pass sync="window" or sync="micro-batch".',
            more="ranks",
        )
    wrapped = list(wrapped_in(models))
    wrappers = {wrapper for _, wrapper in wrapped}
    for wrapper in wrappers:
        if wrapper in REFUSED:
            raise SetupError(
                f"model is wrapped in {wrapper}.",
                why="it averages gradients over devices by itself, which is wrong as soon as they "
                "hold different numbers of items, and cannot be told to leave them alone.",
                fix=REFUSED[wrapper],
                more="ranks",
            )
    found = [group_of(module, wrapper) for module, wrapper in wrapped]
    chosen = group if group is not None else (found[0] if found else None)
    if chosen is None:
        return ALONE
    if any(other.size() != chosen.size() or other.rank() != chosen.rank() for other in found):
        raise SetupError(
            "the models, or model and group=, are spread over different groups of processes.",
            why="every window ends with one agreement of all processes that train together.",
            fix="wrap all models over the same processes, and leave group= out.",
            more="ranks",
        )
    kind: Kind = "sharded" if SHARDED in wrappers else "replicas"
    home = _home_of(models)
    return Ranks(chosen.rank(), chosen.size(), chosen, kind, sync, home)  # type: ignore[arg-type]


def _home_of(models: Sequence[nn.Module]) -> torch.device | None:
    devices = (parameter.device for model in models for parameter in model.parameters())
    return next((device for device in devices if device.type not in ("cpu", "meta")), None)


def group_of(model: Any, wrapper: str) -> Any:
    """Return the process group that a wrapped model works in."""
    if wrapper == REPLICATED:
        return model.process_group
    meshes = {mesh for module in model.modules() if (mesh := _mesh_of(module)) is not None}
    if len(meshes) == 1:
        (mesh,) = meshes
        if mesh.ndim == 1:
            return mesh.get_group()
        import torch.distributed as dist  # noqa: PLC0415 -- in use already, by the wrapper

        if mesh.size() == dist.get_world_size():
            return dist.group.WORLD
    raise SetupError(
        "the parameters of the model are sharded over several meshes, or over a part of one.",
        why="every window ends with one agreement of all processes that train together, and "
        "these are not the processes of one group.",
        fix="pass one mesh of all processes to every fully_shard().",
        more="ranks",
    )


def _mesh_of(module: nn.Module) -> Any:
    if wrapper_of(module) != SHARDED:
        return None
    groups = param_groups_of(module)
    return groups[0].mesh_info.mesh if groups else None


def param_groups_of(module: Any) -> list[Any]:
    """Return what FSDP2 keeps about the parameters of one module that was given to it."""
    state = module._get_fsdp_state()  # noqa: SLF001 -- torch has no public way to them
    several = getattr(state, "_fsdp_param_groups", None)
    if several is not None:
        return list(several)
    only = state._fsdp_param_group  # noqa: SLF001
    return [] if only is None else [only]
