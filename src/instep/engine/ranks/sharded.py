"""Gradient buffers of parameters that FSDP2 has sharded.

While a window is open the parameters are whole on every rank, gathered once at its opening; no
forward or backward talks, so that ranks may make as many as they have batches for. At the close the
gradients are added up and cut by FSDP's own reduction, once, and the optimizer steps on the shards.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from instep.engine import gradients as grads
from instep.engine.buffers import Buffers, refuse_strays
from instep.engine.memory import is_out_of_memory
from instep.engine.ranks import aside
from instep.engine.ranks.headers import PeerOutOfMemoryError, mark
from instep.engine.ranks.reduction import places_of
from instep.engine.ranks.world import SHARDED, param_groups_of, wrapped_in, wrapper_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from instep.engine.ranks.world import Ranks

# What FSDP does by itself, and what it does while a window is open. Its reduction divides by the
# number of ranks unless told otherwise; premultiplied sums are a speciality of NCCL.
OURS = {
    "reduce_grads": False,
    "all_reduce_grads": True,
    "reshard_after_backward": False,
    "post_forward_mesh_info": None,
    "gradient_divide_factor": 1.0,
    "force_sum_reduction_for_comms": True,
}


AT_ONCE = {
    "reduce_grads": True,
    "all_reduce_grads": True,
    "gradient_divide_factor": 1.0,
    "force_sum_reduction_for_comms": True,
}


class Shards:
    """The sharded parameters of a stepper's models, and FSDP's settings while a window is open."""

    def __init__(self, ranks: Ranks, models: Sequence[nn.Module]) -> None:
        self.ranks = ranks
        self.is_at_once = ranks.sync == "micro-batch"
        """Whether every backward is added up over ranks, and parameters are let go after it."""
        roots = [module for module, wrapper in wrapped_in(models) if wrapper == SHARDED]
        self.roots: list[Any] = roots
        self._modules: list[Any] = [
            module for root in roots for module in root.modules() if wrapper_of(module) == SHARDED
        ]
        self.on_end: Callable[[], None] | None = None
        self._before: list[tuple[Any, dict[str, Any]]] = []
        self._types: list[tuple[Any, Any]] = []
        self.is_begun = self.is_reduced = False

    def buffers(
        self, optimizers: Sequence[Optimizer], accumulate_in: torch.dtype | None
    ) -> ShardedBuffers:
        """Return buffers for the gradients of these optimizers."""
        kind = AddedAtOnce if self.is_at_once else ShardedBuffers
        return kind(optimizers, accumulate_in, self)

    def groups(self) -> list[Any]:
        """Return what FSDP gathers and reduces together, in the order of the modules."""
        return [group for module in self._modules for group in param_groups_of(module)]

    def by_shard(self) -> dict[int, Any]:
        """Return FSDP's record of each parameter, by the sharded one that optimizers hold."""
        return {
            id(param.sharded_param): param for group in self.groups() for param in group.fsdp_params
        }

    def reserve_whole(self) -> None:
        """Take the memory of the whole parameters, and give it back at once, as `reserve` does."""
        needed: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for group in self.groups() if not self.is_at_once else ():
            for param in group.fsdp_params:
                shard = param.sharded_param
                # Known from the first forward on.
                dtype = getattr(param, "param_dtype", None) or shard.dtype
                needed.setdefault((group.device, dtype), []).append(shard.numel())
        for (device, dtype), sizes in needed.items():
            torch.empty(sum(sizes) + max(sizes), dtype=dtype, device=device)

    def gather(self) -> None:
        """Make every parameter whole, on all ranks; those that are whole already stay as they are.

        Talks, so that every rank has to come here.
        """
        self.is_reduced = False
        if not self.is_begun:
            for root in self.roots:
                root._get_fsdp_state()._lazy_init()  # noqa: SLF001 -- what its first forward does
            self._begin()
        self._calm()
        for module in self._modules if not self.is_at_once else ():
            module.unshard()

    def _begin(self) -> None:
        self.is_begun = True
        ours = AT_ONCE if self.is_at_once else OURS
        for group in self.groups():
            known = {name: getattr(group, name) for name in ours if hasattr(group, name)}
            self._before.append((group, known))
            for name in known:
                setattr(group, name, ours[name])
            for param in group.fsdp_params if not self.is_at_once else ():
                # Sums in a wider type are made by autograd itself, as everywhere else.
                self._types.append((param, param.reduce_dtype))
                param.reduce_dtype = None

    def _calm(self) -> None:
        """Let FSDP forget a forward or backward that an error has ended."""
        for module in self._modules:
            state = module._get_fsdp_state()  # noqa: SLF001
            state._training_state = type(state._training_state).IDLE  # noqa: SLF001
            state._state_ctx.iter_forward_root = None  # noqa: SLF001
            state._state_ctx.post_backward_final_callback_queued = False  # noqa: SLF001
            for group in param_groups_of(module):
                group._training_state = type(group._training_state).IDLE  # noqa: SLF001
                group._post_forward_indices.clear()  # noqa: SLF001
                group.comm_ctx.post_forward_order.clear()

    def end(self) -> None:
        """Let go of the whole parameters, and put FSDP's settings as their user had them."""
        if not self.is_begun:
            return
        if self.on_end is not None:
            self.on_end()
        self._calm()
        for group, known in self._before:
            group.reshard()
            for param in group.fsdp_params:
                # Of parameters that no optimizer has, nobody else clears them.
                if hasattr(param, "_unsharded_param"):
                    param._unsharded_param.grad = None  # noqa: SLF001
            for name, value in known.items():
                setattr(group, name, value)
        for param, dtype in self._types:
            param.reduce_dtype = dtype
        self._before, self._types = [], []
        self.is_begun = False

    def reduce(
        self, chosen: dict[int, bool], factor: float, accumulate_in: torch.dtype | None
    ) -> aside.Hooks:
        """Add up gradients over ranks, and let each shard have its part; return hooks to call now.

        chosen: the records of FSDP to take part, by id, and whether any rank has a gradient for it.
        The whole parameters are let go: they are about to be out of date.
        """
        self.is_reduced = True
        waiting: aside.Hooks = []
        for group in self.groups():
            params = [p for p in group.fsdp_params if id(p) in chosen]
            if not params:
                continue
            others = [p for p in group.fsdp_params if id(p) not in chosen]
            with aside.gradients_of(others), aside.hooks_of(params) as hooks:
                for param in params:
                    _fill(param, accumulate_in, is_held=chosen[id(param)])
                held = [p._unsharded_param.grad for p in params]  # noqa: SLF001
                grads.multiply([g for g in held if g is not None], factor)
                del held
                group.reduce_grads = True
                try:
                    group.post_backward()
                    group.finalize_backward()
                finally:
                    group.reduce_grads = False
                    _forget_messages(group.comm_ctx)
                    group._training_state = type(group._training_state).IDLE  # noqa: SLF001
                    group.reshard()
            waiting += hooks
        return waiting

    def reserve(self, accumulate_in: torch.dtype | None) -> None:
        """Take the memory that adding up needs, and give it back at once.

        Who has too little finds out here, where it can still be told to the others; an allocator
        that caches has it ready then.
        """
        needed: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for group in self.groups():
            wholes = [p._unsharded_param for p in group.fsdp_params]  # noqa: SLF001
            for whole, place in zip(wholes, places_of(wholes, accumulate_in), strict=True):
                needed.setdefault((whole.device, place.dtype), []).append(whole.numel())
        world = self.ranks.world
        for (device, dtype), sizes in needed.items():
            # All shards of this rank, and the largest message at a time, padded.
            torch.empty(sum(sizes) // world + max(sizes) + world, dtype=dtype, device=device)

    def replicas(self) -> int:
        """Return how many ranks hold the same shard."""
        group = next(iter(self.groups()), None)
        if group is None or group.mesh_info.mesh.ndim == 1:
            return 1
        return int(group.mesh_info.mesh.size() // group.mesh_info.shard_mesh_size)

    def teams(self) -> list[list[int]]:
        """Return the ranks that hold the same shards, each a list; none where nobody does."""
        count = self.replicas()
        if count == 1:
            return []
        info = self.groups()[0].mesh_info
        found: list[list[int]] = (
            info.mesh.mesh.movedim(info.replicate_mesh_dim, -1).reshape(-1, count).tolist()
        )
        return found


def _forget_messages(context: Any) -> None:
    """Let go of what was sent: the stream that goes on has waited for it."""
    if hasattr(context, "reduce_scatter_states"):
        context.reduce_scatter_states.clear()
    else:  # before torch 2.13 there was one
        context.reduce_scatter_state = None


def _fill(param: Any, accumulate_in: torch.dtype | None, *, is_held: bool) -> None:
    """Let a gradient be there on all ranks or on none: only so do their messages fit."""
    whole = param._unsharded_param  # noqa: SLF001
    if not is_held:
        whole.grad = None
    elif whole.grad is None:
        (place,) = places_of([whole], accumulate_in)
        whole.grad = torch.zeros_like(whole, dtype=place.dtype)


class ShardedBuffers(Buffers):
    """Gradients of whole parameters while the window is open, and of their shards at its close."""

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        accumulate_in: torch.dtype | None,
        shards: Shards,
    ) -> None:
        super().__init__(optimizers, accumulate_in)
        self.shards = shards
        self.own: list[Tensor] = []
        """What the optimizers hold: shards, and parameters that FSDP was told to leave alone."""
        self._records: list[Any] = []
        self.is_reduced = False
        self._sent: Tensor | None = None
        self._raised: BaseException | None = None
        """What a hook of the user's has raised, until the others hear of it."""

    def _take(self, parameters: list[Tensor]) -> list[Tensor]:
        self.shards.gather()
        known = self.shards.by_shard()
        self.own = parameters
        self._records = [known.get(id(p)) for p in parameters]
        self.is_reduced = False
        if self._are_kept:
            grads.clear(parameters)
        refuse_strays(parameters)
        return [
            p if record is None or self.shards.is_at_once else record._unsharded_param  # noqa: SLF001
            for p, record in zip(parameters, self._records, strict=True)
        ]

    def reserve(self) -> None:
        """Find out whether there is memory to add up."""
        self.shards.reserve(self._accumulate_in)
        self._make_sent()

    def _make_sent(self) -> None:
        if self._sent is None:
            device = self.shards.ranks.device()
            self._sent = torch.empty(2, dtype=torch.float64, device=device)

    def plain(self) -> list[bool]:
        """Return which members every rank holds whole at all times."""
        return [record is None for record in self._records]

    def reduce(self, holders: Sequence[bool], factor: float) -> None:
        """Add up the gradients of sharded parameters; from here on, members are the shards."""
        pairs = zip(self._records, holders, strict=True)
        chosen = {id(record): held for record, held in pairs if record is not None}
        self._raised = aside.called(self.shards.reduce(chosen, factor, self._accumulate_in))
        self.members = self.own
        self._widened = grads.narrower(self.own, self._accumulate_in)
        self.is_reduced = True

    def gradients(self) -> list[Tensor]:
        """Return the gradients there are now; of shards, this rank's part."""
        return [local(g) for g in super().gradients()]

    def norm(self) -> float:
        """Return the norm of the gradients of all ranks (talks, and syncs).

        Raises `aside.HookError` on all ranks if a hook has raised on one: not told yet on which.
        """
        cut, rest = self._parts()
        here, problem = 0.0, None
        raised, self._raised = self._raised, None
        try:
            here = math.hypot(*grads.to_host(grads.folded(grads.norms(cut))))
            if not math.isfinite(here):
                here = grads.exact_norm(cut)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            # The others are on their way to this sum, and are told by it.
            problem = error
        word = (problem is not None) + aside.RAISED * (raised is not None)
        squared, short = self._over_ranks(here * here, word)
        if short >= aside.RAISED:
            raise aside.HookError(raised)
        if short:
            told = problem or PeerOutOfMemoryError("another rank ran out of memory at the close")
            mark(told)
            raise told
        squared /= self.shards.replicas()
        return math.hypot(squared**0.5, *grads.to_host(grads.folded(grads.norms(rest))))

    def _parts(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return this rank's parts of gradients, and gradients that every rank has whole."""
        flags = [record is not None for record in self._records]
        pairs = list(zip(self.own, flags, strict=True))
        cut = [local(p.grad) for p, is_cut in pairs if is_cut and p.grad is not None]
        rest = [p.grad for p, is_cut in pairs if not is_cut and p.grad is not None]
        return cut, rest

    def _over_ranks(self, *numbers: float) -> list[float]:
        """Add up two numbers over all ranks."""
        import torch.distributed as dist  # noqa: PLC0415 -- in use already

        sent = self._sent
        assert sent is not None  # noqa: S101 -- made before the ranks agreed on the close
        for index, number in enumerate(numbers):
            sent[index] = number
        dist.all_reduce(sent, group=self.shards.ranks.group)
        return list(map(float, sent.tolist()))

    def largest_element(self) -> float:
        """Return a bound of the elements of all ranks, not finite if one is not (talks, syncs)."""
        cut, rest = self._parts()
        here = grads.largest_element([*cut, *rest])
        return self._over_ranks(here, 0.0)[0]

    def close(self, *, keep: bool) -> None:
        """Let go of gradients, of whole parameters and of shards."""
        whole = self.members
        if whole is not self.own:
            grads.clear(whole)
        self.members = self.own
        self._widened = [] if whole is not self.own else self._widened
        super().close(keep=keep)
        self.members = []


class AddedAtOnce(ShardedBuffers):
    """Gradients of shards, which FSDP adds up over ranks after every backward."""

    def _take(self, parameters: list[Tensor]) -> list[Tensor]:
        members = super()._take(parameters)
        self._accumulate_in = None
        return members

    def _choose_witnesses(self) -> list[Tensor]:
        # FSDP writes them itself, past the counters of the tensors that optimizers see.
        return []

    def require_untouched(self) -> None:
        """Nothing can be told: every rank's backwards write here."""

    def begin(self) -> None:
        """Let FSDP choose types: those of its own policy."""

    def end(self, *, added: bool) -> None:
        """Note whether something was added."""
        self._added += added

    def reserve(self) -> None:
        """Nothing is left to add up."""
        self._make_sent()

    def reduce(self, holders: Sequence[bool], factor: float) -> None:
        """Nothing is left to add up."""


def local(tensor: Any) -> Tensor:
    """Return this rank's part of a tensor that is spread over ranks, in place; all of another."""
    found: Tensor = getattr(tensor, "_local_tensor", tensor)
    return found
